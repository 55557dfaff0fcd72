package livetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// condition is something that lasts: it begins, and how it ends is what begin
// returns.
type condition struct {
	name  string
	begin func(*soak, context.Context, *rand.Rand) (end func() error, err error)
	// badDisk, stopped: with the disk like that a server cannot recover, with a
	// process like that it cannot stop
	badDisk, stopped bool
}

// strike is something that happens at once.
type strike struct {
	name string
	act  func(*soak, context.Context, *rand.Rand) error
	// crash, stop: the server starts anew
	crash, stop bool
	quiet       bool // needs the tables: nothing else may keep them
}

func (k strike) fits(c condition) bool {
	return !(c.badDisk && (k.crash || k.stop) || c.stopped && k.stop || k.quiet && !c.leavesTables())
}

func (c condition) leavesTables() bool {
	return strings.HasPrefix(c.name, "settings") || c.name == "nothing"
}

var conditions = []condition{
	{name: "nothing", begin: func(*soak, context.Context, *rand.Rand) (func() error, error) { return nothing, nil }},
	{name: "the history tables are locked", begin: lockTables},
	{name: "a reader keeps all of the ring", begin: keepReading},
	{name: "the disk is full", begin: badDisk("full"), badDisk: true},
	{name: "the disk is read-only", begin: badDisk("read-only"), badDisk: true},
	{name: "the disk is broken", begin: badDisk("broken"), badDisk: true},
	{name: "the writer's process is stopped", begin: stopWriter, stopped: true},
	{name: "settings are changed", begin: changeSettings(2)},
	{name: "settings are changed, many", begin: changeSettings(6)},
	{name: "recording is off", begin: switchOff},
}

var strikes = []strike{
	{name: "a session is killed", act: killOne(`a.application_name NOT LIKE 'pg_lock_history%'`), crash: true},
	{name: "the writer's session is killed", act: killOne(`a.application_name = 'pg_lock_history writer'`), crash: true},
	{name: "the worker is ended", act: endWorker},
	{name: "the writer is ended", act: endWriter},
	{name: "the writer is ended five times", act: func(s *soak, ctx context.Context, r *rand.Rand) error {
		for range 5 {
			if err := endWriter(s, ctx, r); err != nil {
				return err
			}
			pause(ctx, ms(r, 0, 300))
		}
		return nil
	}},
	{name: "fast restart", act: restart("fast"), stop: true},
	{name: "immediate restart", act: restart("immediate"), stop: true},
	{name: "history tables are truncated", act: truncate, quiet: true},
	{name: "reload", act: func(s *soak, ctx context.Context, _ *rand.Rand) error {
		return s.tell(ctx, "postgres", "SELECT pg_reload_conf()")
	}},
}

func nothing() error { return nil }

// tell runs statements in a database. Into that of the history nobody gets while
// its disk is bad.
func (s *soak) tell(ctx context.Context, database string, statements ...string) error {
	conn, err := s.server.dial(ctx, database, "postgres", "soak")
	if err != nil {
		return err
	}
	defer hangUp(conn)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// lockTables locks all of them, or some.
func lockTables(s *soak, ctx context.Context, r *rand.Rand) (func() error, error) {
	conn, err := s.server.dial(ctx, "history", "postgres", "soak locker")
	if err != nil {
		return nil, err
	}
	some := oneOf(r, "true", "c.relname ~ '^episode'", "c.relname = 'run'", "c.relname ~ '_[0-3]$'")
	_, err = conn.Exec(ctx, `BEGIN; DO $$ DECLARE t regclass; BEGIN
		FOR t IN SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind IN ('r', 'p') AND `+some+` ORDER BY c.relname LOOP
			EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', t);
		END LOOP; END $$`)
	return func() error { hangUp(conn); return nil }, err
}

// keepReading reads all views and stays in the transaction.
func keepReading(s *soak, ctx context.Context, _ *rand.Rand) (func() error, error) {
	conn, err := s.server.dial(ctx, "history", "postgres", "soak reader")
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{"BEGIN", "SELECT count(*) FROM lock_history.waits", "SELECT count(*) FROM lock_history.load",
		"SELECT count(*) FROM lock_history.short_waits", "SELECT count(*) FROM lock_history.deadlocks", "SELECT count(*) FROM lock_history.gaps",
		"SELECT count(*) FROM lock_history.blocking_tree_at(now())"} {
		if _, err = conn.Exec(ctx, sql); err != nil {
			break
		}
	}
	return func() error { hangUp(conn); return nil }, err
}

func badDisk(how string) func(*soak, context.Context, *rand.Rand) (func() error, error) {
	return func(s *soak, _ context.Context, _ *rand.Rand) (func() error, error) {
		return func() error { return s.server.disk("", "") }, s.server.disk(how, s.path)
	}
}

// stopWriter stops the server process of the writer, as a disk that stalls does.
func stopWriter(s *soak, ctx context.Context, _ *rand.Rand) (func() error, error) {
	var pid int
	err := s.ask(ctx, &pid, `SELECT pid FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND backend_type = 'client backend'`)
	if errors.Is(err, pgx.ErrNoRows) {
		return nothing, nil // it is just not there
	}
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := syscall.Kill(pid, syscall.SIGCONT); !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return nil // ended in a crash
	}, syscall.Kill(pid, syscall.SIGSTOP)
}

