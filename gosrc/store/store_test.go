package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
)

func server(t *testing.T) config.Server {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".s.PGSQL.7777"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Server{VersionNum: 150020, Port: 7777, SocketDirectories: []string{"/does/not/exist", dir}, BootstrapRole: "o'boss"}
}

func TestConnConfig(t *testing.T) {
	// What pgx would take from the environment and the home directory. All but
	// PGSERVICE, which it follows whatever it is told; a worker has no
	// environment (test/t/022_writer_messages.pl starts a server with it).
	home := t.TempDir()
	for _, name := range []string{"PGHOST", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGOPTIONS", "PGAPPNAME", "PGTZ", "PGSERVICEFILE",
		"PGSSLMODE", "PGSSLCERT", "PGSSLKEY", "PGSSLROOTCERT", "PGSSLPASSWORD", "PGSSLCERTMODE", "PGSSLNEGOTIATION", "PGCHANNELBINDING",
		"PGREQUIREAUTH", "PGMINPROTOCOLVERSION", "PGMAXPROTOCOLVERSION", "PGTARGETSESSIONATTRS", "PGCONNECT_TIMEOUT"} {
		t.Setenv(name, "from-environment")
	}
	t.Setenv("PGPORT", "1")
	t.Setenv("HOME", home)
	if err := os.WriteFile(filepath.Join(home, ".pgpass"), []byte("*:*:*:*:from-home\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGPASSFILE", filepath.Join(home, ".pgpass"))
	passfile := filepath.Join(home, "passfile")
	if err := os.WriteFile(passfile, []byte("localhost:7777:*:writer:from-passfile\ndb9:5433:h:w:of-db9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	opened := filepath.Join(home, "opened")
	if err := os.WriteFile(opened, []byte("*:*:*:*:seen-by-all\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	services := filepath.Join(home, "services")
	if err := os.WriteFile(services, []byte("[far]\nhost=db9\nport=5433\ndbname=h\nuser=w\nsslmode=disable\n[near]\nuser=writer\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := server(t)
	socket := srv.SocketDirectories[1]
	tests := []struct {
		name, conninfo string
		want           string // host port database user password tls
	}{
		{"this server", "", socket + " 7777 postgres o'boss  plain"},
		{"another user", "user=writer passfile=/none", socket + " 7777 postgres writer  plain"},
		{"another database", "dbname='my history'", socket + " 7777 my history o'boss  plain"},
		{"another host", "host=db9 user=w password=s", "db9 5432 postgres w s tls"},
		{"another host with port", "user=w host = db9 port=99 sslmode=disable", "db9 99 postgres w  plain"},
		{"word that only ends in host", "user=myhost", socket + " 7777 postgres myhost  plain"},
		{"url", "postgres://w:p%40ss@db9:99/h?sslmode=disable", "db9 99 h w p@ss plain"},
		{"url with a socket directory", "postgresql://w@%2Felse%20where%2fs:5501/h", "/else where/s 5501 h w  plain"},
		{"url with this server's directory", "postgresql://w@" + strings.ReplaceAll(socket, "/", "%2F") + "/h", socket + " 7777 h w  plain"},
		{"url with little", "postgresql://", socket + " 7777 postgres o'boss  plain"},
		{"url with a database alone", "postgresql:///my%20history", socket + " 7777 my history o'boss  plain"},
		{"url without a slash", "postgresql://db9?user=w&sslmode=disable", "db9 5432 postgres w  plain"},
		{"url with an IPv6 address", "postgres://w@[fe80::1]:99/h?sslmode=disable", "fe80::1 99 h w  plain"},
		{"url with signs in the password", "postgres://w:a+b:c%2F%3f@db9/h?ssl=true", "db9 5432 h w a+b:c/? tls"},
		{"url with a password behind", "postgres://db9/h?user=w&password=a+b%26c", "db9 5432 h w a+b&c tls"},
		{"url that says it twice", "postgres://w@db9/h?sslmode=require&host=db8&sslmode=disable", "db8 5432 h w  plain"},
		{"url without host", "postgres:///h?user=w", socket + " 7777 h w  plain"},
		{"socket directory without port", "host=/elsewhere user=w", "/elsewhere 7777 postgres w  plain"},
		{"another port", "port=99 user=w", socket + " 99 postgres w  plain"},
		{"empty words", "host='' port='' user=''", socket + " 7777 postgres o'boss  plain"},
		{"words within a value", `password='a host=db9 \'\\' user=w`, socket + ` 7777 postgres w a host=db9 '\ plain`},
		{"passfile", "user=writer passfile=" + passfile, socket + " 7777 postgres writer from-passfile plain"},
		{"passfile without a line that fits", "user=other passfile=" + passfile, socket + " 7777 postgres other  plain"},
		{"passfile that all can read", "passfile=" + opened, socket + " 7777 postgres o'boss  plain"},
		{"service", "service=far servicefile=" + services, "db9 5433 h w  plain"},
		{"service and passfile", "service=far servicefile=" + services + " passfile=" + passfile, "db9 5433 h w of-db9 plain"},
		{"service and more", "dbname=x service=far servicefile=" + services, "db9 5433 x w  plain"},
		{"service that names no host", "service=near servicefile=" + services, socket + " 7777 postgres writer  plain"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := config.Config{Database: "postgres", ConnInfo: tt.conninfo, Server: srv}
			target := writerTarget(&c)
			cc, err := connConfig(&target, &srv)
			if err != nil {
				t.Fatal(err)
			}
			tls := "plain"
			if cc.TLSConfig != nil {
				tls = "tls"
			}
			got := fmt.Sprintf("%s %d %s %s %s %s", cc.Host, cc.Port, cc.Database, cc.User, cc.Password, tls)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			for _, param := range [][2]string{{"application_name", writerName}, {"search_path", "pg_catalog"}, {"synchronous_commit", "local"},
				{"default_transaction_read_only", "off"}, {"lock_timeout", "1s"}, {"statement_timeout", "30s"}, {"timezone", "UTC"}} {
				if cc.RuntimeParams[param[0]] != param[1] {
					t.Errorf("%s = %q, want %q", param[0], cc.RuntimeParams[param[0]], param[1])
				}
			}
			for name, value := range cc.RuntimeParams {
				if strings.Contains(value, "environment") {
					t.Errorf("%s = %q comes from the environment", name, value)
				}
			}
			if len(cc.Fallbacks) > 1 || cc.ConnectTimeout != dialTimeout || cc.ValidateConnect != nil || cc.SSLNegotiation == "from-environment" {
				t.Errorf("something is not ours: %+v", cc.Config)
			}
			here := cc.Host == socket && cc.Port == 7777
			if cc.here != here {
				t.Errorf("leads into this server: %v, want %v", cc.here, here)
			}
			if _, ok := cc.RuntimeParams["idle_session_timeout"]; ok != here {
				t.Error("what not every version has is sent to servers of unknown version, or not to ours")
			}
			if (cc.noPassword == "") != (cc.Password != "") {
				t.Errorf("says of the password %q: %q", cc.Password, cc.noPassword)
			}
			if _, ok := cc.RuntimeParams["log_statement"]; ok != (tt.conninfo == "") {
				t.Error("parameters for superusers belong to sessions that are sure to be one's")
			}
			if _, ok := cc.RuntimeParams["transaction_timeout"]; ok {
				t.Error("transaction_timeout is sent to a server of 15")
			}
		})
	}
}

// Of a value that cannot be taken, key and value are told, and nothing else.
func TestConnConfigNamesTheBadValue(t *testing.T) {
	srv := server(t)
	tests := []struct{ name, conninfo, says string }{
		{"port too large", "port=99999 user=w password=s3cret", "port=99999 is no good value in pg_lock_history.conninfo"},
		{"port of a list", "host=db8,db9 port=7,0 password=s3cret", "port=7,0 is no good value"},
		{"port in a URL", "postgresql://w:s3cret@db9:99999/h", "port=99999 is no good value"},
		{"slash in the password of a URL", "postgresql://w:s3cret/x@db9/h", "port is no good value"},
		{"sslmode", "host=db9 sslmode=maybe password=s3cret", "sslmode=maybe is no good value"},
		{"connect_timeout", "connect_timeout=soon password=s3cret", "connect_timeout=soon is no good value"},
		{"file", "host=db9 sslrootcert=/does/not/exist password=s3cret", "sslrootcert=/does/not/exist is no good value in pg_lock_history.conninfo: unable to read CA file"},
		{"target_session_attrs", "target_session_attrs=best password=s3cret", "target_session_attrs=best is no good value"},
		{"two of them", "port=99999 target_session_attrs=best password=s3cret", "more than one value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := config.Config{Database: "postgres", ConnInfo: tt.conninfo, Server: srv}
			target := writerTarget(&c)
			_, err := connConfig(&target, &srv)
			f := explain(err, "connect", &target, &c)
			if f.state != StateConnect || !strings.Contains(f.msg.Detail, tt.says) {
				t.Errorf("told as %+v, want it to say %q", f, tt.says)
			}
			if strings.Contains(f.msg.Detail, "s3cret") || strings.Contains(f.msg.Detail, "sslcertmode") {
				t.Errorf("tells too much: %s", f.msg.Detail)
			}
		})
	}
}

func TestConnConfigListOfHosts(t *testing.T) {
	srv := server(t)
	tests := []struct{ conninfo, want string }{
		{"postgresql://w@%2Fa,[::1]:98,db9:99/h?sslmode=disable", "/a:5432 ::1:98 db9:99"},
		{"postgresql://w@db8,db9/h?sslmode=disable", "db8:5432 db9:5432"},
		{"postgresql://w@db8,db9/h?sslmode=disable&port=7", "db8:7 db9:7"},
	}
	for _, tt := range tests {
		target := writerTarget(&config.Config{Database: "postgres", ConnInfo: tt.conninfo})
		cc, err := connConfig(&target, &srv)
		if err != nil {
			t.Errorf("%s: %v", tt.conninfo, err)
			continue
		}
		got := fmt.Sprintf("%s:%d", cc.Host, cc.Port)
		for _, f := range cc.Fallbacks {
			got += fmt.Sprintf(" %s:%d", f.Host, f.Port)
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.conninfo, got, tt.want)
		}
	}
}

// A keyword that nobody knows must not be left out in silence: the history
// would go somewhere else than was meant.
func TestConnConfigRefusesUnknownKeywords(t *testing.T) {
	srv := server(t)
	for _, conninfo := range []string{"hots=db9", "user=w hostaddr=10.0.0.1", "postgres://w@db9/h?sslmoed=disable", "postgresql://u:p@/x%zz",
		"postgresql://u:s3cret%@/x", "postgresql://u:s3cret@[fe80::1/x", "postgresql://u:s3cret@[]/x", "postgresql://u:s3cret@[::1]x/x",
		"postgresql://u@/x%00", "postgresql://db9/x?password", "postgresql://db9/x?password=s3cret=x",
		"user=w host", "user='w", "us er=w", "=w", "host=db9, user=w", "service=far", "service=far servicefile=/does/not/exist",
		"service=far servicefile=" + os.DevNull, "password='s3cret",
		"host=db9 sslcrl=/x", "host=db9 sslcrldir=/x", "host=/x requirepeer=postgres", "host=db9 gssencmode=require"} {
		c := config.Config{Database: "postgres", ConnInfo: conninfo, Server: srv}
		target := writerTarget(&c)
		_, err := connConfig(&target, &srv)
		if !errors.Is(err, errConnInfo) {
			t.Errorf("%s: error %v, want it refused", conninfo, err)
			continue
		}
		f := explain(err, "connect", &target, &c)
		if f.state != StateConnect || !strings.Contains(f.msg.Text, "pg_lock_history.conninfo") {
			t.Errorf("%s: told as %+v", conninfo, f)
		}
		if strings.Contains(f.msg.Detail, "s3cret") {
			t.Errorf("the password is shown: %+v", f)
		}
	}
	c := config.Config{Database: "postgres", ConnInfo: "user=w keepalives=1 gssencmode=prefer application_name=x", Server: srv}
	target := writerTarget(&c)
	if cc, err := connConfig(&target, &srv); err != nil || cc.RuntimeParams["application_name"] != writerName {
		t.Errorf("keywords of libpq that do not matter: %v", err)
	}
}

func TestConnConfigOfNames(t *testing.T) {
	srv := server(t)
	c := config.Config{Database: "postgres", LocalConnInfo: "dbname=home user=w", Server: srv}
	target := namesTarget(&c, "shop")
	cc, err := connConfig(&target, &srv)
	if err != nil {
		t.Fatal(err)
	}
	if !cc.here || cc.Database != "shop" || cc.User != "w" || cc.RuntimeParams["statement_timeout"] != "300ms" {
		t.Errorf("database %q, user %q, statement_timeout %q", cc.Database, cc.User, cc.RuntimeParams["statement_timeout"])
	}
}

func TestLocalConnInfoIsOfThisServer(t *testing.T) {
	srv := server(t)
	c := config.Config{Database: "postgres", LocalConnInfo: "host=127.0.0.1", Server: srv}
	target := namesTarget(&c, "shop")
	if cc, err := connConfig(&target, &srv); err != nil || cc.Port != 7777 || !cc.here {
		t.Errorf("%v: %+v, want the port of this server", err, cc)
	}
}

func TestDoor(t *testing.T) {
	answer := func(spare bool) func() <-chan bool {
		return func() <-chan bool {
			c := make(chan bool, 1)
			c <- spare
			return c
		}
	}
	never := func() <-chan bool { return nil }
	tests := []struct {
		name string
		ask  func() <-chan bool
		err  error
	}{
		{"a slot to spare", answer(true), nil},
		{"no slot to spare", answer(false), errNoSpareSlot},
		{"nobody answers", never, errNoAnswer},
		{"nobody to ask", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDoor(tt.ask, make(chan struct{}))
				for range 3 { // whatever comes of it, the next one finds the door free
					leave, err := d.enter(t.Context())
					if !errors.Is(err, tt.err) {
						t.Fatalf("error %v, want %v", err, tt.err)
					}
					if err == nil {
						leave()
					}
				}
			})
		})
	}
	t.Run("one at a time", func(t *testing.T) {
		d := newDoor(answer(true), make(chan struct{}))
		leave, err := d.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := d.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second one came in: %v", err)
		}
		leave()
	})
	t.Run("not while our own do not end", func(t *testing.T) {
		d := newDoor(answer(true), make(chan struct{}))
		for range maxSessions {
			stuck := exec.Command("sleep", "600")
			if err := stuck.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = stuck.Process.Kill(); _ = stuck.Wait() })
			leave, err := d.enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			d.remember(uint32(stuck.Process.Pid))
			leave()
			defer func() {
				_ = stuck.Process.Kill()
				_ = stuck.Wait()
				leave, err := d.enter(t.Context())
				if err != nil {
					t.Errorf("one has ended, and the next is not let in: %v", err)
					return
				}
				leave()
			}()
		}
		if _, err := d.enter(t.Context()); !errors.Is(err, errCrowd) {
			t.Errorf("error %v, want %v", err, errCrowd)
		}
	})
	t.Run("at the end", func(t *testing.T) {
		over := make(chan struct{})
		close(over)
		if _, err := newDoor(never, over).enter(t.Context()); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v: the stop is held up", err)
		}
	})
}

