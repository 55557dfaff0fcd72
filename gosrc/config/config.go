package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/snapshot"
)

// Config is what the worker runs by. It is a value: nobody changes one that
// was handed out.
type Config struct {
	Enabled          bool
	TrackLocks       bool
	TrackLoad        bool
	TrackLWLocks     bool // with TrackLoad
	TrackPages       bool // with TrackLoad
	Database         string
	ConnInfo         string // where history is written; empty: this server
	LocalConnInfo    string // how to reach this server for names; empty: as the shim says
	NodeName         string // never empty
	SamplePeriod     time.Duration
	FlushPeriod      time.Duration
	Retention        time.Duration
	RollupRetention  time.Duration // of load by minute; 0: as Retention
	MaxSize          int64         // bytes
	MinDuration      time.Duration
	MaxRowsPerSecond int
	QueryText        querytext.Mode
	QueryLength      int     // bytes
	AnomalyBand      float64 // in spreads; 0: anomalies are not looked for
	MemoryLimit      int64   // bytes
	AllowPublished   bool    // history may be sent to subscribers
	LogLevel         string
	Server           Server

	settings settings // as they were handed over
}

// Server holds the facts about the server that do not change while it runs.
type Server struct {
	VersionNum                   int
	Port                         int
	SocketDirectories            []string
	ListenAddresses              string
	BootstrapRole                string // role of OID 10; empty when it could not be read
	PostmasterStart              snapshot.Micros
	WorkerStart                  snapshot.Micros // identifies this life of the worker
	PreviousFlush                snapshot.Micros // the life before wrote its history up to then; 0 when not known
	SystemIdentifier             uint64
	MaxConnections               int
	SuperuserReservedConnections int
	MaxProcesses                 int
	MaxPreparedTransactions      int
	DataDirectory                string
	Hostname                     string
	ExtensionVersion             string
}

// SettingError says which setting cannot be used, and why.
type SettingError struct {
	Setting string // as in postgresql.conf, or the server fact
	Value   any    // nil when there is none
	Problem string
}

func (e *SettingError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("setting %s: %s", e.Setting, e.Problem)
	}
	return fmt.Sprintf("setting %s = %v: %s", e.Setting, e.Value, e.Problem)
}

// settings are the settings as the shim writes them: units in the names.
type settings struct {
	Enabled          bool    `mapstructure:"enabled"`
	TrackLocks       bool    `mapstructure:"track_locks"`
	TrackLoad        bool    `mapstructure:"track_load"`
	TrackLWLocks     bool    `mapstructure:"track_lwlocks"`
	TrackPages       bool    `mapstructure:"track_pages"`
	Database         string  `mapstructure:"database"`
	ConnInfo         string  `mapstructure:"conninfo"`
	LocalConnInfo    string  `mapstructure:"local_conninfo"`
	NodeName         string  `mapstructure:"node_name"`
	SamplePeriodMs   int64   `mapstructure:"sample_period_ms"`
	FlushPeriodMs    int64   `mapstructure:"flush_period_ms"`
	RetentionS       int64   `mapstructure:"retention_s"`
	RollupRetentionS int64   `mapstructure:"rollup_retention_s"`
	MaxSizeMB        int64   `mapstructure:"max_size_mb"`
	MinDurationMs    int64   `mapstructure:"min_duration_ms"`
	MaxRowsPerSecond int     `mapstructure:"max_rows_per_second"`
	QueryText        string  `mapstructure:"query_text"`
	QueryLength      int     `mapstructure:"query_length"`
	HotPageBudget    float64 `mapstructure:"hot_page_budget"` // the shim keeps to it by itself
	AnomalyBand      float64 `mapstructure:"anomaly_band"`
	MemoryLimitMB    int64   `mapstructure:"memory_limit_mb"`
	AllowPublished   bool    `mapstructure:"allow_published"`
	LogLevel         string  `mapstructure:"log_level"`
}

