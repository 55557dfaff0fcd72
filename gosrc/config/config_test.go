package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pg_lock_history/gosrc/querytext"
)

const full = `{"settings":{"enabled":true,"track_locks":true,"database":"postgres","conninfo":"","local_conninfo":"","node_name":"",
"sample_period_ms":10,"flush_period_ms":1000,"retention_s":604800,"rollup_retention_s":7776000,"max_size_mb":1024,"min_duration_ms":100,"max_rows_per_second":1000,
"query_text":"normalized","query_length":1024,"hot_page_budget":1.5,"anomaly_band":2.5,"memory_limit_mb":64,"allow_published":true,"log_level":"info","something_new":1},
"server":{"version_num":150020,"port":5432,"socket_directories":["/var/run/postgresql","/tmp"],"listen_addresses":"localhost","bootstrap_role":"Admin Ä",
"postmaster_start":800000000000001,"worker_start":800000000000002,"previous_flush":800000000000003,"system_identifier":"17446744073709551615","max_connections":100,
"superuser_reserved_connections":3,"max_processes":132,"max_prepared_transactions":0,"data_directory":"/data","hostname":"db1","extension_version":"1.0"}}`

func TestParse(t *testing.T) {
	c, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Server
	if !c.Enabled || !c.TrackLocks || c.Database != "postgres" || c.SamplePeriod != 10*time.Millisecond ||
		c.FlushPeriod != time.Second || c.Retention != 7*24*time.Hour || c.RollupRetention != 90*24*time.Hour || c.MaxSize != 1<<30 ||
		c.MinDuration != 100*time.Millisecond || c.MaxRowsPerSecond != 1000 || c.QueryText != querytext.Normalized ||
		c.QueryLength != 1024 || c.AnomalyBand != 2.5 || c.MemoryLimit != 64<<20 || !c.AllowPublished || c.LogLevel != "info" {
		t.Errorf("settings: %+v", c)
	}
	if c.NodeName != "db1:5432" {
		t.Errorf("node name %q, want host name and port", c.NodeName)
	}
	if s.VersionNum != 150020 || s.Port != 5432 || len(s.SocketDirectories) != 2 || s.BootstrapRole != "Admin Ä" ||
		s.PostmasterStart != 800000000000001 || s.WorkerStart != 800000000000002 || s.PreviousFlush != 800000000000003 ||
		s.SystemIdentifier != 17446744073709551615 || s.MaxConnections != 100 || s.ExtensionVersion != "1.0" {
		t.Errorf("server: %+v", s)
	}
}

func TestParseVariants(t *testing.T) {
	tests := []struct {
		name, old, new string
		setting        string // "" when it must be taken
	}{
		{"bootstrap role not readable", `"bootstrap_role":"Admin Ä",`, ``, ""},
		{"node name given", `"node_name":""`, `"node_name":"n1"`, ""},
		{"database missing", `"database":"postgres",`, ``, "pg_lock_history.database"},
		{"database empty", `"database":"postgres"`, `"database":""`, "pg_lock_history.database"},
		{"period zero", `"sample_period_ms":10`, `"sample_period_ms":0`, "pg_lock_history.sample_period"},
		{"retention negative", `"retention_s":604800`, `"retention_s":-1`, "pg_lock_history.retention"},
		{"retention of minutes negative", `"rollup_retention_s":7776000`, `"rollup_retention_s":-1`, "pg_lock_history.rollup_retention"},
		{"size of the wrong kind", `"max_size_mb":1024`, `"max_size_mb":"much"`, "pg_lock_history.max_size"},
		{"unknown word", `"query_text":"normalized"`, `"query_text":"half"`, "pg_lock_history.query_text"},
		{"system identifier", `"17446744073709551615"`, `"x"`, "server fact system_identifier"},
		{"band off", `"anomaly_band":2.5`, `"anomaly_band":0`, ""},
		{"band too narrow", `"anomaly_band":2.5`, `"anomaly_band":0.5`, "pg_lock_history.anomaly_band"},
		{"band negative", `"anomaly_band":2.5`, `"anomaly_band":-3`, "pg_lock_history.anomaly_band"},
		{"port", `"port":5432`, `"port":70000`, "server fact port"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			json := strings.Replace(full, tt.old, tt.new, 1)
			if json == full {
				t.Fatal("the test replaces nothing")
			}
			_, err := Parse([]byte(json))
			if tt.setting == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var se *SettingError
			if !errors.As(err, &se) {
				t.Fatalf("error %v (%T), want a SettingError", err, err)
			}
			if se.Setting != tt.setting || !strings.Contains(err.Error(), tt.setting) {
				t.Errorf("error %q names %q, want %q", err, se.Setting, tt.setting)
			}
		})
	}
	if _, err := Parse([]byte(`{"settings":`)); err == nil {
		t.Error("half an object is taken")
	}
}

func TestChanged(t *testing.T) {
	old, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, old, new string
		want           []string
	}{
		{"nothing", `"port":5432`, `"port":5433`, nil},
		{"switch", `"enabled":true`, `"enabled":false`, []string{"pg_lock_history.enabled"}},
		{"unit left out", `"max_size_mb":1024`, `"max_size_mb":8`, []string{"pg_lock_history.max_size"}},
		{"text", `"conninfo":""`, `"conninfo":"password=secret"`, []string{"pg_lock_history.conninfo"}},
		{"share of one", `"anomaly_band":2.5`, `"anomaly_band":3.5`, []string{"pg_lock_history.anomaly_band"}},
		{"one of the shim's own", `"hot_page_budget":1.5`, `"hot_page_budget":2`, []string{"pg_lock_history.hot_page_budget"}},
		{"two", `"sample_period_ms":10,"flush_period_ms":1000`, `"sample_period_ms":20,"flush_period_ms":2000`,
			[]string{"pg_lock_history.sample_period", "pg_lock_history.flush_period"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now, err := Parse([]byte(strings.Replace(full, tt.old, tt.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			if got := now.Changed(&old); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
