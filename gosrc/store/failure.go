package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/report"
)

// The states that Status shows. They fit PlhStatus.state.
const (
	StateStarting  = "starting"
	StateRecording = "recording"                    // all is well
	StateWaiting   = "waiting for CREATE EXTENSION" // 28 bytes of the 31 there are
	StateVersion   = "wrong extension version"
	StateWriting   = "writer blocked"
	StateConnect   = "cannot connect"
	StateRefused   = "tables refused"
	StateHeld      = "ring held"
	StateStopped   = "stopped"
)

// maxDetailBytes fits PlhStatus.last_error.
const maxDetailBytes = 500

// Our own reasons to fail.
var (
	errNoExtension = errors.New("extension pg_lock_history does not exist")
	errNotOurs     = errors.New("history tables cannot be trusted")
	errVersion     = errors.New("extension has another version")
	errNodeTaken   = errors.New("node name is used by another server")
	errConnInfo    = errors.New("not a connection string")
	errChanged     = errors.New("run row was changed by somebody else")
)

// failure is an error made ready for people.
type failure struct {
	state string
	msg   report.Message
}

// explain says what err means for the DBA. action says what was tried.
func explain(err error, action string, t *target, c *config.Config) failure {
	f := failure{state: StateWriting, msg: report.Message{Level: report.Warning}}
	m := &f.msg
	set := func(state, key, text, hint string) {
		f.state, m.Key, m.Text, m.Hint = state, "store: "+key, text, hint
	}
	m.Detail = cut(fmt.Sprintf("%s: %v", action, err), maxDetailBytes)

	var pg *pgconn.PgError
	var parse *pgconn.ParseConfigError
	switch {
	case errors.Is(err, errNoSocket):
		set(StateConnect, "no socket", "found no way to connect to this server",
			"Check unix_socket_directories and listen_addresses, or set "+t.setting+".")
	case errors.Is(err, errOtherServer):
		set(StateConnect, "other server", "the server that answered is not the one this worker belongs to",
			"Check unix_socket_directories and port of both servers, or set "+t.setting+".")
	case errors.Is(err, errVersion):
		set(StateVersion, "version", err.Error(),
			"Run ALTER EXTENSION pg_lock_history UPDATE in database "+c.Database+"; restart the server if the libraries are the older part.")
		m.Detail = ""
	case errors.Is(err, errNotOurs):
		set(StateRefused, "not ours", "history tables are not as CREATE EXTENSION made them, nothing is written",
			"Remove what was added, or run DROP EXTENSION pg_lock_history and CREATE EXTENSION pg_lock_history.")
	case errors.Is(err, errNodeTaken):
		set(StateRefused, "node taken", "pg_lock_history.node_name is used by another server in this history",
			"Set pg_lock_history.node_name to a name of its own.")
	case errors.Is(err, errConnInfo):
		set(StateConnect, "conninfo", t.setting+" cannot be used",
			"It takes the keywords of a libpq connection string: host, port, dbname, user, passfile, ... (host instead of hostaddr).")
	case errors.As(err, &pg):
		explainState(pg, t, c, set)
		m.Detail = cut(fmt.Sprintf("%s: %s (SQLSTATE %s)", action, pg.Message, pg.Code), maxDetailBytes)
	case errors.As(err, &parse):
		set(StateConnect, "conninfo", t.setting+" cannot be used",
			"It takes the form of a libpq connection string, host=... dbname=... user=...")
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		set(StateWriting, "connection lost", "lost the connection to the history", "It is made again; facts are kept in memory meanwhile.")
	case errors.Is(err, os.ErrPermission):
		set(StateConnect, "socket permission", "may not use the socket of this server",
			"Check unix_socket_permissions and the socket directory, or set "+t.setting+".")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist), isNet(err):
		set(StateConnect, "unreachable", "cannot reach the server that keeps the history",
			"Check "+t.setting+"; when it is empty, unix_socket_directories, port and listen_addresses.")
	case errors.Is(err, context.DeadlineExceeded):
		set(StateWriting, "timeout", "the server that keeps the history does not answer", "Facts are kept in memory meanwhile.")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		set(StateWriting, "connection lost", "lost the connection to the history", "It is made again; facts are kept in memory meanwhile.")
	default:
		set(StateWriting, "other", "cannot write history", "Facts are kept in memory meanwhile; pg_lock_history.memory_limit bounds them.")
	}
	return f
}

