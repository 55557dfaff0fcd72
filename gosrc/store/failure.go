package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
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
	StateSlots     = "no free client slot"
	StatePublished = "published"
	StateHeld      = "ring held"
	StateStandby   = "standby"
	StateStopped   = "stopped"
)

// maxDetailBytes fits PlhStatus.last_error.
const maxDetailBytes = 500

// Our own reasons to fail.
var (
	errNoExtension = errors.New("extension pg_lock_history does not exist")
	errNotOurs     = errors.New("history tables cannot be trusted")
	errNodeTaken   = errors.New("node name is used by another server")
	errConnInfo    = errors.New("not a connection string")
	errChanged     = errors.New("run row was changed by somebody else")
)

// versionError: the extension in the database is not of our release.
type versionError struct{ extension, libraries string }

func (e *versionError) Error() string {
	return fmt.Sprintf("extension pg_lock_history has version %s, the libraries have %s", e.extension, e.libraries)
}

// older reports whether version a comes before b; versions are numbers with dots.
func older(a, b string) bool {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		m, errM := strconv.Atoi(x)
		n, errN := strconv.Atoi(y)
		if errM != nil || errN != nil {
			return strings.Compare(x, y)
		}
		return m - n
	}) < 0
}

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
	where := attempt{database: c.Database, user: "the writer's"}
	if tried := (*attempt)(nil); errors.As(err, &tried) {
		where.database, where.user, where.server = tried.database, strconv.Quote(tried.user), tried.server
	}

	var version *versionError
	var published *publishedError
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, errNoSocket):
		set(StateConnect, "no socket", "found no way to connect to this server",
			"Check unix_socket_directories and listen_addresses, or set "+t.setting+".")
	case errors.Is(err, errOtherServer):
		set(StateConnect, "other server", "the server that answered is not the one this worker belongs to",
			"Check unix_socket_directories and port of both servers, or set "+t.setting+".")
	case errors.Is(err, errNoSpareSlot):
		set(StateSlots, "no slot", "no client slot is free beyond those reserved, the writer waits for one",
			"End a session, or raise max_connections. "+kept)
	case errors.Is(err, errCrowd):
		set(StateWriting, "crowd", "sessions of the worker do not end, it makes no more of them",
			"See what keeps the processes with application_name \"pg_lock_history ...\": a disk that does not answer, or SIGSTOP. "+kept)
	case errors.Is(err, errNoAnswer):
		set(StateConnect, "no answer", "the worker is too busy to connect", "It tries again. "+kept)
	case errors.Is(err, errStandby) && where.server == "":
		set(StateStandby, "standby", "this server is a standby, no history is written",
			"blocking_now, recent_waits() and recent_load() work here. To keep a history set "+t.setting+" to the primary or to another server. After a promotion it is kept here.")
		m.Level, m.Detail = report.Info, ""
	case errors.Is(err, errStandby):
		set(StateConnect, "standby elsewhere", "the server that keeps the history is a standby, it cannot be written to",
			"Name its primary in "+t.setting+"; a list of hosts with target_session_attrs=read-write finds it by itself. "+kept)
	case errors.Is(err, errTemplate):
		set(StateConnect, "template", fmt.Sprintf("database %q%s is a template, a session in it would make CREATE DATABASE fail", where.database, where.at()),
			"Choose another database, with "+t.databaseSetting()+".")
		m.Detail = ""
	case errors.Is(err, errNoPassword):
		set(StateConnect, "no password", "the server asks role "+where.user+" for a password, and the writer has none",
			"Set "+t.setting+" to user=... passfile=..., or let the role in without one by pg_hba.conf.")
	case errors.As(err, &published):
		set(StatePublished, "published", published.Error()+", nothing is written",
			"Keep the history in a database without such a publication (pg_lock_history.database), drop it or have it name its tables, "+
				"or set pg_lock_history.allow_published when the subscribers have the tables. "+kept)
		m.Detail = ""
	case errors.As(err, &version) && older(version.extension, version.libraries):
		set(StateVersion, "version older", version.Error(),
			"Run ALTER EXTENSION pg_lock_history UPDATE in database "+where.database+where.at()+
				where.ifElsewhere(", once version "+version.libraries+" is installed there")+".")
		m.Detail = ""
	case errors.As(err, &version):
		set(StateVersion, "version newer", version.Error(),
			"Install the libraries of version "+version.extension+where.ifElsewhere(" on this server")+" and restart the server.")
		m.Detail = ""
	case errors.Is(err, errNotOurs):
		set(StateRefused, "not ours", "history tables are not as CREATE EXTENSION made them, nothing is written",
			asMade)
	case errors.Is(err, errNodeTaken):
		set(StateRefused, "node taken", "pg_lock_history.node_name is used by another server in this history",
			"Set pg_lock_history.node_name to a name of its own.")
	case errors.Is(err, errConnInfo):
		set(StateConnect, "conninfo", t.setting+" cannot be used",
			"It takes the keywords of a libpq connection string: host, port, dbname, user, passfile, ... (host instead of hostaddr; service together with servicefile).")
	case errors.As(err, &pg):
		explainState(pg, t, &where, set)
		m.Detail = cut(fmt.Sprintf("%s: %s (SQLSTATE %s)", action, pg.Message, pg.Code), maxDetailBytes)
	case isCertificate(err):
		set(StateConnect, "certificate", "the certificate of the server that keeps the history is not accepted",
			"Check sslrootcert and sslmode in "+t.setting+": the certificate must be signed by what sslrootcert has, for verify-full for the name in host. "+kept)
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		set(StateWriting, "connection lost", "lost the connection to the history", "It is made again; facts are kept in memory meanwhile.")
	case errors.Is(err, os.ErrPermission):
		set(StateConnect, "socket permission", "may not use the socket of this server",
			"Check unix_socket_permissions and the socket directory, or set "+t.setting+".")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist), isNet(err):
		set(StateConnect, "unreachable", "cannot reach the server that keeps the history",
			where.orElsewhere("Check "+t.setting+"; when it is empty, unix_socket_directories, port and listen_addresses.",
				"Check "+t.setting+", and whether that server runs and lets this one in. After a promotion it may be wrong: empty means this server. "+kept))
	case errors.Is(err, context.DeadlineExceeded):
		set(StateWriting, "timeout", "the server that keeps the history does not answer", "Facts are kept in memory meanwhile.")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, pgconn.ErrConnClosed):
		set(StateWriting, "connection lost", "lost the connection to the history", "It is made again; facts are kept in memory meanwhile.")
	case action == actionConnect:
		set(StateConnect, "connect", "cannot connect to the server that keeps the history",
			"Check "+t.setting+", sslmode and its relatives too. "+kept)
	default:
		set(StateWriting, "other", "cannot write history", "Facts are kept in memory meanwhile; pg_lock_history.memory_limit bounds them.")
	}
	return f
}

