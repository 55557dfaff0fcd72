package livetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// settled bounds the wait for a fact; nothing waits for it to pass.
const settled = 30 * time.Second

func connect(t *testing.T, ctx context.Context, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return conn
}

// lab is the server under test, seen from outside.
type lab struct {
	t       *testing.T
	ctx     context.Context
	dsn     string // of the database that the sessions work in
	history *pgx.Conn
	watcher *watcher

	minDuration time.Duration
	version     int // server_version_num

	mu         sync.Mutex
	admin      *pgx.Conn // in the sessions' database
	statements []statement
	ends       []span
	leaders    []int32 // every session of the round
	prepared   []string
	gids       int
	deadlocks  int // that the server had counted when the round began
}

// exec runs what must succeed.
func (l *lab) exec(c *pgx.Conn, sql string, args ...any) {
	l.t.Helper()
	if _, err := c.Exec(l.ctx, sql, args...); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
}

// session is one client. It is used by one goroutine at a time.
type session struct {
	lab       *lab
	conn      *pgx.Conn
	pid       int32
	script    script
	savepoint bool
	dead      bool
	idle      time.Time // since when; the session may end by itself while it is

	orders chan order
	done   chan struct{} // after each
	busy   bool          // belongs to the driver of a still round
}

// start connects a session; with deadlockTimeout a circle is broken soon, else never.
func (l *lab) start(r *rand.Rand, deadlockTimeout time.Duration) (*session, error) {
	conn, err := pgx.Connect(l.ctx, l.dsn)
	if err != nil {
		return nil, err
	}
	s := &session{lab: l, conn: conn, pid: int32(conn.PgConn().PID()), orders: make(chan order, 1), done: make(chan struct{}, 1)}
	s.script = script{r: r}
	participates := "off"
	if r.IntN(2) == 0 {
		participates = "on"
	}
	if deadlockTimeout == 0 {
		deadlockTimeout = time.Hour
	}
	_, err = conn.Exec(l.ctx, fmt.Sprintf(`SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
		SET parallel_leader_participation = %s; SET deadlock_timeout = '%d ms'`, participates, deadlockTimeout.Milliseconds()))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.leaders = append(l.leaders, s.pid)
	l.mu.Unlock()
	return s, nil
}

// serve carries out orders until there are no more; the owner closes s.orders.
func (s *session) serve() {
	for o := range s.orders {
		s.do(o)
		s.done <- struct{}{}
	}
	close(s.done)
}

// do carries out one order and notes what came of it.
func (s *session) do(o order) {
	defer func() { s.idle = time.Now() }()
	if o.prelude != "" {
		st := statement{pid: s.pid, sql: o.prelude, releases: true, sent: time.Now()}
		if _, err := s.conn.Exec(s.lab.ctx, o.prelude); err != nil {
			s.fail()
			if s.dead {
				st.sent = s.idle // may have ended in between
			}
			st.done = time.Now()
			s.note(st)
			return
		}
	}
	st := statement{pid: s.pid, sql: o.sql, releases: o.releases, isBlock: o.isTry, idle: s.idle, sent: time.Now()}
	results, err := s.conn.PgConn().Exec(s.lab.ctx, o.sql).ReadAll()
	st.done = time.Now()
	if err != nil {
		st.failure = failureOf(err)
		if st.failure.code == "" && !s.conn.IsClosed() {
			st.failure.message = err.Error()
		}
		st.caught = o.isTry && !inTry.MatchString(st.failure.context)
		s.fail()
		if s.dead {
			st.done = time.Now()
			if st.failure.code == "" {
				st.failure.code = "57P01" // the connection was closed while nothing ran
			}
		}
	} else if o.isTry {
		code, rest, _ := strings.Cut(string(results[0].Rows[0][0]), "|")
		message, rest, _ := strings.Cut(rest, "|")
		detail, errorContext, _ := strings.Cut(rest, "|")
		st.failure = failure{code: code, message: message, detail: detail, context: errorContext}
	}
	switch {
	case strings.HasPrefix(o.sql, "SAVEPOINT") && err == nil:
		s.savepoint = true
	case !s.dead && s.state() == 'I':
		s.savepoint = false
	}
	s.note(st)
	if gid, ok := strings.CutPrefix(o.sql, "PREPARE TRANSACTION "); ok && err == nil {
		s.lab.mu.Lock()
		defer s.lab.mu.Unlock()
		s.lab.prepared = append(s.lab.prepared, strings.Trim(gid, "'"))
	}
}