func TestLocalHost(t *testing.T) {
	srv := server(t)
	tests := []struct {
		name   string
		dirs   []string
		listen string
		want   string
	}{
		{"first usable directory", srv.SocketDirectories, "", srv.SocketDirectories[1]},
		{"abstract socket", []string{"@pg"}, "", "@pg"},
		{"no socket, all addresses", nil, "*", "127.0.0.1"},
		{"no socket, localhost", nil, "localhost", "127.0.0.1"},
		{"no socket, one address", nil, " 10.1.2.3,10.1.2.4", "10.1.2.3"},
		{"no socket, all of IPv6", nil, "::", "::1"},
		{"nothing", []string{"/does/not/exist"}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := localHost(&config.Server{Port: 7777, SocketDirectories: tt.dirs, ListenAddresses: tt.listen})
			if got != tt.want || (tt.want == "") != errors.Is(err, errNoSocket) {
				t.Errorf("got %q and %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	c := &config.Config{Database: "hist"}
	target := writerTarget(c)
	pg := func(severity, code string) error {
		return fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: severity, Code: code, Message: "what the server said"})
	}
	tests := []struct {
		name  string
		err   error
		state string
		says  []string
	}{
		{"no socket", errNoSocket, StateConnect, []string{"unix_socket_directories", "pg_lock_history.conninfo"}},
		{"other server", errOtherServer, StateConnect, []string{"not the one"}},
		{"nobody listens", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, StateConnect, []string{"pg_lock_history.conninfo"}},
		{"password", pg("FATAL", "28P01"), StateConnect, []string{"passfile", "pg_lock_history.conninfo", "what the server said"}},
		{"no password", fmt.Errorf("%w: %w", errNoPassword, pg("FATAL", "28P01")), StateConnect, []string{"passfile", "pg_hba.conf", "what the server said"}},
		{"pg_hba", pg("FATAL", "28000"), StateConnect, []string{"pg_hba.conf"}},
		{"no role", &attempt{user: "w", err: &pgconn.PgError{Severity: "FATAL", Code: "28000", Routine: "InitializeSessionUserId"}}, StateConnect, []string{`"w"`, "LOGIN"}},
		{"no slot", errNoSpareSlot, StateSlots, []string{"max_connections", "kept in memory"}},
		{"main thread", errNoAnswer, StateConnect, []string{"tries again"}},
		{"template", &attempt{database: "template1", err: errTemplate}, StateConnect, []string{`"template1"`, "pg_lock_history.database"}},
		{"published", &publishedError{publication: "all of it"}, StatePublished, []string{`"all of it"`, "pg_lock_history.allow_published", "pg_lock_history.database", "kept in memory"}},
		{"no database", pg("FATAL", "3D000"), StateConnect, []string{`"hist"`, "pg_lock_history.database"}},
		{"datallowconn", pg("FATAL", "55000"), StateConnect, []string{"datallowconn"}},
		{"rights", pg("ERROR", "42501"), StateRefused, []string{"grant_writer"}},
		{"locked", pg("ERROR", "55P03"), StateWriting, []string{"locked by somebody", "kept in memory"}},
		{"too many", pg("FATAL", "53300"), StateConnect, []string{"max_connections"}},
		{"disk full", pg("ERROR", "53100"), StateWriting, []string{"disk is full"}},
		{"read-only file system", fmt.Errorf("write: %w", &pgconn.PgError{Severity: "ERROR", Code: "42501", File: "md.c", Routine: "mdopenfork", Message: "could not open file \"base/5/1\": Read-only file system"}),
			StateWriting, []string{"files may not be written to", "base/5/1", "file system", "kept in memory"}},
		{"input or output", pg("ERROR", "58030"), StateWriting, []string{"damaged or missing", "TRUNCATE"}},
		{"damaged page", pg("ERROR", "XX001"), StateWriting, []string{"damaged or missing", "TRUNCATE"}},
		{"no such column", pg("ERROR", "42703"), StateRefused, []string{"changed by hand", "DROP EXTENSION"}},
		{"not null", pg("ERROR", "23502"), StateRefused, []string{"changed by hand", "what the server said"}},
		{"a standby", errStandby, StateStandby, []string{"this server is a standby", "recent_waits()", "pg_lock_history.conninfo", "promotion"}},
		{"a standby elsewhere", &attempt{server: "host db9 port 5432", err: errStandby}, StateConnect, []string{"a standby, it cannot be written to", "target_session_attrs", "kept in memory"}},
		{"certificate", fmt.Errorf("tls: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), StateConnect, []string{"certificate", "sslrootcert", "kept in memory"}},
		{"read only", pg("ERROR", "25006"), StateWriting, []string{"read-only", "pg_lock_history.conninfo"}},
		{"older", &versionError{"1.9", "1.10"}, StateVersion, []string{"1.9", "1.10", "ALTER EXTENSION pg_lock_history UPDATE", "hist"}},
		{"newer", &versionError{"1.10", "1.9"}, StateVersion, []string{"1.9", "Install the libraries of version 1.10", "restart"}},
		{"tables", errNotOurs, StateRefused, []string{"not as CREATE EXTENSION made them"}},
		{"node", errNodeTaken, StateRefused, []string{"pg_lock_history.node_name"}},
		{"end of file", io.ErrUnexpectedEOF, StateWriting, []string{"lost the connection"}},
		{"closed by the client library", fmt.Errorf("roll back: %w", pgconn.ErrConnClosed), StateWriting, []string{"lost the connection"}},
		{"no answer", context.DeadlineExceeded, StateWriting, []string{"does not answer"}},
		{"anything else", pg("ERROR", "XX000"), StateWriting, []string{"XX000", "kept in memory"}},
	}
	keys := make(map[string]string)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := explain(tt.err, "write", &target, c)
			if f.state != tt.state {
				t.Errorf("state %q, want %q", f.state, tt.state)
			}
			all := f.msg.Text + " " + f.msg.Detail + " " + f.msg.Hint
			for _, word := range tt.says {
				if !strings.Contains(all, word) {
					t.Errorf("%q does not say %q", all, word)
				}
			}
			if f.msg.Hint == "" || f.msg.Text == "" || len(f.state) > 31 {
				t.Errorf("no hint, no text or too long a state: %+v", f)
			}
			// Another text under a key that is told already would never be seen.
			if other, ok := keys[f.msg.Key]; ok && other != f.msg.Text {
				t.Errorf("shares key %q with %q", f.msg.Key, other)
			}
			keys[f.msg.Key] = f.msg.Text
		})
	}
}

// What is wrong with another server is told with its name, and is put right there.
func TestExplainElsewhere(t *testing.T) {
	c := &config.Config{Database: "hist", ConnInfo: "host=db9"}
	target := writerTarget(c)
	const there = "host db9 port 5432"
	tests := []struct {
		name string
		err  error
		says []string
		not  string
	}{
		{"pg_hba", &pgconn.PgError{Severity: "FATAL", Code: "28000"}, []string{"pg_hba.conf on " + there, "sslmode"}, "local connections"},
		{"no role", &pgconn.PgError{Severity: "FATAL", Code: "28000", Routine: "InitializeSessionUserId"}, []string{"LOGIN on " + there}, ""},
		{"no database", &pgconn.PgError{Severity: "FATAL", Code: "3D000"}, []string{`"hist" does not exist on ` + there, "dbname in pg_lock_history.conninfo"}, ""},
		{"rights", &pgconn.PgError{Severity: "ERROR", Code: "42501"}, []string{"grant_writer()", "database hist on " + there}, ""},
		{"older", &versionError{"1.9", "1.10"}, []string{"UPDATE in database hist on " + there, "1.10 is installed there"}, ""},
		{"newer", &versionError{"1.10", "1.9"}, []string{"1.10 on this server"}, ""},
		{"unreachable", syscall.ECONNREFUSED, []string{"pg_lock_history.conninfo", "promotion"}, "unix_socket_directories"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := explain(&attempt{database: "hist", user: "w", server: there, err: tt.err}, actionConnect, &target, c)
			all := f.msg.Text + " " + f.msg.Detail + " " + f.msg.Hint
			for _, word := range tt.says {
				if !strings.Contains(all, word) {
					t.Errorf("%q does not say %q", all, word)
				}
			}
			if tt.not != "" && strings.Contains(all, tt.not) {
				t.Errorf("%q says %q", all, tt.not)
			}
		})
	}
}

