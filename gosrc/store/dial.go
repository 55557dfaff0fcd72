package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/snapshot"
)

const (
	writerName = "pg_lock_history writer"
	namesName  = "pg_lock_history names"

	// dialTimeout bounds the way from dialing to a session. A server on the
	// same machine answers in milliseconds; a fleet's history server may be
	// far away.
	dialTimeout = 5 * time.Second
)

// target says where to connect and as what.
type target struct {
	setting  string // pg_lock_history.… that the DBA would change
	conninfo string // empty: this server, as the shim described it
	database string // unless conninfo names another
	name     string // application_name
	local    bool   // must turn out to be the server the worker belongs to
	force    bool   // database is meant, whatever conninfo names
	raw      bool   // names come as bytes where the database knows no encoding
	params   map[string]string
}

// superuser reports whether the session is sure to be one of this server's
// first superuser.
func (t *target) superuser(srv *config.Server) bool {
	return t.conninfo == "" && srv.BootstrapRole != ""
}

// errNoSocket: no way into this server could be found.
var errNoSocket = errors.New("no socket directory and no listen address to connect to")

// errOtherServer: what answered is not the server the worker belongs to.
var errOtherServer = errors.New("another server answered")

// writerTarget is where history is written.
func writerTarget(c *config.Config) target {
	return target{
		setting: "pg_lock_history.conninfo", conninfo: c.ConnInfo, database: c.Database,
		name: writerName, local: c.ConnInfo == "",
		params: map[string]string{
			"lock_timeout":      "1s",
			"statement_timeout": "30s",
		},
	}
}

// namesTarget is a database of this server in which names are looked up.
func namesTarget(c *config.Config, database string) target {
	return target{
		setting: "pg_lock_history.local_conninfo", conninfo: c.LocalConnInfo, database: database,
		name: namesName, local: true, force: true, raw: true,
		params: map[string]string{
			"lock_timeout":      "100ms",
			"statement_timeout": "300ms",
		},
	}
}

// sessionParams are set in every session of ours, whatever postgresql.conf,
// ALTER ROLE or ALTER DATABASE say. They exist on every server since 9.6.
func sessionParams(t *target) map[string]string {
	p := map[string]string{
		"application_name":                    t.name,
		"search_path":                         "pg_catalog",
		"client_encoding":                     "UTF8",
		"datestyle":                           "ISO",
		"timezone":                            "UTC",
		"default_transaction_read_only":       "off",
		"default_transaction_isolation":       "read committed",
		"default_transaction_deferrable":      "off",
		"synchronous_commit":                  "local", // a lost standby must not stop the writer
		"idle_in_transaction_session_timeout": "10s",   // nothing of ours stays open for long
		"row_security":                        "off",   // an error is better than rows missing
	}
	for k, v := range t.params {
		p[k] = v
	}
	return p
}

// quietParams keep our statements out of other people's statistics and logs,
// and hold what not every server has. They need a superuser or a version, so
// they are start-up parameters only where both are known.
func quietParams(version int) map[string]string {
	p := map[string]string{
		"jit":                        "off",
		"idle_session_timeout":       "0",
		"log_statement":              "none",
		"log_duration":               "off",
		"log_min_duration_statement": "-1",
		"pg_stat_statements.track":   "none",
	}
	if version >= 170000 {
		p["transaction_timeout"] = "0"
	}
	return p
}

// connConfig makes everything explicit: pgx's defaults would take port 5432,
// the home directory and PG* variables of an environment that is not ours.
func connConfig(t *target, srv *config.Server) (*pgx.ConnConfig, error) {
	host, err := localHost(srv)
	hosts := false // conninfo names a host of its own
	conninfo := t.conninfo
	if conninfo != "" {
		if conninfo, hosts, err = keywords(conninfo); err != nil {
			return nil, err
		}
	}
	if !hosts && err != nil {
		return nil, err
	}
	user := srv.BootstrapRole
	if user == "" {
		user = "postgres"
	}
	base := []string{
		"dbname", t.database, "user", user, "password", "", "passfile", "", "servicefile", "",
		"target_session_attrs", "any", "connect_timeout", strconv.Itoa(int(dialTimeout / time.Second)),
	}
	if hosts {
		// Another machine: the port and TLS mode that libpq would take.
		base = append(base, "port", "5432", "sslmode", "prefer")
	} else {
		base = append(base, "host", host, "port", strconv.Itoa(srv.Port), "sslmode", "disable")
	}
	var b strings.Builder
	for i := 0; i < len(base); i += 2 {
		fmt.Fprintf(&b, "%s=%s ", base[i], quoteValue(base[i+1]))
	}
	b.WriteString(conninfo)

	cc, err := pgx.ParseConfig(b.String())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t.setting, err)
	}
	// What pgx does not know it would send to the server, from where it is
	// replaced below: a misspelt host must not end in our own tables.
	for _, key := range slices.Sorted(maps.Keys(cc.RuntimeParams)) {
		if !slices.Contains(ignoredKeywords, key) {
			return nil, fmt.Errorf("%w: unknown keyword %q in %s", errConnInfo, key, t.setting)
		}
	}
	if t.force {
		cc.Database = t.database
	}
	cc.RuntimeParams = sessionParams(t)
	if t.superuser(srv) {
		for k, v := range quietParams(srv.VersionNum) {
			cc.RuntimeParams[k] = v
		}
	}
	// Statements are few and fixed, but tables may be dropped and made again
	// under them: nothing is prepared beyond one use.
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	cc.StatementCacheCapacity = 0
	cc.DescriptionCacheCapacity = 0
	return cc, nil
}

