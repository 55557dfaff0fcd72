package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgservicefile"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

	// silence is how long a connection to another machine may go without any sign
	// of life from there: without a bound the kernel would try for a quarter of an
	// hour, and all that time facts would be dropped though the way may long be free
	// again. It is past the timeout that the server keeps for a statement, and well
	// within the minute for which facts are kept.
	silence = 35 * time.Second
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

// route is what a target comes down to.
type route struct {
	*pgx.ConnConfig
	here       bool   // leads into the server the worker belongs to, as far as is known before
	noPassword string // why there is no password to give, "" when there is one
}

// servers names where r leads, "" for this server.
func (r *route) servers() string {
	if r.here {
		return ""
	}
	all := []string{fmt.Sprintf("host %s port %d", r.Host, r.Port)}
	for _, f := range r.Fallbacks { // with and without TLS are two
		if name := fmt.Sprintf("host %s port %d", f.Host, f.Port); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}

// timeout bounds connecting: in a list of hosts one that does not answer must not
// use up the time of the others.
func (r *route) timeout() time.Duration {
	for _, f := range r.Fallbacks {
		if f.Host != r.Host || f.Port != r.Port {
			return dialTimeout * time.Duration(1+len(r.Fallbacks))
		}
	}
	return dialTimeout
}

// attempt is an error with what was tried, for messages.
type attempt struct {
	err            error
	database, user string
	server         string // "" for this one
}

// at names the server, unless it is this one.
func (a *attempt) at() string {
	if a.server == "" {
		return ""
	}
	return " on " + a.server
}

func (a *attempt) Error() string { return a.err.Error() }
func (a *attempt) Unwrap() error { return a.err }

// errNoSocket: no way into this server could be found.
var errNoSocket = errors.New("no socket directory and no listen address to connect to")

// errNoPassword: the server asks for a password and we have none.
var errNoPassword = errors.New("no password to give")

// errTemplate: a session in such a database makes CREATE DATABASE fail.
var errTemplate = errors.New("the database is a template")

// errOtherServer: what answered is not the server the worker belongs to.
var errOtherServer = errors.New("another server answered")

// errStandby: what answered cannot be written to.
var errStandby = errors.New("the server is in recovery")

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
// ALTER ROLE or ALTER DATABASE say. They exist on every server, and anybody may
// set them.
func sessionParams(t *target) map[string]string {
	p := map[string]string{
		"application_name":                    t.name,
		"search_path":                         "pg_catalog",
		"client_encoding":                     "UTF8",
		"client_min_messages":                 "error", // nobody reads them
		"datestyle":                           "ISO",
		"intervalstyle":                       "postgres",
		"bytea_output":                        "hex", // pgx reads no other: without it an earlier life's detector stops the writer
		"timezone":                            "UTC",
		"quote_all_identifiers":               "off", // names are to be kept as people write them
		"default_transaction_read_only":       "off",
		"default_transaction_isolation":       "read committed",
		"default_transaction_deferrable":      "off",
		"synchronous_commit":                  "local", // a lost standby must not stop the writer
		"idle_in_transaction_session_timeout": "10s",   // nothing of ours stays open for long
		"row_security":                        "off",   // an error is better than rows missing
		"vacuum_cost_delay":                   "0",     // holds up ANALYZE, and with it the writer
		"debug_print_parse":                   "off",   // these write each statement to the server log
		"debug_print_rewritten":               "off",
		"debug_print_plan":                    "off",
		"log_parameter_max_length_on_error":   "0", // parameters are rows: statements of others among them
	}
	for k, v := range t.params {
		p[k] = v
	}
	return p
}

// versionParams are more of them, which not every server has: for the start
// where the version is known.
func versionParams(version int) map[string]string {
	p := map[string]string{
		"jit":                  "off",
		"idle_session_timeout": "0",
	}
	if version >= 170000 {
		p["transaction_timeout"] = "0"
	}
	return p
}

// quietParams keep our statements out of other people's statistics and logs.
// They need a superuser, or somebody who was granted SET on them.
func quietParams() map[string]string {
	return map[string]string{
		"log_statement":               "none",
		"log_duration":                "off",
		"log_min_duration_statement":  "-1",
		"log_min_duration_sample":     "-1",
		"log_transaction_sample_rate": "0",
		"log_parser_stats":            "off",
		"log_planner_stats":           "off",
		"log_executor_stats":          "off",
		"log_statement_stats":         "off",
		// What fails is told by the worker, once: a lock that is not free would
		// else be an ERROR in the server log with each try.
		"log_min_messages":              "log",
		"log_min_error_statement":       "panic",
		"pg_stat_statements.track":      "none",
		"auto_explain.log_min_duration": "-1",
	}
}

// guardParams keep other people's code out of our sessions, which are mostly a
// superuser's: as a replica, a session fires no trigger and no rule but those that
// the owner of a table has made ALWAYS, whoever may have been granted TRIGGER on
// it after checkTables has looked. They need the same rights as quietParams.
func guardParams(version int) map[string]string {
	p := map[string]string{"session_replication_role": "replica"}
	if version >= 170000 {
		p["event_triggers"] = "off" // a broken login trigger would lock us out
	}
	return p
}

// explicit is every keyword for which pgx has a default of its own, from the
// environment (PG*), the home directory or a guess: none of them is ours.
func explicit(t *target, srv *config.Server) map[string]string {
	user := srv.BootstrapRole
	if user == "" {
		user = "postgres"
	}
	return map[string]string{
		"dbname": t.database, "user": user, "password": "", "passfile": "", "servicefile": "",
		"sslcert": "", "sslkey": "", "sslrootcert": "", "sslpassword": "", "sslcertmode": "allow", "sslsni": "1",
		"sslnegotiation": "postgres", "channel_binding": "prefer", "require_auth": "",
		"min_protocol_version": "", "max_protocol_version": "",
		"target_session_attrs": "any", "connect_timeout": strconv.Itoa(int(dialTimeout / time.Second)),
	}
}

// connConfig makes everything explicit: pgx's defaults would take port 5432,
// the home directory and PG* variables of an environment that is not ours.
func connConfig(t *target, srv *config.Server) (*route, error) {
	given, err := keywords(t.conninfo)
	if err != nil {
		return nil, err
	}
	r := &route{}
	all := explicit(t, srv)
	switch host := given["host"]; {
	case host == "":
		if all["host"], err = localHost(srv); err != nil {
			return nil, err
		}
		all["port"], all["sslmode"] = strconv.Itoa(srv.Port), "disable"
	case t.local || strings.HasPrefix(host, "/"):
		// This machine: of all servers on it, ours is the one whose port is known.
		all["port"], all["sslmode"] = strconv.Itoa(srv.Port), "prefer"
	default:
		// Another machine: the port and TLS mode that libpq would take.
		all["port"], all["sslmode"] = "5432", "prefer"
	}
	maps.Copy(all, given)
	r.here = t.local || all["port"] == strconv.Itoa(srv.Port) &&
		(given["host"] == "" || slices.Contains(srv.SocketDirectories, all["host"]))
	if path := all["passfile"]; path != "" {
		if r.noPassword = passfileProblem(path); r.noPassword != "" {
			all["passfile"] = "" // libpq would not take it either
		} else {
			r.noPassword = "no line of " + path + " fits"
		}
	} else {
		r.noPassword = "neither passfile nor password is set in " + t.setting
	}
	if t.force {
		all["dbname"] = t.database
	}
	cc, err := parse(all)
	if err != nil {
		return nil, blame(given, all, t.setting, err)
	}
	// What pgx does not know it would send to the server, from where it is
	// replaced below: a misspelt host must not end in our own tables.
	for _, key := range slices.Sorted(maps.Keys(cc.RuntimeParams)) {
		if slices.Contains(unmetKeywords, key) || key == "gssencmode" && cc.RuntimeParams[key] == "require" {
			return nil, fmt.Errorf("%w: %s in %s asks for a check that this client cannot make", errConnInfo, key, t.setting)
		}
		if !slices.Contains(ignoredKeywords, key) {
			return nil, fmt.Errorf("%w: unknown keyword %q in %s", errConnInfo, key, t.setting)
		}
	}
	cc.RuntimeParams = sessionParams(t)
	if r.here {
		maps.Copy(cc.RuntimeParams, versionParams(srv.VersionNum))
	} else {
		cc.DialFunc = patientDial
	}
	if t.superuser(srv) {
		maps.Copy(cc.RuntimeParams, quietParams())
		maps.Copy(cc.RuntimeParams, guardParams(srv.VersionNum))
		cc.RuntimeParams["role"] = "none" // ALTER ROLE ... SET role is for others
	}
	// Statements are few and fixed, but tables may be dropped and made again
	// under them: nothing is prepared beyond one use.
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	cc.StatementCacheCapacity = 0
	cc.DescriptionCacheCapacity = 0
	if cc.Password != "" {
		r.noPassword = ""
	}
	r.ConnConfig = cc
	return r, nil
}

func parse(keywords map[string]string) (*pgx.ConnConfig, error) {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(keywords)) {
		fmt.Fprintf(&b, "%s=%s ", key, quoteValue(keywords[key]))
	}
	return pgx.ParseConfig(b.String())
}