func TestOlder(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"1.0", "1.1", true}, {"1.1", "1.0", false}, {"1.9", "1.10", true}, {"1.10", "1.9", false},
		{"1", "1.0", true}, {"1.0", "1.0", false}, {"1.0", "1.1dev", true},
	} {
		if got := older(tt.a, tt.b); got != tt.want {
			t.Errorf("older(%s, %s) = %v", tt.a, tt.b, got)
		}
	}
}

func TestNamesAreBounded(t *testing.T) {
	n := newNames(nil, report.New(func() {}))
	for oid := range uint32(maxNames + 10) {
		n.store([]nameKey{roleKey(oid + 1)}, map[nameKey]string{roleKey(oid + 1): "r"})
		n.get(roleKey(1)) // in use, so it stays
	}
	if len(n.known) != maxNames || n.recent.Len() != maxNames {
		t.Errorf("%d names, %d in order, want %d", len(n.known), n.recent.Len(), maxNames)
	}
	if n.get(roleKey(1)) == "" || n.get(roleKey(2)) != "" {
		t.Error("the least recently used is to go first")
	}
	for oid := range uint32(2 * maxNames) {
		n.want([]nameKey{databaseKey(oid)})
	}
	if len(n.pending) != maxNames {
		t.Errorf("%d are pending, want %d", len(n.pending), maxNames)
	}
}