// actionConnect is what is done until there is a session.
const actionConnect = "connect"

// ifElsewhere returns text when another server was tried.
func (a *attempt) ifElsewhere(text string) string { return a.orElsewhere("", text) }

// orElsewhere returns one of two texts: for this server, or for another one.
func (a *attempt) orElsewhere(here, elsewhere string) string {
	if a.server == "" {
		return here
	}
	return elsewhere
}

const asMade = "Undo what was changed by hand, or run DROP EXTENSION pg_lock_history and CREATE EXTENSION pg_lock_history, which begins a new history."

const kept = "Facts are kept in memory meanwhile; pg_lock_history.memory_limit bounds them."

// databaseSetting is where the DBA says in which database the history is.
func (t *target) databaseSetting() string {
	if t.conninfo != "" {
		return "dbname in " + t.setting
	}
	return "pg_lock_history.database"
}

func explainState(pg *pgconn.PgError, t *target, where *attempt, set func(state, key, text, hint string)) {
	switch code := pg.Code; {
	case code == "42501" && isFileError(pg): // EROFS, EACCES
		set(StateWriting, "files closed", "cannot write history, its files may not be written to",
			"Check the file system and the rights of the files that the server's message names. "+kept)
	case code == "28P01":
		set(StateConnect, "password", "the server does not take the password of role "+where.user,
			"Correct it in the file that passfile in "+t.setting+" names.")
	case code == "28000" && pg.Routine == "InitializeSessionUserId": // after authentication
		set(StateConnect, "no role", "role "+where.user+" does not exist or may not log in",
			"Create it with LOGIN"+where.at()+", or name another one by user in "+t.setting+".")
	case code == "28000":
		set(StateConnect, "auth", "the server does not let the writer in",
			where.orElsewhere("Add a line for local connections to pg_hba.conf, or set "+t.setting+" with user and passfile.",
				"Add a line for this server to pg_hba.conf"+where.at()+", or correct user, passfile and sslmode in "+t.setting+"."))
	case code == "3D000":
		set(StateConnect, "no database", fmt.Sprintf("database %q does not exist%s", where.database, where.at()),
			"Create it, or name one that exists by "+t.databaseSetting()+".")
	case code == "55000" && pg.Severity == "FATAL":
		set(StateConnect, "no connections", fmt.Sprintf("database %q%s does not accept connections", where.database, where.at()),
			"Choose a database that is no template and has datallowconn, with "+t.databaseSetting()+".")
	case code == "42501":
		set(StateRefused, "rights", "the writer's role lacks rights on the history",
			"As a superuser run lock_history.grant_writer() for the user in "+t.setting+", in database "+where.database+where.at()+".")
	case code == "55P03":
		set(StateWriting, "locked", "history tables are locked by somebody, waiting for them", kept)
	case code == "57014":
		set(StateWriting, "statement timeout", "writing history takes longer than 30 s, trying again", kept)
	case code == "53300":
		set(StateConnect, "too many", "the server has no connection to spare for the writer",
			"Raise max_connections there, or the connection limits of role and database. "+kept)
	case code == "53100":
		set(StateWriting, "disk full", "cannot write history, the disk is full",
			"Free space on the disk of the database that holds the history; pg_lock_history.max_size bounds what the history takes of it. "+kept)
	case code == "58030", code == "58P01", code[:2] == "XX" && code != "XX000": // EIO, ENOENT, damaged pages
		set(StateWriting, "damaged", "cannot write history, its files are damaged or missing",
			"Check the disk. TRUNCATE gives a table of schema lock_history new files; DROP EXTENSION and CREATE EXTENSION give them to all. "+kept)
	case code == "42703", code == "42804", code == "22P03", code == "428C9", code[:2] == "23":
		// A column or constraint is not ours: rows of ours fit into our tables.
		set(StateRefused, "changed", "history tables have been changed by hand and refuse the rows", asMade)
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

// isFileError reports whether the server failed on a file, rather than on a
// right of the role: both have one SQLSTATE.
func isFileError(pg *pgconn.PgError) bool {
	switch pg.File {
	case "md.c", "fd.c", "xlog.c", "slru.c", "relmapper.c", "copydir.c", "storage.c":
		return true
	}
	return false
}

// isCertificate: we do not take the other side for the one that is meant.
func isCertificate(err error) bool {
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	return errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &name)
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

// isNotLetIn: the server answers, and will not have the writer until somebody
// does something about it.
func isNotLetIn(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return pg.Code == "3D000" || strings.HasPrefix(pg.Code, "28") || pg.Code == "55000" && pg.Severity == "FATAL"
}

// serverEnds: the session was ended from the other side.
func serverEnds(err error) bool {
	switch sqlState(err) {
	case "57P01", "57P02", "57P03":
		return true
	}
	// The last one is what a transaction whose connection broke says of its ROLLBACK.
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || isNet(err) || errors.Is(err, pgconn.ErrConnClosed)
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