func (s *session) note(st statement) {
	s.lab.mu.Lock()
	defer s.lab.mu.Unlock()
	s.lab.statements = append(s.lab.statements, st)
}

// inTry is in the context of an error that came while plh_try() could catch it.
var inTry = regexp.MustCompile(`plh_try\(text\) line \d+ at EXECUTE`)

func failureOf(err error) failure {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return failure{}
	}
	return failure{code: pg.Code, message: pg.Message, detail: pg.Detail, context: pg.Where}
}

// fail takes in an error: after one that ended the session it returns when the
// server has forgotten the process, and its locks.
func (s *session) fail() {
	if !s.conn.IsClosed() {
		return
	}
	s.dead = true
	for s.lab.ctx.Err() == nil && s.lab.lives(s.pid) {
		continue
	}
}

func (l *lab) lives(pid int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lives bool
	err := l.admin.QueryRow(l.ctx, `SELECT EXISTS (SELECT FROM pg_stat_get_activity($1))
		OR EXISTS (SELECT FROM pg_locks WHERE pid = $1)`, pid).Scan(&lives)
	return err == nil && lives
}

func (s *session) state() byte { return s.conn.PgConn().TxStatus() }

// freeGid names a transaction to prepare, "" when there are enough of them.
func (l *lab) freeGid() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.prepared) >= maxPrepared {
		return ""
	}
	l.gids++
	return fmt.Sprintf("plh_%d", l.gids)
}

// maxPrepared leaves room in max_prepared_transactions for some that are being
// prepared when the room is asked for.
const maxPrepared = 5

// finishPrepared ends one prepared transaction.
func (l *lab) finishPrepared(r *rand.Rand) {
	l.mu.Lock()
	if len(l.prepared) == 0 {
		l.mu.Unlock()
		return
	}
	i := r.IntN(len(l.prepared))
	gid := l.prepared[i]
	l.prepared = slices.Delete(l.prepared, i, i+1)
	l.mu.Unlock()
	verb := "COMMIT"
	if r.IntN(2) == 0 {
		verb = "ROLLBACK"
	}
	l.ask(fmt.Sprintf(`%s PREPARED '%s'`, verb, gid))
}

// ask has the administrator do something that may give locks back.
func (l *lab) ask(sql string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := statement{pid: int32(l.admin.PgConn().PID()), sql: sql, releases: true, sent: time.Now()}
	if _, err := l.admin.Exec(l.ctx, sql); err != nil && l.ctx.Err() == nil {
		l.t.Errorf("%s: %v", sql, err)
	}
	st.done = time.Now()
	l.statements = append(l.statements, st)
}

// send sends a signal. What a cancel brings about is in the statement that it
// meets; a session may be ended between two of them.
// Of a parallel query, a worker may be meant.
func (l *lab) send(function string, pid, leader int32) {
	began := time.Now()
	l.mu.Lock()
	_, err := l.admin.Exec(l.ctx, `SELECT `+function+`($1)`, pid)
	l.mu.Unlock()
	if err != nil && l.ctx.Err() == nil {
		l.t.Errorf("%s(%d): %v", function, pid, err)
	}
	if function == "pg_terminate_backend" {
		for l.ctx.Err() == nil && l.lives(pid) {
			continue
		}
		l.mu.Lock()
		l.ends = append(l.ends, span{leader: leader, from: began, to: time.Now()})
		l.mu.Unlock()
	}
}

// end ends a session that does nothing.
func (s *session) end() {
	if s.dead {
		return
	}
	st := statement{pid: s.pid, sql: "end of the session", releases: true, sent: time.Now()}
	_ = s.conn.Close(context.WithoutCancel(s.lab.ctx))
	for s.lab.ctx.Err() == nil && s.lab.lives(s.pid) {
		continue
	}
	s.dead = true
	st.done = time.Now()
	s.note(st)
}