// blame says which of the given keywords pgx does not take in all, where its
// own error shows them all: the one without which there is nothing to complain of.
func blame(given, all map[string]string, setting string, err error) error {
	keys := slices.Sorted(maps.Keys(given))
	if i := slices.Index(keys, "host"); i >= 0 {
		keys = append(slices.Delete(keys, i, i+1), "host") // without one nobody asks for TLS
	}
	for _, key := range keys {
		rest := maps.Clone(all)
		delete(rest, key)
		if _, other := parse(rest); other != nil {
			continue
		}
		var why string
		if cause := errors.Unwrap(err); cause != nil {
			why = ": " + cause.Error()
		}
		return fmt.Errorf("%w: %s is no good value in %s%s", errConnInfo, shown(key, given[key]), setting, why)
	}
	return fmt.Errorf("%w: more than one value in %s is not good", errConnInfo, setting)
}

// shown is key=value as a message may have it. What stands for the port of a URL
// may be a piece of a password that has a slash in it.
func shown(key, value string) string {
	if strings.Contains(key, "password") || key == "port" && strings.Trim(value, "0123456789,-") != "" {
		return key
	}
	return key + "=" + value
}

// destination is the node, server and database that c leads to, however that
// is spelt; "" when that is not known before connecting.
func destination(c *config.Config) string {
	t := writerTarget(c)
	r, err := connConfig(&t, &c.Server)
	if err != nil {
		return ""
	}
	d := fmt.Sprintf("%q %q %s:%d", c.NodeName, r.Database, r.Host, r.Port)
	for _, f := range r.Fallbacks {
		d += fmt.Sprintf(" %s:%d", f.Host, f.Port)
	}
	return d
}