// ignoredKeywords are keywords of libpq that do not matter here: what they ask
// for is set by ourselves, or has no counterpart in pgx. hostaddr is not among
// them, since leaving it out would lead to another server.
var ignoredKeywords = []string{
	"application_name", "fallback_application_name", "client_encoding", "timezone", "options", "replication",
	"keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
	"gssencmode", "gsslib", "gssdelegation", "krbsrvname", "krbspn", "requirepeer", "sslcompression",
	"sslcrl", "sslcrldir", "sslcertmode", "min_protocol_version", "max_protocol_version",
	"ssl_max_protocol_version", "load_balance_hosts", "scram_client_key", "scram_server_key",
}

// localHost finds a way into this server: the first socket directory with its
// socket in it, else a listen address.
func localHost(srv *config.Server) (string, error) {
	for _, dir := range srv.SocketDirectories {
		if strings.HasPrefix(dir, "@") {
			return dir, nil // abstract socket: leaves no file to look for
		}
		if _, err := os.Stat(filepath.Join(dir, ".s.PGSQL."+strconv.Itoa(srv.Port))); err == nil {
			return dir, nil
		}
	}
	for _, addr := range strings.Split(srv.ListenAddresses, ",") {
		switch addr = strings.TrimSpace(addr); addr {
		case "":
		case "*", "0.0.0.0", "localhost":
			return "127.0.0.1", nil
		case "::":
			return "::1", nil
		default:
			return addr, nil
		}
	}
	return "", fmt.Errorf("%w (unix_socket_directories %q, port %d, listen_addresses %q)",
		errNoSocket, srv.SocketDirectories, srv.Port, srv.ListenAddresses)
}

// keywords returns conninfo in keyword form and whether it names a host. A URL
// is taken apart so that what it leaves out can come from us.
func keywords(conninfo string) (string, bool, error) {
	if !strings.HasPrefix(conninfo, "postgres://") && !strings.HasPrefix(conninfo, "postgresql://") {
		for _, key := range []string{"host", "service"} {
			if hasKeyword(conninfo, key) {
				return conninfo, true, nil
			}
		}
		return conninfo, false, nil
	}
	u, err := url.Parse(conninfo)
	if err != nil {
		// The error of url.Parse quotes the text, which may hold a password.
		return "", false, fmt.Errorf("%w: not a valid URL", errConnInfo)
	}
	var b strings.Builder
	add := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s=%s ", key, quoteValue(value))
		}
	}
	q := u.Query()
	add("host", u.Hostname())
	add("port", u.Port())
	add("dbname", strings.TrimPrefix(u.Path, "/"))
	add("user", u.User.Username())
	password, _ := u.User.Password()
	add("password", password)
	for key := range q {
		add(key, q.Get(key))
	}
	return b.String(), u.Hostname() != "" || q.Get("host") != "" || q.Get("service") != "", nil
}

// hasKeyword reports whether a keyword = value string sets key.
func hasKeyword(conninfo, key string) bool {
	for rest := conninfo; ; {
		i := strings.Index(rest, key)
		if i < 0 {
			return false
		}
		starts := i == 0 || rest[i-1] == ' ' || rest[i-1] == '\t' || rest[i-1] == '\n'
		after := strings.TrimLeft(rest[i+len(key):], " \t\n")
		if starts && strings.HasPrefix(after, "=") {
			return true
		}
		rest = rest[i+len(key):]
	}
}

func quoteValue(v string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(v) + "'"
}

// dial connects, makes the session ours and makes sure of the server.
func dial(ctx context.Context, t target, c *config.Config) (*pgx.Conn, error) {
	cc, err := connConfig(&t, &c.Server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return nil, err
	}
	if err := settle(ctx, conn, &t, c); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// settle does what could not be done with start-up parameters.
func settle(ctx context.Context, conn *pgx.Conn, t *target, c *config.Config) error {
	// Such a database holds any bytes; the server would refuse those that are
	// no UTF-8, and with them the whole answer.
	if t.raw && conn.PgConn().ParameterStatus("server_encoding") == "SQL_ASCII" {
		if _, err := conn.Exec(ctx, `SET client_encoding TO 'SQL_ASCII'`); err != nil {
			return fmt.Errorf("set the encoding: %w", err)
		}
	}
	if !t.superuser(&c.Server) {
		quiet := quietParams(170000)
		names, values := make([]string, 0, len(quiet)), make([]string, 0, len(quiet))
		for k, v := range quiet {
			names, values = append(names, k), append(values, v)
		}
		_, err := conn.Exec(ctx, `
			SELECT pg_catalog.set_config(s.name, v.value, false)
			  FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) AS v(name, value)
			  JOIN pg_catalog.pg_settings AS s ON s.name = v.name
			 WHERE s.context = 'user'
			    OR s.context = 'superuser' AND pg_catalog.current_setting('is_superuser') = 'on'`,
			names, values)
		if err != nil {
			return fmt.Errorf("set session parameters: %w", err)
		}
	}
	if !t.local || c.Server.PostmasterStart == 0 {
		return nil
	}
	var start time.Time
	if err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_postmaster_start_time()`).Scan(&start); err != nil {
		return fmt.Errorf("ask for the start time of the server: %w", err)
	}
	if snapshot.FromTime(start) != c.Server.PostmasterStart {
		return fmt.Errorf("%w: started %s, ours %s", errOtherServer,
			start.UTC().Format(time.RFC3339Nano), c.Server.PostmasterStart.Time().Format(time.RFC3339Nano))
	}
	return nil
}

// hangUp closes conn within a bound: a server that does not answer must not
// hold up whoever wants to be rid of it.
func hangUp(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	// The session is over either way; there is nothing to do about an error.
	_ = conn.Close(ctx)
}
