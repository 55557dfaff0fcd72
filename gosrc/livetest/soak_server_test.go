package livetest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const soakConf = `
listen_addresses = ''
port = 5499
fsync = off
max_connections = 120
max_prepared_transactions = 30
max_locks_per_transaction = 128
shared_buffers = '64MB'
max_wal_size = '256MB'
checkpoint_timeout = '1min'
deadlock_timeout = '150ms'
restart_after_crash = on
allow_in_place_tablespaces = on
track_activity_query_size = '16kB'
log_line_prefix = '%m [%p] %b {%a} '
log_min_error_statement = panic
shared_preload_libraries = 'pg_lock_history'
`

// soakServer is the server of the soak: nobody else uses it, so anything may be
// done to it. As root it is run as user postgres.
type soakServer struct {
	t       *testing.T
	bin     string // of the installation
	dir     string // that the server's user may write to
	data    string
	sockets string
	log     string
	library string // what makes the disk bad
	control string // the file that says how

	mu       sync.Mutex
	killed   map[int]bool // that we have killed, by pid
	crashes  int          // that killing has caused
	restarts int          // that we have asked for
	workers  int          // ends of the worker that we have asked for
}

// newSoakServer makes the cluster. Where the installation is and what directory to
// use the environment says; "" for no such test.
func newSoakServer(t *testing.T, conf string) *soakServer {
	v := &soakServer{t: t, bin: os.Getenv("PLH_SOAK_BIN"), dir: os.Getenv("PLH_SOAK_DIR"), killed: make(map[int]bool)}
	v.data, v.log = filepath.Join(v.dir, "data"), filepath.Join(v.dir, "log")
	v.sockets = v.dir // its path is short
	v.library, v.control = filepath.Join(v.dir, "bad_disk.so"), filepath.Join(v.dir, "bad_disk.control")
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	v.must(exec.Command(compiler, "-O", "-D_LARGEFILE64_SOURCE", "-shared", "-fPIC", "-o", v.library,
		"../../test/perl/LockHistory/bad_disk.c", "-ldl"))
	v.must(v.command("initdb", "-D", v.data, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"))
	file, err := os.OpenFile(filepath.Join(v.data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(soakConf + "unix_socket_directories = '" + v.sockets + "'\n" + conf)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatalf("postgresql.conf: %v", err)
	}
	v.must(v.ctl("start"))
	return v
}

// command runs a program of the server as its user.
func (v *soakServer) command(program string, args ...string) *exec.Cmd {
	args = append([]string{"LD_PRELOAD=" + v.library, "PLH_BAD_DISK=" + v.control, filepath.Join(v.bin, program)}, args...)
	if os.Getuid() == 0 {
		args = append([]string{"-u", "postgres", "--", "env"}, args...)
		c := exec.Command("runuser", args...)
		c.Dir = v.dir
		return c
	}
	c := exec.Command("env", args...)
	c.Dir = v.dir
	return c
}

func (v *soakServer) ctl(verb string, args ...string) *exec.Cmd {
	return v.command("pg_ctl", append([]string{"-D", v.data, "-l", v.log, "-w", "-s", "-t", "60", verb}, args...)...)
}

func (v *soakServer) must(c *exec.Cmd) {
	v.t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		v.t.Fatalf("%s: %v\n%s", c, err, out)
	}
}

// dial connects a session. A soak is over when ctx is.
func (v *soakServer) dial(ctx context.Context, database, role, application string) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig("sslmode=disable")
	if err != nil {
		return nil, err
	}
	c.Host, c.Port, c.Database, c.User, c.Password = v.sockets, 5499, database, role, ""
	c.RuntimeParams = map[string]string{"application_name": application}
	c.ConnectTimeout = 5 * time.Second
	c.Fallbacks = nil
	c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return pgx.ConnectConfig(ctx, c)
}

// restart stops the server in the way that mode says and starts it again.
func (v *soakServer) restart(mode string) error {
	v.mu.Lock()
	v.restarts++
	v.mu.Unlock()
	for _, c := range []*exec.Cmd{v.ctl("stop", "-m", mode), v.ctl("start")} {
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", c, err, out)
		}
	}
	return nil
}

// kill ends a server process with SIGKILL, for which the server starts anew.
func (v *soakServer) kill(pid int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	v.killed[pid] = true
	v.crashes++
	return nil
}

// disk makes the disk fail in a way that bad_disk.c knows, for paths with that in
// them; "" makes it well.
func (v *soakServer) disk(how, path string) error {
	if how == "" {
		return os.Remove(v.control)
	}
	next := v.control + ".new"
	if err := os.WriteFile(next, []byte(how+" "+path+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(next, v.control)
}

// postmaster returns its pid, 0 when there is none.
func (v *soakServer) postmaster() int {
	content, err := os.ReadFile(filepath.Join(v.data, "postmaster.pid"))
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(content), "\n")
	pid, _ := strconv.Atoi(line)
	return pid
}

// workerMemory returns the anonymous memory of the worker in bytes, 0 when there is
// none just now.
func (v *soakServer) workerMemory() int64 {
	parent := fmt.Sprintf("\nPPid:\t%d\n", v.postmaster())
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		title, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if !strings.HasPrefix(string(title), "postgres: pg_lock_history") {
			continue // not ours; or it has ended
		}
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		if _, value, found := strings.Cut(string(status), "\nRssAnon:"); found && strings.Contains(string(status), parent) {
			kB, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return kB << 10
		}
	}
	return 0
}