// passfileProblem says why a password file is not used, as libpq has it, ""
// when it is.
func passfileProblem(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "passfile: " + err.Error()
	case !info.Mode().IsRegular():
		return "passfile " + path + " is not a plain file"
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Sprintf("passfile %s is open to others (mode %#o): make it 0600", path, info.Mode().Perm())
	}
	if file, err := os.Open(path); err != nil {
		return "passfile: " + err.Error()
	} else {
		_ = file.Close()
	}
	return ""
}

// ignoredKeywords are keywords of libpq that do not matter here: what they ask
// for is set by ourselves, or has no counterpart in pgx. hostaddr is not among
// them, since leaving it out would lead to another server.
var ignoredKeywords = []string{
	"application_name", "fallback_application_name", "client_encoding", "timezone", "options", "replication",
	"keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
	"gssencmode", "gsslib", "gssdelegation", "krbsrvname", "krbspn", "sslcompression",
	"sslcertmode", "min_protocol_version", "max_protocol_version",
	"ssl_max_protocol_version", "load_balance_hosts", "scram_client_key", "scram_server_key",
}

// unmetKeywords ask for checks of the other side that pgx does not make. Whoever
// asks for one must not be left believing that it is made.
var unmetKeywords = []string{"requirepeer", "sslcrl", "sslcrldir"}