// A segment tells so many statements apart, then roles and databases no more.
func TestDimensionsAreBounded(t *testing.T) {
	n := newDimensions()
	kinds := make(map[int32]bool)
	for i := range 2 * maxDims {
		kinds[n.id(dimension{kind: loadDim, eventType: "IO", event: fmt.Sprint("event ", i%20), database: uint32(i), role: uint32(i), queryID: int64(i + 1)})] = true
	}
	if len(n.ids) > maxDims+20 || len(kinds) != len(n.ids) || int(n.last) != len(n.ids) {
		t.Errorf("%d told apart, %d numbers, the last is %d; want at most %d", len(n.ids), len(kinds), n.last, maxDims+20)
	}
	known := dimension{kind: loadDim, eventType: "IO", event: "event 0", queryID: 1}
	if n.id(known) != n.id(known) {
		t.Error("one thing has two numbers")
	}
}

func TestActorsAreBounded(t *testing.T) {
	s := &session{actors: make(map[int64]struct{})}
	for i := range int64(30) {
		r := &rowSet{actors: make(map[int64][]any)}
		for j := range int64(9000) {
			r.actors[i*9000+j] = nil
		}
		if s.remember(r); len(s.actors) > maxActors {
			t.Fatalf("%d actors remembered, want at most %d", len(s.actors), maxActors)
		}
		if _, ok := s.actors[i*9000+8999]; !ok {
			t.Fatal("the newest are not remembered")
		}
	}
}