// object is the JSON that the shim hands over.
type object struct {
	Settings settings `mapstructure:"settings"`
	Server   struct {
		VersionNum                   int      `mapstructure:"version_num"`
		Port                         int      `mapstructure:"port"`
		SocketDirectories            []string `mapstructure:"socket_directories"`
		ListenAddresses              string   `mapstructure:"listen_addresses"`
		BootstrapRole                string   `mapstructure:"bootstrap_role"`
		PostmasterStart              int64    `mapstructure:"postmaster_start"`
		WorkerStart                  int64    `mapstructure:"worker_start"`
		PreviousFlush                int64    `mapstructure:"previous_flush"`
		SystemIdentifier             string   `mapstructure:"system_identifier"`
		MaxConnections               int      `mapstructure:"max_connections"`
		SuperuserReservedConnections int      `mapstructure:"superuser_reserved_connections"`
		MaxProcesses                 int      `mapstructure:"max_processes"`
		MaxPreparedTransactions      int      `mapstructure:"max_prepared_transactions"`
		DataDirectory                string   `mapstructure:"data_directory"`
		Hostname                     string   `mapstructure:"hostname"`
		ExtensionVersion             string   `mapstructure:"extension_version"`
	} `mapstructure:"server"`
}

// Without these the worker cannot do its work; all else has a safe zero.
var required = [...]string{
	"settings.enabled", "settings.database", "settings.sample_period_ms", "settings.flush_period_ms",
	"settings.retention_s", "settings.max_size_mb", "settings.query_text", "settings.query_length",
	"settings.memory_limit_mb", "server.version_num", "server.port", "server.worker_start",
	"server.system_identifier", "server.extension_version",
}

// Parse reads the object that the shim hands over at start and at each reload.
func Parse(json []byte) (Config, error) {
	v := viper.New()
	v.SetConfigType("json")
	if err := v.MergeConfig(bytes.NewReader(json)); err != nil {
		return Config{}, fmt.Errorf("read settings from the server (%d bytes): %w", len(json), err)
	}
	for _, key := range required {
		if !v.IsSet(key) {
			return Config{}, &SettingError{Setting: settingName(key), Problem: "not handed over by the server; install both libraries from the same release"}
		}
	}
	var o object
	strict := func(dc *mapstructure.DecoderConfig) { dc.WeaklyTypedInput = false }
	if err := v.Unmarshal(&o, strict); err != nil {
		return Config{}, decodeError(err)
	}
	return o.config()
}