// patientDial connects in such a way that a peer, or a way to it, that is gone
// without a word is noticed within the time of silence. A server process that
// stands still is another matter: its machine answers for it.
func patientDial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 5}}
	d.Control = func(network, _ string, c syscall.RawConn) error {
		if !strings.HasPrefix(network, "tcp") {
			return nil
		}
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(silence/time.Millisecond))
		})
		return errors.Join(err, failed)
	}
	return d.DialContext(ctx, network, address)
}

// tcpUserTimeout is TCP_USER_TIMEOUT of Linux, which package syscall lacks.
const tcpUserTimeout = 18

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

// keywords takes conninfo apart, with the keywords of its service in it: what it
// leaves out, or empty, is to come from us.
func keywords(conninfo string) (map[string]string, error) {
	parse := parsePairs
	if strings.HasPrefix(conninfo, "postgres://") || strings.HasPrefix(conninfo, "postgresql://") {
		parse = parseURL
	}
	given, err := parse(conninfo)
	if err != nil {
		return nil, err
	}
	if err := addService(given); err != nil {
		return nil, err
	}
	if database, ok := given["database"]; ok { // pgx's own word for it
		delete(given, "database")
		given["dbname"] = database
	}
	maps.DeleteFunc(given, func(_, value string) bool { return value == "" })
	if host := given["host"]; host != "" && slices.Contains(strings.Split(host, ","), "") {
		return nil, fmt.Errorf("%w: an empty name in the list of hosts", errConnInfo)
	}
	return given, nil
}

// addService puts in what the service says and conninfo does not.
func addService(given map[string]string) error {
	name, path := given["service"], given["servicefile"]
	delete(given, "service")
	delete(given, "servicefile")
	if name == "" {
		return nil
	}
	if path == "" {
		return fmt.Errorf("%w: service=%s needs servicefile=...", errConnInfo, name)
	}
	file, err := pgservicefile.ReadServicefile(path)
	if err != nil {
		return fmt.Errorf("%w: servicefile: %w", errConnInfo, err)
	}
	service, err := file.GetService(name)
	if err != nil {
		return fmt.Errorf("%w: servicefile %s has no service %q", errConnInfo, path, name)
	}
	for key, value := range service.Settings {
		if _, ok := given[key]; !ok {
			given[key] = value
		}
	}
	return nil
}

// parseURL reads the form postgresql://user:password@host:port/dbname?key=value
// by libpq's rules, which are not those of net/url: %2F in a host is the slash
// of a socket directory, hosts may be a list, + is no space. Errors do not
// quote the text, which may hold a password.
func parseURL(conninfo string) (map[string]string, error) {
	_, rest, _ := strings.Cut(conninfo, "://")
	given := make(map[string]string)
	// An @ before the first slash ends the user and the password.
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		given["user"], given["password"], _ = strings.Cut(rest[:i], ":")
		rest = rest[i+1:]
	}
	var hosts, ports []string
	for more := true; more; {
		var host, port string
		if after, ok := strings.CutPrefix(rest, "["); ok { // an IPv6 address
			if host, rest, ok = strings.Cut(after, "]"); !ok || host == "" || rest != "" && !strings.Contains(":,/?", rest[:1]) {
				return nil, fmt.Errorf("%w: the [ in the URL is not followed by an address and ]", errConnInfo)
			}
		} else {
			host, rest = cutBefore(rest, ":,/?")
		}
		if after, ok := strings.CutPrefix(rest, ":"); ok {
			port, rest = cutBefore(after, ",/?")
		}
		hosts, ports = append(hosts, host), append(ports, port)
		rest, more = strings.CutPrefix(rest, ",")
	}
	given["host"] = strings.Join(hosts, ",")
	if given["port"] = strings.Join(ports, ","); strings.Trim(given["port"], ",") == "" {
		given["port"] = ""
	}
	path, params, _ := strings.Cut(rest, "?")
	given["dbname"] = strings.TrimPrefix(path, "/")
	for key, value := range given {
		var err error
		if given[key], err = percentDecode(value, key); err != nil {
			return nil, err
		}
	}
	for params != "" {
		var param string
		param, params, _ = strings.Cut(params, "&")
		key, value, ok := strings.Cut(param, "=")
		if !ok || strings.Contains(value, "=") {
			return nil, fmt.Errorf("%w: the URL has a parameter that is not of the form key=value", errConnInfo)
		}
		key, err := percentDecode(key, "a key")
		if err != nil {
			return nil, err
		}
		if value, err = percentDecode(value, key); err != nil {
			return nil, err
		}
		if key == "ssl" && value == "true" { // as JDBC has it
			key, value = "sslmode", "require"
		}
		given[key] = value
	}
	return given, nil
}