// ask reads one value.
func (s *soak) ask(ctx context.Context, into any, sql string) error {
	conn, err := s.server.dial(ctx, "history", "postgres", "soak")
	if err != nil {
		return err
	}
	defer hangUp(conn)
	return conn.QueryRow(ctx, sql).Scan(into)
}

// choices are what settings are changed to.
var choices = map[string][]string{
	"sample_period":       {"2ms", "5ms", "20ms", "50ms"},
	"min_duration":        {"0", "20ms", "300ms", "1s"},
	"flush_period":        {"100ms", "1s", "3s"},
	"max_rows_per_second": {"10", "50"},
	"query_text":          {"off", "normalized"},
	"query_length":        {"64", "4kB", "64kB"},
	"track_load":          {"off"},
	"track_lwlocks":       {"off"},
	"track_pages":         {"off"},
	"hot_page_budget":     {"0", "5"},
	"anomaly_band":        {"0", "1"},
	"retention":           {"5min"},
	"rollup_retention":    {"1min"},
	"log_level":           {"debug", "warning"},
}

// changeSettings changes some of them, and back.
func changeSettings(n int) func(*soak, context.Context, *rand.Rand) (func() error, error) {
	return func(s *soak, ctx context.Context, r *rand.Rand) (func() error, error) {
		names := sortedKeys(choices)
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		values := make(map[string]string)
		for _, name := range names[:n] {
			values[name] = oneOf(r, choices[name]...)
		}
		return s.change(ctx, values)
	}
}

func switchOff(s *soak, ctx context.Context, r *rand.Rand) (func() error, error) {
	return s.change(ctx, map[string]string{oneOf(r, "enabled", "track_locks"): "off"})
}

// change sets settings and reloads; the end resets them.
func (s *soak) change(ctx context.Context, values map[string]string) (func() error, error) {
	changed := usual
	var statements []string
	for _, name := range sortedKeys(values) {
		value := values[name]
		s.t.Logf("    %s = %s", name, value)
		statements = append(statements, fmt.Sprintf("ALTER SYSTEM SET pg_lock_history.%s = '%s'", name, value))
		switch name {
		case "sample_period":
			changed.period, _ = time.ParseDuration(value)
		case "min_duration":
			changed.minDuration, _ = time.ParseDuration(value)
		case "max_rows_per_second":
			_, _ = fmt.Sscan(value, &changed.maxRows)
		}
	}
	end := func() error {
		err := s.tell(ctx, "postgres", "ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()")
		s.list.setTempo(usual)
		return err
	}
	s.list.setTempo(changed)
	return end, s.tell(ctx, "postgres", append(statements, "SELECT pg_reload_conf()")...)
}

// killOne kills one session, which is a crash of all.
func killOne(which string) func(*soak, context.Context, *rand.Rand) error {
	return func(s *soak, ctx context.Context, r *rand.Rand) error {
		conn, err := s.server.dial(ctx, "postgres", "postgres", "soak")
		if err != nil {
			return err
		}
		defer hangUp(conn)
		rows, err := conn.Query(ctx, `SELECT a.pid FROM pg_stat_activity AS a WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() AND `+which+` ORDER BY 1`)
		if err != nil {
			return err
		}
		pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil || len(pids) == 0 {
			return err
		}
		pid := pids[r.IntN(len(pids))]
		if err := s.server.kill(pid); err != nil {
			return err // it has gone by itself, and another one is tried
		}
		// The others are told a moment later.
		for began := time.Now(); time.Since(began) < recoversWithin; {
			if _, err := conn.Exec(ctx, "SELECT pg_sleep(0.01)"); err != nil {
				return nil
			}
		}
		return fmt.Errorf("process %d was killed, and the server goes on", pid)
	}
}

// restart stops the server, whose sessions give their locks back one after the other.
func restart(mode string) func(*soak, context.Context, *rand.Rand) error {
	return func(s *soak, _ context.Context, _ *rand.Rand) (err error) {
		s.list.release(everyScene, func() { err = s.server.restart(mode) })
		return err
	}
}

func endWorker(s *soak, ctx context.Context, _ *rand.Rand) error {
	s.server.mu.Lock()
	s.server.workers++
	s.server.mu.Unlock()
	return s.tell(ctx, "postgres", `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'pg_lock_history'`)
}

func endWriter(s *soak, ctx context.Context, _ *rand.Rand) error {
	return s.tell(ctx, "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer'`)
}

// truncate empties some of the tables by hand, or all of them by reset(). What was
// there has just been judged; what has come since is not looked for.
func truncate(s *soak, ctx context.Context, r *rand.Rand) error {
	// A wait that ended before that is still to be judged when the next look came late.
	from := s.judgedTo.Add(-5 * time.Second)
	defer func() { s.list.removeByHand(from, time.Now()) }()
	what := oneOf(r, "c.relname ~ '_[0-7]$'", "c.relname ~ '^(open|actor)_'", "c.relname ~ '^(episode|short_wait|gap)_'")
	var tables string
	err := s.ask(ctx, &tables, `SELECT string_agg('lock_history.' || c.relname, ', ' ORDER BY c.relname) FROM pg_class AS c
		WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relispartition AND c.relkind = 'r' AND `+what)
	if err != nil {
		return err
	}
	how := "TRUNCATE " + tables
	if r.IntN(3) == 0 {
		how = "SELECT lock_history.reset()"
	}
	s.t.Logf("    %.60s", how)
	clear(s.past)
	if err := s.tell(ctx, "history", how); err != nil {
		return err
	}
	return s.flush(ctx) // a crash before that would take what was to be written again
}