// ---- the server log ----

// serverLog reads the log as it grows and knows what may be in it.
type serverLog struct {
	server *soakServer
	at     int64
	rest   string // of a line that is not whole yet

	crashes, stops, workerExits int
	told                        map[string]int // messages of ours
}

var (
	logLine   = regexp.MustCompile(`^\d{4}-\d\d-\d\d \S+ \S+ \[(\d+)\] ([^{]*) \{(.*)\} ([A-Z]+):  (.*)$`)
	logKilled = regexp.MustCompile(`\(PID (\d+)\) was terminated by signal (\d+)`)
	logExit   = regexp.MustCompile(`^background worker "pg_lock_history" \(PID \d+\) exited with exit code (\d+)$`)

	// What becomes of sessions when somebody ends them, or the server.
	mayBeFatal = regexp.MustCompile(`^(terminating (connection|background worker ".*"|autovacuum process|parallel worker) due to administrator command( at character \d+)?` +
		`|terminating connection due to (transaction|idle-in-transaction) timeout` +
		`|canceling authentication due to timeout` + // what the server says to one that is ended while it logs in
		`|terminating connection because protocol synchronization was lost` + // its client ended in the middle of a message
		`|the database system is (starting up|shutting down|in recovery mode|not yet accepting connections)` +
		`|could not open file "pg_tblspc/.*": (No space left on device|Read-only file system|Input/output error|Permission denied)` +
		`|connection to client lost)$`)
	// What the worker says of what the soak does to it.
	mayBeWarned = regexp.MustCompile(`^pg_lock_history: (history tables are locked by somebody` +
		`|cannot write history, (the disk is full|its files may not be written to|its files are damaged or missing)` +
		`|the server ended the writer's session or is not ready|lost the connection to the history` +
		`|cannot reach the server that keeps the history` +
		`|the server has not answered the writer for 40s` +
		`|lock history is full and its oldest part is in use` +
		`|load by second (could not be added up|had to be removed)` +
		`|writing history takes longer than 30 s` +
		`|cannot look up names of tables and roles` +
		`|unusual load: )`)
)

// forget leaves out what was written so far.
func (l *serverLog) forget() {
	if info, err := os.Stat(l.server.log); err == nil {
		l.at = info.Size()
	}
}

// read takes in what was written since the last time.
func (l *serverLog) read() (differences []string) {
	file, err := os.Open(l.server.log)
	if err != nil {
		return []string{err.Error()}
	}
	defer file.Close()
	content, err := io.ReadAll(io.NewSectionReader(file, l.at, 1<<40))
	if err != nil {
		return []string{err.Error()}
	}
	l.at += int64(len(content))
	text := l.rest + string(content)
	end := strings.LastIndexByte(text, '\n') + 1
	l.rest = text[end:]
	for line := range strings.Lines(text[:end]) {
		// What was wrong a moment ago is told with its detail.
		if n := len(differences); n > 0 && strings.Contains(line, "} DETAIL:  ") {
			differences[n-1] += "\n    " + strings.TrimSuffix(line, "\n")
		}
		if d := l.judge(strings.TrimSuffix(line, "\n")); d != "" {
			differences = append(differences, "server log: "+d)
		}
	}
	return differences
}

// judge returns what is wrong with a line, "" for nothing.
func (l *serverLog) judge(line string) string {
	m := logLine.FindStringSubmatch(line)
	if m == nil {
		return "" // goes on with the line before
	}
	backend, application, level, message := m[2], m[3], m[4], m[5]
	isOurs := backend == "pg_lock_history" || strings.HasPrefix(application, "pg_lock_history")
	if text, ok := strings.CutPrefix(message, "pg_lock_history: "); ok && level == "WARNING" {
		l.told[text]++
	}
	switch {
	case level == "PANIC":
		return line
	case level == "FATAL" && !mayBeFatal.MatchString(message):
		return line
	case level == "WARNING" && isOurs && !mayBeWarned.MatchString(message):
		return line
	case level == "ERROR" && isOurs:
		return line
	case strings.Contains(message, "was terminated by signal"):
		k := logKilled.FindStringSubmatch(message)
		l.server.mu.Lock()
		defer l.server.mu.Unlock()
		if k == nil || k[2] != "9" {
			return line
		}
		if pid, _ := strconv.Atoi(k[1]); !l.server.killed[pid] {
			return line
		}
	case strings.Contains(message, "all server processes terminated; reinitializing"):
		l.crashes++
	case strings.HasPrefix(message, "received fast shutdown request"), strings.HasPrefix(message, "received immediate shutdown request"):
		l.stops++
	case logExit.MatchString(message):
		if logExit.FindStringSubmatch(message)[1] != "1" {
			return line
		}
		l.workerExits++
	}
	return ""
}

// counts compares how often the server and the worker ended with how often that
// was our doing.
func (l *serverLog) counts() (differences []string) {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	if l.crashes > l.server.crashes {
		differences = append(differences, fmt.Sprintf("the server started anew %d times, for %d processes killed", l.crashes, l.server.crashes))
	}
	if l.stops != l.server.restarts {
		differences = append(differences, fmt.Sprintf("the server was stopped %d times, %d times by us", l.stops, l.server.restarts))
	}
	if l.workerExits > l.server.workers+l.server.restarts+l.server.crashes {
		differences = append(differences, fmt.Sprintf("the worker ended %d times, %d times by us", l.workerExits, l.server.workers))
	}
	return differences
}