// cutBefore cuts s before the first of chars.
func cutBefore(s, chars string) (before, rest string) {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// percentDecode decodes a part of a URL; what says which, for the error.
func percentDecode(s, what string) (string, error) {
	decoded, err := url.PathUnescape(s)
	if err != nil || strings.Contains(decoded, "\x00") {
		return "", fmt.Errorf("%w: a %% that is not followed by two hexadecimal digits of a character, in %s of the URL", errConnInfo, what)
	}
	return decoded, nil
}

// parsePairs reads the form key=value key='value', by libpq's rules. Errors do
// not quote the text, which may hold a password.
func parsePairs(conninfo string) (map[string]string, error) {
	const space = " \t\n\r\v\f"
	given := make(map[string]string)
	for rest := strings.TrimLeft(conninfo, space); rest != ""; rest = strings.TrimLeft(rest, space) {
		key, after, ok := strings.Cut(rest, "=")
		key = strings.TrimRight(key, space)
		if !ok || key == "" || strings.ContainsAny(key, space) {
			return nil, fmt.Errorf("%w: a keyword without = after %d bytes", errConnInfo, len(conninfo)-len(rest))
		}
		after = strings.TrimLeft(after, space)
		quoted := strings.HasPrefix(after, "'")
		if quoted {
			after = after[1:]
		}
		var value strings.Builder
		i := 0
		for ; i < len(after); i++ {
			c := after[i]
			if quoted && c == '\'' || !quoted && strings.IndexByte(space, c) >= 0 {
				break
			}
			if c == '\\' {
				if i++; i == len(after) {
					break
				}
			}
			value.WriteByte(after[i])
		}
		if quoted {
			if i >= len(after) {
				return nil, fmt.Errorf("%w: the quoted value of %s does not end", errConnInfo, key)
			}
			i++
		}
		given[key], rest = value.String(), after[min(i, len(after)):]
	}
	return given, nil
}

func quoteValue(v string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(v) + "'"
}

// dial connects, makes the session ours and makes sure of the server.
func dial(ctx context.Context, d *door, t target, c *config.Config) (*pgx.Conn, error) {
	r, err := connConfig(&t, &c.Server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout())
	defer cancel()
	conn, err := reach(ctx, d, r)
	if err == nil {
		if err = settle(ctx, conn, r, &t, c); err != nil {
			hangUp(conn)
		}
	}
	if err != nil {
		return nil, &attempt{err: err, database: r.Database, user: r.User, server: r.servers()}
	}
	return conn, nil
}

// What is known of a connection beside it, in the place that it has for that.
const (
	pooledKey  = "pg_lock_history pooled"
	serversKey = "pg_lock_history servers"
)

// isPooled reports whether a pooler stands between, which may give each
// transaction to another session of the server.
func isPooled(conn *pgx.Conn) bool {
	pooled, _ := conn.PgConn().CustomData()[pooledKey].(bool)
	return pooled
}

// serversOf names the server at the other end, "" for this one.
func serversOf(conn *pgx.Conn) string {
	servers, _ := conn.PgConn().CustomData()[serversKey].(string)
	return servers
}

// reach connects, through the door when the way leads into this server.
func reach(ctx context.Context, d *door, r *route) (*pgx.Conn, error) {
	if r.here {
		leave, err := d.enter(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	conn, err := pgx.ConnectConfig(ctx, r.ConnConfig)
	if sqlState(err) == "08P01" && !r.here {
		// A pooler takes none but a few start-up parameters. The others are set in each transaction.
		few := r.ConnConfig.Copy()
		few.RuntimeParams = map[string]string{"application_name": r.RuntimeParams["application_name"], "client_encoding": "UTF8"}
		if conn, err = pgx.ConnectConfig(ctx, few); err == nil {
			conn.PgConn().CustomData()[pooledKey] = true
		}
	}
	if err == nil {
		conn.PgConn().CustomData()[serversKey] = r.servers()
	}
	if err == nil && r.here {
		d.remember(conn.PgConn().PID())
	}
	if sqlState(err) == "28P01" && r.noPassword != "" {
		return nil, fmt.Errorf("%w (%s): %w", errNoPassword, r.noPassword, err)
	}
	return conn, err
}

// settle does what could not be done with start-up parameters, and looks where
// we are.
func settle(ctx context.Context, conn *pgx.Conn, r *route, t *target, c *config.Config) error {
	// Such a database holds any bytes; the server would refuse those that are
	// no UTF-8, and with them the whole answer.
	if t.raw && conn.PgConn().ParameterStatus("server_encoding") == "SQL_ASCII" {
		if _, err := conn.Exec(ctx, `SET client_encoding TO 'SQL_ASCII'`); err != nil {
			return fmt.Errorf("set the encoding: %w", err)
		}
	}
	var start time.Time
	var template, recovers bool
	var patience string
	err := conn.QueryRow(ctx, `
		SELECT pg_catalog.pg_postmaster_start_time(), d.datistemplate, pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('lock_timeout')
		  FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()`).Scan(&start, &template, &recovers, &patience)
	if err != nil {
		return fmt.Errorf("ask for the start time of the server: %w", err)
	}
	if !r.here && patience != t.params["lock_timeout"] { // a pooler that was told to ignore them
		conn.PgConn().CustomData()[pooledKey] = true
	}
	if !t.superuser(&c.Server) && !isPooled(conn) {
		params := quietParams()
		maps.Copy(params, guardParams(170000)) // what the server does not know is left out
		if !r.here {
			maps.Copy(params, versionParams(170000))
		}
		if err := setParams(ctx, conn, params, false); err != nil {
			return err
		}
	}
	switch {
	case recovers && t.name == writerName:
		return errStandby
	case r.here && c.Server.PostmasterStart != 0 && snapshot.FromTime(start) != c.Server.PostmasterStart:
		return fmt.Errorf("%w: started %s, ours %s", errOtherServer,
			start.UTC().Format(time.RFC3339Nano), c.Server.PostmasterStart.Time().Format(time.RFC3339Nano))
	case template:
		return errTemplate
	}
	return nil
}

// transactionParams are all that a session of t sets otherwise.
func transactionParams(t *target) map[string]string {
	params := sessionParams(t)
	maps.Copy(params, quietParams())
	maps.Copy(params, guardParams(170000))
	maps.Copy(params, versionParams(170000))
	delete(params, "application_name") // these the pooler itself takes care of
	delete(params, "client_encoding")
	return params
}

// setParams sets what the role may set of params, for the session or the
// transaction.
func setParams(ctx context.Context, q interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, params map[string]string, local bool) error {
	names, values := make([]string, 0, len(params)), make([]string, 0, len(params))
	for k, v := range params {
		names, values = append(names, k), append(values, v)
	}
	_, err := q.Exec(ctx, `
		SELECT pg_catalog.set_config(s.name, v.value, $3::bool)
		  FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) AS v(name, value)
		  JOIN pg_catalog.pg_settings AS s ON pg_catalog.lower(s.name) = v.name
		 WHERE s.context = 'user'
		    OR s.context = 'superuser' AND pg_catalog.has_parameter_privilege(s.name, 'SET')`,
		names, values, local)
	if err != nil {
		return fmt.Errorf("set session parameters: %w", err)
	}
	return nil
}

// checkAlive reads, without waiting, whether the server has ended the session
// while we had no use for it. Whoever finds that out by writing to it has pgx
// send a cancel request after it, of which the server complains in its log.
func checkAlive(conn *pgx.Conn) error {
	if conn.IsClosed() {
		return net.ErrClosed
	}
	return conn.PgConn().CheckConn()
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