func TestNamesKeepAndRefresh(t *testing.T) {
	n := newNames(nil, report.New(func() {}))
	key := roleKey(10)
	n.store([]nameKey{key}, map[nameKey]string{key: "boss"})
	n.store([]nameKey{key}, nil) // gone now
	if got := n.get(key); got != "boss" {
		t.Errorf("name of what is gone: %q", got)
	}
	n.WantSession(&snapshot.Session{Role: 10})
	if len(n.take()) != 0 {
		t.Error("a fresh name is asked for again")
	}
	n.known[key].Value.(*name).askedAt = time.Now().Add(-nameFresh)
	n.WantSession(&snapshot.Session{Role: 10})
	if got := n.take(); len(got) != 1 || got[0] != key {
		t.Errorf("asked for %v, want the old name again", got)
	}
}

// Who waits for a table that is renamed meanwhile has asked for the old name.
func TestNameAtTheTimeOfTheWait(t *testing.T) {
	tag := lockmgr.Tag{Field1: 5, Field2: 16384, Type: lockmgr.Relation}
	key := nameKey{kind: relationName, database: 5, a: 16384}
	began := time.Now()
	tests := []struct {
		name   string
		oldAt  time.Duration // when the old name was last seen, from the begin of the wait
		newAt  time.Duration
		since  snapshot.Micros
		want   string
		newOne string
	}{
		{"renamed during the wait", time.Second, 2 * time.Second, snapshot.FromTime(began), "old", "new"},
		{"renamed before, noticed during the wait", -time.Hour, time.Second, snapshot.FromTime(began), "new", "new"},
		{"asked about no wait", time.Second, 2 * time.Second, 0, "new", "new"},
		{"not renamed", time.Second, 2 * time.Second, snapshot.FromTime(began), "old", "old"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNames(nil, report.New(func() {}))
			n.store([]nameKey{key}, map[nameKey]string{key: "old"})
			n.known[key].Value.(*name).seenAt = began.Add(tt.oldAt)
			n.store([]nameKey{key}, map[nameKey]string{key: tt.newOne})
			n.known[key].Value.(*name).seenAt = began.Add(tt.newAt)
			if got := n.Tag(tag, tt.since).Relation; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestResolveDoesNotWaitForTheNameless(t *testing.T) {
	n := newNames(nil, report.New(func() {}))
	n.store([]nameKey{roleKey(10)}, nil)
	n.resolve(t.Context(), []nameKey{roleKey(10)}, time.Hour, nil) // would not return

	done := make(chan struct{})
	go func() { n.resolve(t.Context(), []nameKey{roleKey(11)}, time.Hour, nil); close(done) }()
	<-n.wake
	n.store(n.take(), map[nameKey]string{roleKey(11): "x"})
	n.roundDone()
	<-done
	n.resolve(t.Context(), []nameKey{roleKey(12)}, time.Millisecond, nil) // nobody answers
	end := make(chan struct{})
	close(end)
	n.resolve(t.Context(), []nameKey{roleKey(12)}, time.Hour, end) // nobody will
}

func TestHashes(t *testing.T) {
	s := snapshot.Session{Pid: 5, BackendStart: 7}
	other := s
	other.State = snapshot.StateIdle
	if procKey(&s) != procKey(&other) {
		t.Error("the key of a process changes with what it does")
	}
	other.BackendStart = 8
	if procKey(&s) == procKey(&other) {
		t.Error("a pid that was used again has the same key")
	}
	if procKey(&snapshot.Session{Prepared: 5}) == procKey(&snapshot.Session{Prepared: 6}) {
		t.Error("two prepared transactions have the same key")
	}
	// Stored in tables that outlive this release.
	if got, want := procKey(&s), int64(-5597595399062647946); got != want {
		t.Errorf("procKey = %d, want %d", got, want)
	}
	a, b := newHash("x"), newHash("x")
	a.texts("ab", "c")
	b.texts("a", "bc")
	if a.sum() == b.sum() {
		t.Error("parts run into each other")
	}
	if lockKey(lockmgr.Tag{Field1: 1}) == lockKey(lockmgr.Tag{Field2: 1}) {
		t.Error("two locks have the same key")
	}
}

// The server refuses payloads of 8000 bytes.
func TestNotificationFits(t *testing.T) {
	a := history.Anomaly{WaitEventType: "Extension", StartedAt: 1, DetectedAt: 2, EndedAt: 3, End: history.EndSwitchedOff,
		Observed: 1e6, Expected: 1e6, Band: 1e6, LeadingEvent: strings.Repeat("\x01\xff", 5000), RootPid: 1 << 30}
	got, err := payload(strings.Repeat("\x01", 5000), &a)
	if err != nil || len(got) >= 8000 || !json.Valid([]byte(got)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	a.LeadingEvent = "LWLock:é𝄞"
	if got, err = payload("n", &a); err != nil || !strings.Contains(got, `"leading_event":"LWLock:\u00e9\ud834\udd1e"`) {
		t.Errorf("%s, %v", got, err)
	}
}