func explainState(pg *pgconn.PgError, t *target, c *config.Config, set func(state, key, text, hint string)) {
	const kept = "Facts are kept in memory meanwhile; pg_lock_history.memory_limit bounds them."
	switch code := pg.Code; {
	case code == "28P01", code == "28000":
		set(StateConnect, "auth", "the server does not let the writer in",
			"Add a line for local connections to pg_hba.conf, or set "+t.setting+" with user and passfile.")
	case code == "3D000" && c.ConnInfo != "" && t.setting == "pg_lock_history.conninfo":
		set(StateConnect, "no database", "the database named by pg_lock_history.conninfo does not exist",
			"Create it, or set dbname in pg_lock_history.conninfo to one that exists.")
	case code == "3D000":
		set(StateConnect, "no database", fmt.Sprintf("database %q of pg_lock_history.database does not exist", c.Database),
			"Create it, or set pg_lock_history.database to one that exists.")
	case code == "55000" && pg.Severity == "FATAL":
		set(StateConnect, "no connections", fmt.Sprintf("database %q of pg_lock_history.database does not accept connections", c.Database),
			"Choose a database that is no template and has datallowconn, with pg_lock_history.database.")
	case code == "42501":
		set(StateRefused, "rights", "the writer's role lacks rights on the history",
			"Let the user in "+t.setting+" be the owner of the extension, or GRANT it USAGE on schema lock_history and INSERT, SELECT, UPDATE, TRUNCATE on its tables.")
	case code == "55P03":
		set(StateWriting, "locked", "history tables are locked by somebody, waiting for them", kept)
	case code == "57014":
		set(StateWriting, "statement timeout", "writing history takes longer than 30 s, trying again", kept)
	case code == "53300":
		set(StateConnect, "too many", "no connection slot is free for the writer",
			"Raise max_connections or superuser_reserved_connections. "+kept)
	case code == "53100":
		set(StateWriting, "disk full", "cannot write history, the disk is full", "Free space on the disk. "+kept)
	case code == "25006":
		set(StateWriting, "read only", "the history database is read-only",
			"Set pg_lock_history.conninfo to a server that can be written to.")
	case code == "57P01", code == "57P02", code == "57P03":
		set(StateConnect, "server stops", "the server ended the writer's session or is not ready", kept)
	case code[:2] == "08":
		set(StateConnect, "connection", "lost the connection to the history", kept)
	default:
		set(StateWriting, "sqlstate "+code, "cannot write history", kept)
	}
}

func isNet(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) || errors.As(err, &dns)
}

// sqlState returns the SQLSTATE of err, "" when the server did not give one.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// isLocked: somebody holds a lock that we did not want to wait for any longer.
func isLocked(err error) bool { return sqlState(err) == "55P03" }

// isGone: the schema is not there (any more).
func isGone(err error) bool {
	switch sqlState(err) {
	case "3F000", "42P01":
		return true
	}
	return errors.Is(err, errNoExtension)
}

// isRefusal: the rows themselves are at fault, not the moment.
func isRefusal(err error) bool {
	switch code := sqlState(err); {
	case len(code) != 5:
		return false
	case code[:2] == "22", code[:2] == "23": // data exception, constraint violation
		return true
	default:
		return code == "54000" // a limit of the program
	}
}

// serverEnds: the session was ended from the other side.
func serverEnds(err error) bool {
	switch sqlState(err) {
	case "57P01", "57P02", "57P03":
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || isNet(err)
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 { // not within a character
		n--
	}
	return s[:n]
}