// config checks and converts.
func (o *object) config() (Config, error) {
	s, srv := &o.Settings, &o.Server
	for _, n := range []struct {
		key      string
		value    int64
		min, max int64
	}{
		{"settings.sample_period_ms", s.SamplePeriodMs, 1, 60_000},
		{"settings.flush_period_ms", s.FlushPeriodMs, 1, 86_400_000},
		{"settings.retention_s", s.RetentionS, 1, 1 << 32},
		{"settings.rollup_retention_s", s.RollupRetentionS, 0, 1 << 32},
		{"settings.max_size_mb", s.MaxSizeMB, 1, 1 << 32},
		{"settings.min_duration_ms", s.MinDurationMs, 0, 1 << 40},
		{"settings.max_rows_per_second", int64(s.MaxRowsPerSecond), 0, 1 << 31},
		{"settings.query_length", int64(s.QueryLength), 0, 1 << 30},
		{"settings.memory_limit_mb", s.MemoryLimitMB, 1, 1 << 32},
		{"server.port", int64(srv.Port), 1, 65535},
	} {
		if n.value < n.min || n.value > n.max {
			return Config{}, &SettingError{settingName(n.key), n.value, fmt.Sprintf("must be from %d to %d", n.min, n.max)}
		}
	}
	if b := s.AnomalyBand; b != 0 && !(b >= 1 && b <= 100) {
		return Config{}, &SettingError{settingName("settings.anomaly_band"), b, "must be 0, or from 1 to 100"}
	}
	mode, err := querytext.ParseMode(s.QueryText)
	if err != nil {
		return Config{}, &SettingError{settingName("settings.query_text"), s.QueryText, err.Error()}
	}
	sysid, err := strconv.ParseUint(srv.SystemIdentifier, 10, 64)
	if err != nil {
		return Config{}, &SettingError{settingName("server.system_identifier"), srv.SystemIdentifier, "not a number"}
	}
	c := Config{
		Enabled:          s.Enabled,
		TrackLocks:       s.TrackLocks,
		TrackLoad:        s.TrackLoad,
		TrackLWLocks:     s.TrackLWLocks,
		TrackPages:       s.TrackPages,
		Database:         s.Database,
		ConnInfo:         s.ConnInfo,
		LocalConnInfo:    s.LocalConnInfo,
		NodeName:         s.NodeName,
		SamplePeriod:     time.Duration(s.SamplePeriodMs) * time.Millisecond,
		FlushPeriod:      time.Duration(s.FlushPeriodMs) * time.Millisecond,
		Retention:        time.Duration(s.RetentionS) * time.Second,
		RollupRetention:  time.Duration(s.RollupRetentionS) * time.Second,
		MaxSize:          s.MaxSizeMB << 20,
		MinDuration:      time.Duration(s.MinDurationMs) * time.Millisecond,
		MaxRowsPerSecond: s.MaxRowsPerSecond,
		QueryText:        mode,
		QueryLength:      s.QueryLength,
		AnomalyBand:      s.AnomalyBand,
		MemoryLimit:      s.MemoryLimitMB << 20,
		AllowPublished:   s.AllowPublished,
		LogLevel:         s.LogLevel,
		Server: Server{
			VersionNum:                   srv.VersionNum,
			Port:                         srv.Port,
			SocketDirectories:            srv.SocketDirectories,
			ListenAddresses:              srv.ListenAddresses,
			BootstrapRole:                srv.BootstrapRole,
			PostmasterStart:              snapshot.Micros(srv.PostmasterStart),
			WorkerStart:                  snapshot.Micros(srv.WorkerStart),
			PreviousFlush:                snapshot.Micros(srv.PreviousFlush),
			SystemIdentifier:             sysid,
			MaxConnections:               srv.MaxConnections,
			SuperuserReservedConnections: srv.SuperuserReservedConnections,
			MaxProcesses:                 srv.MaxProcesses,
			MaxPreparedTransactions:      srv.MaxPreparedTransactions,
			DataDirectory:                srv.DataDirectory,
			Hostname:                     srv.Hostname,
			ExtensionVersion:             srv.ExtensionVersion,
		},
	}
	c.settings = *s
	if c.Database == "" {
		return Config{}, &SettingError{settingName("settings.database"), "''", "must name a database"}
	}
	if c.NodeName == "" {
		c.NodeName = fmt.Sprintf("%s:%d", srv.Hostname, srv.Port)
	}
	return c, nil
}

// Changed names the settings in which c differs from old, as users know them.
func (c *Config) Changed(old *Config) []string {
	var names []string
	now, before := reflect.ValueOf(c.settings), reflect.ValueOf(old.settings)
	for i := range now.NumField() {
		if !now.Field(i).Equal(before.Field(i)) {
			names = append(names, settingName("settings."+now.Type().Field(i).Tag.Get("mapstructure")))
		}
	}
	return names
}

// settingName turns a JSON key, which may end in a unit, into the name users know.
func settingName(key string) string {
	const settings, server = "settings.", "server."
	if len(key) > len(settings) && key[:len(settings)] == settings {
		name := key[len(settings):]
		for _, unit := range []string{"_ms", "_mb", "_s"} {
			if len(name) > len(unit) && name[len(name)-len(unit):] == unit {
				name = name[:len(name)-len(unit)]
				break
			}
		}
		return "pg_lock_history." + name
	}
	if len(key) > len(server) && key[:len(server)] == server {
		return "server fact " + key[len(server):]
	}
	return key
}

// decodeError picks the setting out of mapstructure's error.
func decodeError(err error) error {
	var de *mapstructure.DecodeError
	if errors.As(err, &de) {
		return &SettingError{Setting: settingName(de.Name()), Problem: de.Unwrap().Error()}
	}
	return fmt.Errorf("decode settings: %w", err)
}
