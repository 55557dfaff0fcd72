package store

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/queue"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/ring"
	"pg_lock_history/gosrc/snapshot"
)

// These tests need a server on which CREATE EXTENSION pg_lock_history works
// and in which nothing else matters: PLH_TEST_DSN, a superuser's, over a
// socket. Each makes a database of its own.

const patience = 20 * time.Second

type lab struct {
	t      *testing.T
	dsn    string // of the lab's own database
	db     *pgx.Conn
	cfg    config.Config
	queue  *queue.Queue
	log    *report.Log
	store  *Store
	cancel context.CancelFunc
	ended  chan struct{}

	stuckAfter time.Duration // 0: as in production
	ahead      time.Duration // of this machine's clock

	mayDial func() <-chan bool // as in Options

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each Wake
	tickets []uint64
	earlier []history.Run
	restore []queue.Item
	bytes   int64    // of the queue, 0 for enough
	settled int      // calls of Restored
	texts   []string // of messages
	number  int64
	now     snapshot.Micros
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// newLab makes a database, with the extension when asked to.
func newLab(t *testing.T, withExtension bool) *lab {
	t.Helper()
	admin := os.Getenv("PLH_TEST_DSN")
	if admin == "" {
		t.Skip("PLH_TEST_DSN is not set")
	}
	l := &lab{t: t, changed: make(chan struct{}), ended: make(chan struct{})}
	name := fmt.Sprintf("plh_%s_%d", strings.ToLower(strings.NewReplacer("/", "_", "#", "_").Replace(t.Name())), os.Getpid())
	if len(name) > 60 {
		name = name[:60]
	}
	adminConn, err := pgx.Connect(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer adminConn.Close(context.Background())
		if _, err := adminConn.Exec(context.Background(), `DROP DATABASE IF EXISTS `+pgx.Identifier{name}.Sanitize()+` WITH (FORCE)`); err != nil {
			t.Error(err)
		}
	})
	l.mustOn(adminConn, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize())

	cc := adminConn.Config()
	l.dsn = fmt.Sprintf("host=%s port=%d user=%s dbname=%s", cc.Host, cc.Port, cc.User, name)
	l.db = connect(t, l.dsn)
	l.must(`SET client_min_messages = error`)
	if withExtension {
		l.must(`CREATE EXTENSION pg_lock_history`)
	}
	var start time.Time
	var sysid string
	var version int
	row := l.db.QueryRow(t.Context(), `SELECT pg_postmaster_start_time(), system_identifier::text, current_setting('server_version_num')::int FROM pg_control_system()`)
	if err := row.Scan(&start, &sysid, &version); err != nil {
		t.Fatal(err)
	}
	l.now = snapshot.FromTime(time.Now())
	l.cfg = config.Config{
		Enabled: true, TrackLocks: true, Database: name, NodeName: "lab:1",
		FlushPeriod: time.Second, Retention: 7 * 24 * time.Hour, RollupRetention: 90 * 24 * time.Hour, MaxSize: 1 << 30,
		MinDuration: 100 * time.Millisecond, QueryText: querytext.Full, QueryLength: 1024, MemoryLimit: 64 << 20,
		Server: config.Server{
			VersionNum: version, Port: int(cc.Port), SocketDirectories: []string{"/does/not/exist", cc.Host},
			BootstrapRole: cc.User, PostmasterStart: snapshot.FromTime(start), WorkerStart: l.now, SystemIdentifier: 42,
			ExtensionVersion: "1.0",
		},
	}
	fmt.Sscan(sysid, &l.cfg.Server.SystemIdentifier)
	return l
}

// start runs a store, as a new life of the worker.
func (l *lab) start() {
	l.t.Helper()
	l.number, l.settled = 0, 0
	l.queue = queue.New(queue.Limit{Bytes: 32 << 20})
	if l.bytes != 0 {
		l.queue.SetLimit(queue.Limit{Bytes: l.bytes})
	}
	wake := func() {
		l.mu.Lock()
		close(l.changed)
		l.changed = make(chan struct{})
		l.mu.Unlock()
	}
	l.log = report.New(wake)
	l.queue.Restore(l.restore)
	l.store = New(Options{Config: l.cfg, Queue: l.queue, Log: l.log, Wake: wake, Earlier: l.earlier, MayDial: l.mayDial,
		Restored: func() {
			l.mu.Lock()
			l.settled++
			l.mu.Unlock()
		},
		Flushed: func(ticket uint64) {
			l.mu.Lock()
			l.tickets = append(l.tickets, ticket)
			l.mu.Unlock()
		},
	})
	if l.stuckAfter != 0 {
		l.store.stuckAfter = l.stuckAfter
	}
	l.store.now = func() time.Time { return time.Now().Add(l.ahead) }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	l.cancel, l.ended = cancel, ended
	go func() { l.store.Run(ctx); close(ended) }()
	l.t.Cleanup(func() { cancel(); <-ended })
}

func (l *lab) stop() { l.cancel(); <-l.ended }

// until waits for a fact; each Wake and each 10 ms are a chance for it.
func (l *lab) until(what string, fact func() bool) {
	l.t.Helper()
	deadline := time.After(patience)
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		for _, m := range l.log.Take() {
			l.texts = append(l.texts, m.Text+" | "+m.Detail+" | "+m.Hint)
		}
		if fact() {
			return
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			l.t.Fatalf("waited in vain until %s; status %+v, messages %q", what, l.store.Status(), l.texts)
		}
	}
}

// push hands over a batch that ends d after the last one.
func (l *lab) push(d time.Duration, b history.Batch) snapshot.Micros {
	l.number++
	l.now = l.now.Add(d)
	b.Number, b.CompleteTo = l.number, l.now
	l.queue.Push(&b)
	return l.now
}

func (l *lab) flushed(to snapshot.Micros) {
	l.t.Helper()
	l.until("the batch is written", func() bool { return l.store.Status().LastFlush >= to })
}

func (l *lab) must(sql string, args ...any) { l.t.Helper(); l.mustOn(l.db, sql, args...) }

func (l *lab) mustOn(conn *pgx.Conn, sql string, args ...any) {
	l.t.Helper()
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
}

// query returns the one value of sql as text.
func (l *lab) query(sql string, args ...any) string {
	l.t.Helper()
	return l.queryOn(l.db, sql, args...)
}

func (l *lab) queryOn(conn *pgx.Conn, sql string, args ...any) string {
	l.t.Helper()
	var s *string
	if err := conn.QueryRow(context.Background(), `SELECT (`+sql+`)::text`, args...).Scan(&s); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
	if s == nil {
		return "<null>"
	}
	return *s
}

func (l *lab) expect(want, sql string, args ...any) {
	l.t.Helper()
	if got := l.query(sql, args...); got != want {
		l.t.Errorf("%s\n got %s\nwant %s", sql, got, want)
	}
}

func (l *lab) oid(sql string) uint32 {
	l.t.Helper()
	var oid uint32
	if err := l.db.QueryRow(context.Background(), sql).Scan(&oid); err != nil {
		l.t.Fatal(err)
	}
	return oid
}

func (l *lab) databaseOID() uint32 {
	return l.oid(`SELECT oid FROM pg_database WHERE datname = current_database()`)
}

func (l *lab) session(pid int32, query string) *snapshot.Session {
	return &snapshot.Session{
		Slot: pid, Pid: pid, State: snapshot.StateActive, Database: l.databaseOID(), Role: 10,
		BackendStart: l.now.Add(-time.Hour), XactStart: l.now, QueryStart: l.now, StateChange: l.now, SeenAt: l.now,
		QueryID: 77, BackendType: "client backend", ApplicationName: "psql", ClientAddr: "10.0.0.1", Query: query,
	}
}

func (l *lab) wait(pid int32, tag lockmgr.Tag, blocker *snapshot.Session) history.Episode {
	return history.Episode{
		WaitID: int64(pid), Waiter: l.session(pid, "UPDATE t"), Tag: tag, Mode: 8, Start: l.now, Samples: 3,
		HardCount: 1, Edges: []history.Edge{{Kind: history.Hard, Modes: 2, From: l.now, Blocker: blocker}},
	}
}

func TestLiveEpisode(t *testing.T) {
	l := newLab(t, true)
	l.must(`CREATE SCHEMA "Sales"; CREATE TABLE "Sales"."Order" (i int)`)
	rel := l.oid(`SELECT '"Sales"."Order"'::regclass::oid`)
	l.start()
	began := l.now

	tag := lockmgr.Tag{Field1: l.databaseOID(), Field2: rel, Type: lockmgr.Relation, Method: 1}
	idle := l.session(50, "BEGIN")
	idle.State = snapshot.StateIdleInTransaction
	prepared := &snapshot.Session{Prepared: 740, Database: l.databaseOID(), Role: 10}
	e := l.wait(60, tag, idle)
	e.SoftPids = []int32{61, 62}
	e.Edges = append(e.Edges, history.Edge{Kind: history.Root, From: began, To: began.Add(time.Second), Blocker: prepared})
	l.flushed(l.push(time.Second, history.Batch{Waiting: true, Open: []history.Episode{e}, OldestOpen: began}))
	l.expect("t", `SELECT left((oldest_open = $1::timestamptz)::text, 1) FROM lock_history.run`, began.Time())
	closed := e
	closed.End, closed.Outcome = began.Add(1500*time.Millisecond), history.Granted
	end := l.push(time.Second, history.Batch{
		Closed: []history.Episode{closed}, Ticket: 9,
		Short: []history.ShortWait{
			{ShortWaitKey: history.ShortWaitKey{Second: began, Database: l.databaseOID(), LockType: uint8(lockmgr.Tuple), Relation: rel, Mode: 7, QueryID: 5, RootPid: 50}, Waits: 4, Total: 40 * time.Millisecond, Longest: 20 * time.Millisecond, Failed: 3},
			{ShortWaitKey: history.ShortWaitKey{Second: began, Other: true}, Waits: 1, Total: time.Millisecond, Longest: time.Millisecond},
		},
		Deadlocks: []history.Deadlock{{ID: 77, At: began, Members: []history.DeadlockMember{
			{Session: e.Waiter, IsVictim: true, WaitsFor: 50, WaitID: 60, HasTag: true, Tag: tag, Mode: 8},
			{Session: idle, WaitsFor: 60, Mode: 5, HasHeld: true, HeldTag: tag, HeldMode: 7},
			{Session: idle, HasTag: true, Tag: lockmgr.Tag{Field1: 740, Type: lockmgr.TransactionID, Method: tag.Method}, Mode: 5,
				Row: lockmgr.Tag{Field1: tag.Field1, Field2: rel, Field4: 1, Type: lockmgr.Tuple, Method: tag.Method}},
		}}},
		Gaps:   []history.Gap{{Began: began, Ended: began.Add(time.Second), Reason: history.GapLate}},
		Health: []history.Health{{Minute: began, TicksDue: 6000, Period: 10 * time.Millisecond, ProbeP50: 4 * time.Microsecond}},
	})
	l.flushed(end)

	l.expect(`"Sales"."Order"`, `SELECT object FROM lock_history.open`)
	l.expect("t granted", `SELECT left(granted::text, 1) || ' ' || outcome FROM lock_history.episode`)
	l.expect("<null>", `SELECT outcome FROM lock_history.open`)
	l.expect("{61,62} {1,3} {50,0} {2,0}", `SELECT concat_ws(' ', soft_pids, edge_kind, edge_pid, edge_modes) FROM lock_history.episode`)
	l.expect("1", `SELECT count(*) FROM unnest((SELECT edge_to FROM lock_history.episode)) AS u(x) WHERE x IS NULL`)
	l.expect(fmt.Sprintf("relation AccessExclusiveLock 8 %d %d", tag.Field1, rel),
		`SELECT concat_ws(' ', locktype, mode, mode_number, database, relation) FROM lock_history.episode`)
	l.expect("3", `SELECT count(*) FROM lock_history.actor`) // once, although two episodes name them
	l.expect("3", `SELECT count(*) FROM lock_history.actor AS a WHERE a.actor_id = (SELECT actor_id FROM lock_history.episode) OR a.actor_id = ANY ((SELECT edge_actor FROM lock_history.episode)::bigint[])`)
	l.expect("idle in transaction BEGIN 10.0.0.1 psql", `SELECT concat_ws(' ', state, query, host(client_addr), application_name) FROM lock_history.actor WHERE pid = 50`)
	l.expect(l.cfg.Database+" "+l.cfg.Server.BootstrapRole, `SELECT datname || ' ' || usename FROM lock_history.actor WHERE pid = 50`)
	l.expect("4 40 20 tuple 3", `SELECT concat_ws(' ', waits, total_ms, max_ms, locktype, failed) FROM lock_history.short_wait WHERE root_pid = 50`)
	l.expect(`"Sales"."Order"`, `SELECT object FROM lock_history.short_wait WHERE root_pid = 50`)
	l.expect("1 other", `SELECT waits || ' ' || locktype FROM lock_history.short_wait WHERE root_pid IS NULL`)
	l.expect(`77 60 t 50 60 relation "Sales"."Order" AccessExclusiveLock`, `SELECT concat_ws(' ', deadlock_id, pid, is_victim, waits_for, wait_id, locktype, object, mode, held_mode, held_object) FROM lock_history.deadlock WHERE member = 1`)
	l.expect(`77 50 f 60 ShareLock ExclusiveLock "Sales"."Order" BEGIN`, `SELECT concat_ws(' ', d.deadlock_id, d.pid, d.is_victim, d.waits_for, d.wait_id, d.locktype, d.object, d.mode, d.held_mode, d.held_object, a.query)
		FROM lock_history.deadlock AS d JOIN lock_history.actor AS a USING (actor_id) WHERE d.member = 2`)
	l.expect(fmt.Sprintf(`transaction 740, tuple (0,1) of "Sales"."Order" %d 740`, rel), `SELECT concat_ws(' ', object, relation, transactionid) FROM lock_history.deadlock WHERE member = 3`)
	l.expect("late", `SELECT reason FROM lock_history.gap`)
	l.expect("6000 10 4", `SELECT concat_ws(' ', ticks_due, period_ms, probe_us_p50, hold_us_p99) FROM lock_history.health_minute`)
	l.expect("2", `SELECT batch FROM lock_history.run`)
	l.until("flush() is answered", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.tickets) == 1 && l.tickets[0] == 9 })
	if st := l.store.Status(); st.State != StateRecording || st.RowsWritten == 0 || st.RingSegment != 0 {
		t.Errorf("status %+v", st)
	}
	if !l.store.RewriteOpen() || l.store.RewriteOpen() {
		t.Error("RewriteOpen is to be true once after the start")
	}
}

func TestLiveFastPath(t *testing.T) {
	l := newLab(t, true)
	l.start()
	began := l.now
	slots := history.Slots{Each: 16, MaxLocks: 64}
	l.flushed(l.push(time.Second, history.Batch{
		Seconds: []history.Second{
			{At: began, Sampled: time.Second, Clients: time.Second, Slots: slots, FastPath: []history.FastPath{
				{Database: l.databaseOID(), Sessions: 3, SlotsMax: 16, Full: 2, Spilled: 86},
				{Database: 0, Sessions: 1, SlotsMax: 9, Spilled: history.NotLooked}}},
			{At: began.Add(time.Second), Sampled: time.Second},
		},
		Hungry: []history.LockHungry{{At: began, Last: began.Add(time.Second), Slots: slots, Statements: []history.HungryStatement{
			{Database: l.databaseOID(), Role: 10, QueryID: 77, Locks: 102, SlotsMax: 16, Spilled: 86, Looks: 10, LooksFull: 9, Sessions: 2},
			{Database: l.databaseOID(), Role: 10, QueryID: 78, Locks: 11, SlotsMax: 11, Spilled: history.NotLooked, Looks: 4, Sessions: 1}}}},
	}))
	version := strconv.Itoa(l.cfg.Server.VersionNum)
	l.expect("2", `SELECT count(*) FROM lock_history.second`)
	l.expect("1", `SELECT count(*) FROM lock_history.fastpath`) // of the other one there is nothing to tell
	l.expect(l.cfg.Database+" 3 16 16 2 86 64 "+version+" lab:1", `SELECT concat_ws(' ', datname, sessions, slots_max, slots_available, sessions_full, spilled_locks_max, max_locks_per_transaction, server_version_num, node)
		FROM lock_history.fast_path WHERE at = $1 AND datname IS NOT NULL`, began.Time())
	l.expect("1 9 0 ?", `SELECT concat_ws(' ', sessions, slots_max, sessions_full, coalesce(spilled_locks_max::text, '?')) FROM lock_history.fast_path WHERE datname IS NULL`)
	l.expect(l.cfg.Database+" "+l.cfg.Server.BootstrapRole+" 77 102 16 16 86 10 9 2 t", `SELECT concat_ws(' ', datname, usename, query_id, locks_max, slots_max, slots_available, spilled_locks_max, looks, looks_full, sessions, last_at = at + interval '1 s')
		FROM lock_history.lock_hungry_queries WHERE at = $1 ORDER BY locks_max DESC LIMIT 1`, began.Time())
	l.expect("78 11 ?", `SELECT concat_ws(' ', query_id, locks_max, coalesce(spilled_locks_max::text, '?')) FROM lock_history.lock_hungry_queries ORDER BY locks_max LIMIT 1`)
}

func TestLiveNothingToWrite(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.until("it records", func() bool { return l.store.Status().State == StateRecording })
	xid := func() string { return l.query(`SELECT xmin FROM lock_history.run`) }
	before := xid()
	l.flushed(l.push(time.Second, history.Batch{Ticket: 3}))
	if after := xid(); after != before {
		t.Errorf("an empty batch wrote: run row of %s, before %s", after, before)
	}
	l.until("flush() is answered", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.tickets) == 1 })
	l.flushed(l.push(heartbeatIdle, history.Batch{}))
	if after := xid(); after == before {
		t.Error("no heartbeat after 15 idle minutes")
	}
	before = xid()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	if after := xid(); after == before {
		t.Error("no heartbeat while somebody waits")
	}
}

func TestLiveExtensionComesAndGoes(t *testing.T) {
	l := newLab(t, false)
	l.start()
	gap := func(n int) history.Batch {
		return history.Batch{Gaps: []history.Gap{{Began: l.now, Ended: l.now, Reason: history.GapLate, Lost: int64(n)}}}
	}
	l.until("it waits", func() bool { return l.store.Status().State == StateWaiting })
	l.push(time.Second, gap(1))
	l.until("the batch is let go", func() bool { return l.queue.Bytes() == 0 })
	l.expect("0", `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND datname = current_database()`)

	l.must(`CREATE EXTENSION pg_lock_history`)
	l.store.Poke()
	l.until("it records", func() bool { return l.store.Status().State == StateRecording })
	if !l.store.RewriteOpen() {
		t.Error("open waits are not asked for although none are in the tables")
	}
	l.flushed(l.push(time.Second, gap(2)))
	l.expect("2", `SELECT string_agg(lost::text, ',') FROM lock_history.gap`)
	if n := l.store.Status().RowsDropped; n != 0 {
		t.Errorf("%d rows are said to be lost", n)
	}

	l.must(`DROP EXTENSION pg_lock_history CASCADE`)
	l.must(`CREATE EXTENSION pg_lock_history`)
	l.store.Poke()
	l.until("open waits are asked for", l.store.RewriteOpen)
	l.flushed(l.push(time.Second, gap(3)))
	l.expect("3", `SELECT string_agg(lost::text, ',') FROM lock_history.gap`)

	// Both unnoticed until the next batch.
	l.must(`UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'pg_lock_history'`)
	l.push(time.Second, gap(3))
	l.until("it refuses the other version", func() bool { return l.store.Status().State == StateVersion })
	l.must(`UPDATE pg_extension SET extversion = '1.0' WHERE extname = 'pg_lock_history'`)
	l.until("it records", func() bool { return l.store.Status().State == StateRecording && l.queue.Bytes() == 0 })
	l.must(`DROP EXTENSION pg_lock_history CASCADE`)
	l.push(time.Second, gap(4))
	l.until("it waits again", func() bool { return l.store.Status().State == StateWaiting })
	l.until("nothing is kept", func() bool { return l.queue.Bytes() == 0 })
}

func TestLiveRuns(t *testing.T) {
	l := newLab(t, true)
	l.start()
	beat := l.push(time.Second, history.Batch{Waiting: true})
	l.flushed(beat)
	l.expect("0", `SELECT count(*) FROM lock_history.gap`)
	idle := l.push(time.Minute, history.Batch{})
	l.flushed(idle)
	l.stop()
	l.expect("t", `SELECT left((heartbeat = $1::timestamptz)::text, 1) FROM lock_history.run`, idle.Time()) // exact at an orderly end

	l.now = l.now.Add(time.Hour)
	l.cfg.Server.WorkerStart = l.now
	l.start()
	l.until("it records", func() bool { return l.store.Status().State == StateRecording })
	l.expect("2", `SELECT count(*) FROM lock_history.run`)
	l.expect("1", `SELECT count(*) FROM lock_history.node`)
	l.expect("stopped 01:00:00", `SELECT reason || ' ' || (ended - began) FROM lock_history.gap`)
	l.stop()

	// The server went on, and knows how far the last life had got.
	l.cfg.Server.PreviousFlush = l.now.Add(10 * time.Minute)
	l.now = l.now.Add(11 * time.Minute)
	l.cfg.Server.WorkerStart = l.now
	l.start()
	l.until("it records", func() bool { return l.store.Status().State == StateRecording })
	l.expect("stopped 00:01:00 the worker did not end in order", `SELECT reason || ' ' || (ended - began) || ' ' || detail FROM lock_history.gap ORDER BY began DESC LIMIT 1`)
	l.stop()

	l.cfg.Server.PreviousFlush = 0
	l.now = l.now.Add(30 * 24 * time.Hour)
	l.cfg.Server.WorkerStart = l.now
	l.start()
	l.until("it records", func() bool { return l.store.Status().State == StateRecording })
	l.expect("1", `SELECT count(*) FROM lock_history.run`) // old ones are removed
}

// After reset() there is no segment for the gap before a life: it is not forgotten.
func TestLiveGapBeforeTheFirstSegment(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	l.stop()
	l.must(`SELECT lock_history.reset()`)
	l.now = l.now.Add(time.Hour)
	l.cfg.Server.WorkerStart = l.now
	l.start()
	l.flushed(l.push(time.Second, history.Batch{}))
	l.expect("stopped 01:00:00", `SELECT reason || ' ' || (ended - began) FROM lock_history.gap`)
}

// Without statistics the planner takes a view of the last minutes for a big one.
func TestLiveCurrentSegmentIsAnalyzed(t *testing.T) {
	l := newLab(t, true)
	l.start()
	gaps := make([]history.Gap, analyzeFirst)
	for i := range gaps {
		gaps[i] = history.Gap{Began: 1, Ended: 2, Reason: history.GapLate}
	}
	l.flushed(l.push(time.Second, history.Batch{Gaps: gaps[:analyzeFirst-1]}))
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	l.expect("-1", `SELECT max(reltuples) FROM pg_class WHERE relname LIKE 'gap\_%'`)
	l.flushed(l.push(time.Second, history.Batch{Gaps: gaps[:1]}))
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	l.expect("1000", `SELECT max(reltuples) FROM pg_class WHERE relname LIKE 'gap\_%'`)
}

func TestLiveConnectionLost(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate, Lost: 1}}}))
	for i := range 3 {
		l.must(`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND datname = current_database()`)
		l.flushed(l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate, Lost: int64(i + 2)}}}))
	}
	l.expect("1,2,3,4", `SELECT string_agg(lost::text, ',' ORDER BY lost) FROM lock_history.gap`)
	if st := l.store.Status(); st.State != StateRecording || st.LastError != "" || st.Errors == 0 {
		t.Errorf("status %+v", st)
	}
}

// A commit whose answer got lost is not repeated: another session brings the
// hand in under its number, as the lost commit would have.
func TestLiveBatchIsWrittenOnce(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	other := connect(t, l.dsn)
	l.mustOn(other, `BEGIN`)
	l.mustOn(other, `UPDATE lock_history.run SET batch = 2`) // batch 2 is "still committing"
	end := l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}})
	l.until("the writer waits for the row", func() bool {
		return l.query(`SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND application_name = 'pg_lock_history writer' AND datname = current_database()`) == "1"
	})
	l.mustOn(other, `COMMIT`)
	l.flushed(end)
	l.expect("0", `SELECT count(*) FROM lock_history.gap`)
}

// A server process in the kernel, waiting for a disk, answers no timeout and no
// signal; one that is stopped does not either.
func TestLiveStalledDisk(t *testing.T) {
	l := newLab(t, true)
	l.stuckAfter = 200 * time.Millisecond
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}}))
	var pid int
	fmt.Sscan(l.query(`SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()`, writerName), &pid)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Skipf("the server runs as somebody else: %v", err)
	}
	goOn := func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(goOn)
	to := l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}})
	l.until("it is told", func() bool {
		st := l.store.Status()
		return st.State == StateWriting && strings.Contains(st.LastError, "has not answered the writer")
	})
	if n := l.query(`SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()`, writerName); n != "1" {
		t.Errorf("%s sessions of the writer, the one that is stuck should be all", n)
	}
	goOn()
	l.flushed(to)
	l.until("all is well again", func() bool { st := l.store.Status(); return st.State == StateRecording && st.LastError == "" })
	told := 0
	for _, text := range l.texts {
		if strings.Contains(text, "has not answered the writer") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times: %q", told, l.texts)
	}
}

func TestLiveLockedTables(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	other := connect(t, l.dsn)
	l.mustOn(other, `BEGIN`)
	l.mustOn(other, `LOCK TABLE lock_history.gap, lock_history.episode IN ACCESS EXCLUSIVE MODE`)
	var end snapshot.Micros
	for i := range 5 {
		end = l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate, Lost: int64(i)}}})
	}
	l.until("it says so", func() bool { return l.store.Status().State == StateWriting })
	if st := l.store.Status(); !strings.Contains(st.LastError, "locked by somebody") || st.Hint == "" {
		t.Errorf("status %+v", st)
	}
	l.mustOn(other, `COMMIT`)
	l.flushed(end)
	l.expect("0,1,2,3,4", `SELECT string_agg(lost::text, ',' ORDER BY lost) FROM lock_history.gap`)
}

func TestLiveQueueOverflowIsAGap(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	l.store.RewriteOpen()
	other := connect(t, l.dsn)
	l.mustOn(other, `BEGIN`)
	l.mustOn(other, `LOCK TABLE lock_history.run IN ACCESS EXCLUSIVE MODE`)
	l.push(time.Second, history.Batch{Gaps: make([]history.Gap, 1)})
	l.until("the first is taken", func() bool { return l.queue.Len() == 0 })
	l.queue.SetLimit(queue.Limit{Bytes: l.queue.Bytes() * 5 / 2})
	l.push(time.Second, history.Batch{Gaps: make([]history.Gap, 1)})
	end := l.push(time.Second, history.Batch{Gaps: make([]history.Gap, 1)})
	l.mustOn(other, `COMMIT`)
	l.flushed(end)
	l.expect("1 00:00:01", `SELECT lost || ' ' || (ended - began) FROM lock_history.gap WHERE reason = 'writer blocked'`)
	if st := l.store.Status(); st.RowsDropped != 1 {
		t.Errorf("status %+v", st)
	}
	if !l.store.RewriteOpen() {
		t.Error("open waits may be among what was lost")
	}
}

// Of an open wait the row that was written last counts, also when the clock was
// set back in between.
func TestLiveClockSetBack(t *testing.T) {
	l := newLab(t, true)
	l.start()
	e := l.wait(60, lockmgr.Tag{Type: lockmgr.Advisory, Field2: 1}, l.session(50, "BEGIN"))
	l.flushed(l.push(time.Second, history.Batch{Waiting: true, Open: []history.Episode{e}, OldestOpen: e.Start}))
	for samples, step := range []time.Duration{-5 * time.Second, time.Second, 0, 20 * time.Second} {
		e.Samples = int64(100 + samples)
		l.push(step, history.Batch{Waiting: true, Open: []history.Episode{e}, OldestOpen: e.Start})
		l.until("the batch is written", func() bool { return l.query(`SELECT batch FROM lock_history.run`) == fmt.Sprint(l.number) })
		l.expect(fmt.Sprint(e.Samples), `SELECT samples FROM lock_history.waits`)
	}
}

// The end of a wait is among what was dropped: nobody knows how it went on, and
// nobody says that it does.
func TestLiveLostEnd(t *testing.T) {
	l := newLab(t, true)
	l.start()
	stays := l.wait(61, lockmgr.Tag{Type: lockmgr.Advisory, Field2: 1}, l.session(50, "BEGIN"))
	ends := l.wait(60, lockmgr.Tag{Type: lockmgr.Advisory, Field2: 1}, l.session(50, "BEGIN"))
	l.flushed(l.push(time.Second, history.Batch{Waiting: true, Open: []history.Episode{stays, ends}, OldestOpen: ends.Start}))
	other := connect(t, l.dsn)
	l.mustOn(other, `BEGIN; LOCK TABLE lock_history.run IN ACCESS EXCLUSIVE MODE`)
	began := l.push(time.Second, history.Batch{Gaps: make([]history.Gap, 1)})
	l.until("the first is taken", func() bool { return l.queue.Len() == 0 })
	l.queue.SetLimit(queue.Limit{Bytes: 1})
	closed := ends
	closed.End, closed.Outcome = l.now.Add(time.Second), history.Granted
	l.push(time.Second, history.Batch{Closed: []history.Episode{closed}})
	end := l.push(time.Second, history.Batch{Waiting: true, OldestOpen: stays.Start})
	l.mustOn(other, `COMMIT`)
	l.flushed(end)
	l.expect("2", `SELECT count(*) FROM lock_history.waits WHERE outcome = 'unknown'`)
	l.expect("t", `SELECT left((min(wait_end) = $1 AND max(wait_end) = $1)::text, 1) FROM lock_history.waits`, began.Time())
	if !l.store.RewriteOpen() {
		t.Fatal("the one that goes on is not asked for")
	}
	l.queue.SetLimit(queue.Limit{Bytes: 1 << 20})
	l.flushed(l.push(time.Second, history.Batch{Waiting: true, Open: []history.Episode{stays}, OldestOpen: stays.Start}))
	l.expect("61", `SELECT string_agg(pid::text, ',') FROM lock_history.open AS o JOIN lock_history.actor AS a USING (actor_id) WHERE o.written_at > (SELECT upper(lost) FROM lock_history.run)`)
}

// While waits are not sampled nobody knows how they go on, also when a heartbeat is
// written then, and when the life of the worker ends in such a time.
func TestLiveOpenInAPause(t *testing.T) {
	for _, c := range []struct {
		name string
		run  int64 // of the batches
		gap  history.Gap
		asOf bool   // written again in the pause, as it was seen before
		want string // how the wait shows
	}{
		{"disabled", 0, history.Gap{Reason: history.GapDisabled}, false, "unknown"},
		{"no waits", 0, history.Gap{Reason: history.GapDisabled, Part: history.PartWaits}, false, "unknown"},
		{"no load", 0, history.Gap{Reason: history.GapDisabled, Part: history.PartLoad}, false, ""},
		{"looked again since", 0, history.Gap{Reason: history.GapLate}, false, ""},
		{"of a life before", 1, history.Gap{Reason: history.GapDisabled}, false, "unknown"},
		{"written again", 0, history.Gap{Reason: history.GapDisabled}, true, "unknown"},
		{"written again by a life before", 1, history.Gap{Reason: history.GapDisabled}, true, "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, true)
			run := int64(0)
			if c.run != 0 {
				run = int64(l.cfg.Server.WorkerStart) - c.run
			}
			e := l.wait(60, lockmgr.Tag{Type: lockmgr.Advisory, Field2: 1}, l.session(50, "BEGIN"))
			complete := l.now
			c.gap.Began, c.gap.Ended = complete.Add(time.Second), complete.Add(3*time.Second)
			batches := []history.Batch{
				{Run: run, Number: 1, CompleteTo: complete, Waiting: true, Open: []history.Episode{e}, OldestOpen: e.Start},
				{Run: run, Number: 2, CompleteTo: complete.Add(3 * time.Second), Gaps: []history.Gap{c.gap}, OldestOpen: e.Start},
			}
			if c.asOf {
				batches[1].Open, batches[1].OpenAsOf = batches[0].Open, c.gap.Began
			}
			if c.run != 0 {
				l.earlier = []history.Run{{ID: run, CompleteTo: batches[1].CompleteTo}}
				l.restore = []queue.Item{{Batch: &batches[0], From: complete}, {Batch: &batches[1], From: complete}}
				l.start()
				l.flushed(l.push(5*time.Second, history.Batch{Waiting: true}))
			} else {
				l.start()
				l.flushed(l.push(0, batches[0]))
				l.flushed(l.push(3*time.Second, batches[1]))
			}
			l.expect(c.want, `SELECT coalesce(outcome, '') FROM lock_history.waits`)
			if c.want != "" {
				l.expect("t", `SELECT left((wait_end = $1)::text, 1) FROM lock_history.waits`, c.gap.Began.Time())
			}
			if c.run == 0 {
				l.flushed(l.push(time.Second, history.Batch{Waiting: true, Open: []history.Episode{e}, OldestOpen: e.Start}))
				l.expect("", `SELECT coalesce(outcome, '') FROM lock_history.waits`)
			}
		})
	}
}

// Each wait that is lost ends with the first time that it may have ended in, however
// many come after it; when they are too many, with the moment when it was last written.
func TestLiveManyLosses(t *testing.T) {
	l := newLab(t, true)
	l.start()
	long := l.wait(59, lockmgr.Tag{Type: lockmgr.Advisory, Field2: 1}, l.session(50, "BEGIN")) // keeps oldest_open where it is
	var began, written []snapshot.Micros
	ended := func(want []snapshot.Micros) {
		t.Helper()
		for i, at := range want {
			l.expect("t", `SELECT left((count(*) = 1 AND min(wait_end) = $2)::text, 1) FROM lock_history.waits WHERE pid = $1`, 60+i, at.Time())
		}
	}
	for i := range maxLosses + 2 {
		e := l.wait(int32(60+i), lockmgr.Tag{Type: lockmgr.Advisory, Field2: 1}, l.session(50, "BEGIN"))
		written = append(written, l.push(time.Second, history.Batch{Waiting: true, OldestOpen: long.Start, Open: []history.Episode{long, e}}))
		l.flushed(written[i])
		gap := history.Gap{Began: l.now.Add(time.Second), Ended: l.now.Add(2 * time.Second), Reason: history.GapDisabled}
		began = append(began, gap.Began)
		l.flushed(l.push(3*time.Second, history.Batch{Waiting: true, OldestOpen: long.Start, Gaps: []history.Gap{gap}}))
		switch i {
		case 3:
			ended(began)
		case maxLosses:
			ended(append(began[:1:1], written[1:]...))
		}
	}
	ended(append(append(began[:1:1], written[1:maxLosses+1]...), began[maxLosses+1]))
	l.expect("2", `SELECT count(*) FROM lock_history.run, unnest(lost)`)
}

func TestLiveRingTurns(t *testing.T) {
	l := newLab(t, true)
	l.start()
	day := l.cfg.Retention / (ring.Segments - 1)
	gap := history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}}
	idle, steady := l.session(50, "BEGIN"), l.session(51, "BEGIN")
	l.flushed(l.push(time.Second, gap))
	l.until("the first segment is open", l.store.RewriteOpen)
	l.flushed(l.push(10*time.Second, gap))
	for i := range 10 {
		// The next segment is emptied ahead of need at the first of these and
		// opened at the last, which reaches back 10 s.
		l.flushed(l.push(day/5*4, gap))
		early := l.wait(int32(200+i), lockmgr.Tag{Field1: 740, Type: lockmgr.TransactionID}, steady)
		l.flushed(l.push(day/5-15*time.Second, history.Batch{Open: []history.Episode{early}}))
		l.expect("1", `SELECT count(*) FROM lock_history.actor AS a JOIN lock_history.open AS o USING (seg) WHERE a.pid = 51 AND o.wait_id = $1::int`, 200+i)
		e := l.wait(int32(100+i), lockmgr.Tag{Field1: 740, Type: lockmgr.TransactionID}, idle)
		l.flushed(l.push(10*time.Second, history.Batch{Open: []history.Episode{e}}))
		l.until("open waits are asked for", l.store.RewriteOpen)
		want := fmt.Sprint((i + 1) % ring.Segments)
		l.expect(want, `SELECT seg FROM lock_history.ring WHERE closed_at IS NULL AND opened_at IS NOT NULL`)
		l.expect(want, `SELECT seg FROM lock_history.open WHERE wait_id = $1::int`, 100+i)
		l.expect("1", `SELECT count(*) FROM lock_history.actor WHERE pid = 50 AND seg = $1::text::smallint`, want)
	}
	// Ten segments were opened after the first; what was in those that came
	// round again is gone, the rest is there.
	l.expect("105,106,107,108,109", `SELECT string_agg(wait_id::text, ',' ORDER BY wait_id) FROM lock_history.open WHERE wait_id BETWEEN 105 AND 199`)
	l.expect("0", `SELECT count(*) FROM lock_history.open WHERE wait_id <= 101`)
	l.expect("t", `SELECT left((reltuples >= 0)::text, 1) FROM pg_class WHERE oid = 'lock_history.gap_1'::regclass`) // analyzed when closed
}

func TestLiveRingHeldByReader(t *testing.T) {
	l := newLab(t, true)
	l.cfg.MaxSize = 8 << 20 // a megabyte for each segment
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	for seg := range ring.Segments { // all have been used
		if seg != 0 {
			l.must(fmt.Sprintf(`INSERT INTO lock_history.gap_%d SELECT %d, 1, 1, now(), now(), 'old', 0, NULL`, seg, seg))
		}
	}
	l.must(`UPDATE lock_history.ring SET is_empty = false, round = 1, opened_at = now(), closed_at = now() WHERE seg <> 0`)
	reader := connect(t, l.dsn)
	l.mustOn(reader, `BEGIN; SELECT count(*) FROM lock_history.gap_1`)

	rows := make([]history.Health, 2000)
	fill := func() { l.flushed(l.push(time.Second, history.Batch{Health: rows})) }
	began, fills := time.Now(), 0
	for ; l.store.Status().State != StateHeld; fills++ {
		if fills > 100 {
			t.Fatalf("never held: %+v", l.store.Status())
		}
		fill()
	}
	// From three quarters of a share on each flush finds the segment in use.
	// One that queued behind the reader would do so for lock_timeout, 1 s.
	if took := time.Since(began); took > time.Duration(fills)*500*time.Millisecond {
		t.Errorf("%d flushes took %s: they waited for the reader", fills, took)
	}
	var size int64
	fmt.Sscan(l.query(`SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname ~ '^(actor|episode|open|short_wait|deadlock|gap|health_minute)_0$'`), &size)
	if size < 2<<20*9/10 || size > 3<<20 {
		t.Errorf("segment 0 has %d bytes when it stops growing, want about twice its share of 1 MB", size)
	}
	l.expect("old", `SELECT reason FROM lock_history.gap_1`) // the reader lost nothing
	l.store.RewriteOpen()

	l.mustOn(reader, `COMMIT`)
	fill()
	l.until("it records", func() bool { return l.store.Status().State == StateRecording })
	l.expect("t", `SELECT left((lost > 0 AND ended > began)::text, 1) FROM lock_history.gap WHERE reason = 'ring held'`)
	l.expect("1", `SELECT seg FROM lock_history.ring WHERE closed_at IS NULL`)
	if !l.store.RewriteOpen() {
		t.Error("open waits may be among what was dropped")
	}
}

func TestLiveStopping(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}})
	select {
	case <-l.store.Stopping():
	case <-time.After(patience):
		t.Fatal("connections are not closed")
	}
	l.until("the sessions are gone", func() bool {
		return l.query(`SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pg_lock_history %' AND datname = current_database()`) == "0"
	})
	l.expect("1", `SELECT count(*) FROM lock_history.gap`)
	l.push(time.Second, history.Batch{Waiting: true})
	if st := l.store.Status(); st.State != StateStopped {
		t.Errorf("status %+v", st)
	}
}

func TestLiveRefusals(t *testing.T) {
	tests := []struct {
		name, sql string
		change    func(*config.Config)
		state     string
		says      string // in message or hint
	}{
		{"trigger", `CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
			CREATE TRIGGER t BEFORE INSERT ON lock_history.gap_3 FOR EACH ROW EXECUTE FUNCTION evil()`, nil, StateRefused, "gap_3 has a trigger"},
		{"rule", `CREATE RULE r AS ON INSERT TO lock_history.node DO ALSO NOTHING`, nil, StateRefused, "node has a rule"},
		{"owner", `CREATE ROLE plh_other; ALTER TABLE lock_history.open_2 OWNER TO plh_other`, nil, StateRefused, "open_2 has another owner"},
		{"older", ``, func(c *config.Config) { c.Server.ExtensionVersion = "1.1" }, StateVersion, "ALTER EXTENSION pg_lock_history UPDATE"},
		{"newer", `UPDATE pg_extension SET extversion = '1.10' WHERE extname = 'pg_lock_history'`, nil, StateVersion, "Install the libraries of version 1.10"},
		{"database", ``, func(c *config.Config) { c.Database = "no_such_database" }, StateConnect, `"no_such_database" does not exist`},
		{"database of conninfo", ``, func(c *config.Config) { c.ConnInfo = "dbname=no_such_database" }, StateConnect, "dbname in pg_lock_history.conninfo"},
		{"no connections", ``, func(c *config.Config) { c.Database = "template0" }, StateConnect, "does not accept connections"},
		{"template", ``, func(c *config.Config) { c.Database = "template1" }, StateConnect, `"template1" is a template`},
		{"template of conninfo", ``, func(c *config.Config) { c.ConnInfo = "dbname=template1" }, StateConnect, "dbname in pg_lock_history.conninfo"},
		{"all tables are published", `CREATE PUBLICATION p FOR ALL TABLES`, nil, StatePublished, `publication "p"`},
		{"schema is published", `CREATE PUBLICATION p FOR TABLES IN SCHEMA lock_history`, nil, StatePublished, `publication "p"`},
		{"table is published", `CREATE PUBLICATION p FOR TABLE lock_history.gap_3`, nil, StatePublished, `publication "p"`},
		{"socket", ``, func(c *config.Config) { c.Server.SocketDirectories = []string{"/does/not/exist"} }, StateConnect, "unix_socket_directories"},
		{"other server", ``, func(c *config.Config) { c.Server.PostmasterStart++ }, StateConnect, "not the one this worker belongs to"},
		{"role", ``, func(c *config.Config) { c.Server.BootstrapRole = "no_such_role" }, StateConnect, `role "no_such_role" does not exist`},
		{"role without LOGIN", `CREATE ROLE plh_weak`, func(c *config.Config) { c.ConnInfo = "user=plh_weak" }, StateConnect, `role "plh_weak" does not exist or may not log in`},
		{"other server by conninfo", ``, func(c *config.Config) { c.ConnInfo = "user=" + c.Server.BootstrapRole; c.Server.PostmasterStart++ }, StateConnect, "not the one this worker belongs to"},
		{"conninfo", ``, func(c *config.Config) { c.ConnInfo = "host=/does/not/exist" }, StateConnect, "pg_lock_history.conninfo"},
		{"conninfo without sense", ``, func(c *config.Config) { c.ConnInfo = "port=many password=s3cret" }, StateConnect, "pg_lock_history.conninfo"},
		{"rights", `CREATE ROLE plh_weak LOGIN`, func(c *config.Config) { c.ConnInfo = "user=plh_weak" }, StateRefused, "grant_writer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, true)
			t.Cleanup(func() {
				l.must(`DROP PUBLICATION IF EXISTS p; DROP EXTENSION IF EXISTS pg_lock_history CASCADE; DROP ROLE IF EXISTS plh_other, plh_weak`)
			})
			if tt.sql != "" {
				l.must(tt.sql)
			}
			if tt.change != nil {
				tt.change(&l.cfg)
			}
			l.start()
			l.until("it refuses", func() bool { return l.store.Status().State == tt.state && len(l.texts) > 0 })
			all := strings.Join(l.texts, "\n")
			if !strings.Contains(all, tt.says) {
				t.Errorf("message %q does not say %q", all, tt.says)
			}
			if strings.Contains(all, "s3cret") {
				t.Errorf("message shows the password: %q", all)
			}
			errors := l.store.Status().Errors
			l.until("it has tried again", func() bool { return l.store.Status().Errors >= errors+2 })
			if len(l.texts) > 2 { // the namer may have something to say as well
				t.Errorf("said more than once: %q", l.texts)
			}
		})
	}
}

func TestLiveReconfigure(t *testing.T) {
	l := newLab(t, true)
	good := l.cfg
	l.cfg.Database = "no_such_database"
	l.start()
	l.until("it cannot connect", func() bool { return l.store.Status().State == StateConnect })
	end := l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}})
	l.store.Configure(good)
	l.flushed(end)
	l.expect("1", `SELECT count(*) FROM lock_history.gap`)
}

// A history that was not written to for a time says so when it is again.
func TestLiveWrittenElsewhere(t *testing.T) {
	l := newLab(t, true)
	home, other := l.cfg, l.cfg.Database+"_2"
	l.must(`CREATE DATABASE ` + other)
	t.Cleanup(func() { l.must(`DROP DATABASE ` + other + ` WITH (FORCE)`) })
	there := connect(t, l.dsn+" database="+other)
	l.mustOn(there, `SET client_min_messages = error`)
	l.mustOn(there, `CREATE EXTENSION pg_lock_history`)
	l.start()
	tag := lockmgr.Tag{Field1: 740, Type: lockmgr.TransactionID}
	began := l.push(time.Second, history.Batch{Open: []history.Episode{l.wait(60, tag, l.session(50, "BEGIN"))}})
	l.flushed(began)

	away := l.cfg
	away.Database = other
	l.store.Configure(away)
	l.until("it records elsewhere", func() bool { return strings.Contains(l.store.Status().Target, "dbname="+other) })
	ended := l.push(time.Minute, history.Batch{Open: []history.Episode{l.wait(61, tag, l.session(50, "BEGIN"))}})
	l.flushed(ended)

	l.store.Configure(home)
	l.until("it is back", func() bool { return strings.Contains(l.store.Status().Target, "dbname="+home.Database) })
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	l.expect("elsewhere t t", `SELECT string_agg(concat_ws(' ', reason, began = $1::timestamptz, ended = $2::timestamptz), ',') FROM lock_history.gap`, began.Time(), ended.Time())
	l.expect("60", `SELECT string_agg(wait_id::text, ',') FROM lock_history.open`)
}

// Another way to the same server is no other history.
func TestLiveSameHistoryByAnotherWay(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	l.flushed(l.push(time.Minute, history.Batch{})) // nothing to write: the heartbeat stays
	for _, conninfo := range []string{l.dsn, "application_name=x " + l.dsn, ""} {
		c := l.cfg
		c.ConnInfo = conninfo
		l.store.Configure(c)
		l.push(time.Second, history.Batch{Waiting: true})
		l.flushed(l.now)
	}
	l.expect("0", `SELECT count(*) FROM lock_history.gap`)
}

// Of an idle server the heartbeat is old. Neither the time up to the change nor
// a time that was told already is said to be missing, and another way to the
// same tables is no absence.
func TestLiveElsewhereIsToldOnceAndFromTheChange(t *testing.T) {
	l := newLab(t, true)
	other := l.cfg.Database + "_2"
	l.must(`CREATE DATABASE ` + other)
	t.Cleanup(func() { l.must(`DROP DATABASE ` + other + ` WITH (FORCE)`) })
	there := connect(t, l.dsn+" database="+other)
	l.mustOn(there, `SET client_min_messages = error`)
	l.mustOn(there, `CREATE EXTENSION pg_lock_history`)
	const gaps = `SELECT coalesce(string_agg(concat_ws('/', extract(epoch FROM began - $1::timestamptz)::int, extract(epoch FROM ended - $1::timestamptz)::int), ' ' ORDER BY began), '')
		FROM lock_history.gap WHERE reason = 'elsewhere'`
	l.start()
	start, socket := l.now.Time(), l.cfg.Server.SocketDirectories[1]
	home, away := l.cfg, l.cfg
	away.Database = other
	writer := `SELECT string_agg(pid::text, ',') FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND datname = $1`
	change := func(c config.Config) {
		l.t.Helper()
		l.cfg.Database = c.Database
		old := l.query(writer, l.cfg.Database)
		l.store.Configure(c)
		l.until("another session writes", func() bool {
			now := l.query(writer, l.cfg.Database)
			return now != old && now != "<null>" && !strings.Contains(now, ",") && l.store.Status().State == StateRecording
		})
	}
	idle := func() { l.t.Helper(); l.flushed(l.push(time.Minute, history.Batch{})) }

	idle()
	for _, conninfo := range []string{"host=" + socket, fmt.Sprintf("port=%d", home.Server.Port), ""} {
		c := home
		c.ConnInfo = conninfo
		change(c)
		idle()
	}
	l.flushed(l.push(time.Minute, history.Batch{Waiting: true})) // writes what there is to tell
	l.expect("", gaps, start)

	idle() // complete at 6 minutes, in the tables at 5
	change(away)
	idle()
	change(home)
	change(away) // before the gap is written
	idle()
	change(home)
	idle()
	l.expect("360/480", gaps, start)
	change(away)
	change(home) // nothing lies between
	l.flushed(l.push(time.Minute, history.Batch{Waiting: true}))
	l.expect("360/480", gaps, start)

	// A lost connection in between forgets nothing, nor does the end.
	change(away)
	idle()
	change(home)
	l.must(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND datname = $1`, home.Database)
	idle()
	l.expect("360/480 600/660", gaps, start)
	change(away)
	idle()
	change(home)
	l.stop()
	l.expect("360/480 600/660 720/780", gaps, start)
	var before string
	if err := there.QueryRow(t.Context(), gaps, start).Scan(&before); err != nil {
		t.Fatal(err)
	}
	if before != "480/600 660/720" {
		t.Errorf("told elsewhere: %q", before)
	}
}

// What is let go of while there are no tables is missing in those that come back.
func TestLiveLetGoIsElsewhere(t *testing.T) {
	l := newLab(t, true)
	other := l.cfg.Database + "_2"
	l.must(`CREATE DATABASE ` + other)
	t.Cleanup(func() { l.must(`DROP DATABASE ` + other + ` WITH (FORCE)`) })
	l.start()
	home, away := l.cfg, l.cfg
	away.Database = other
	began := l.push(time.Minute, history.Batch{})
	l.flushed(began)
	l.store.Configure(away)
	l.until("it waits", func() bool { return l.store.Status().State == StateWaiting })
	ended := l.push(time.Minute, late(1))
	l.until("the batch is let go", func() bool { return l.queue.Bytes() == 0 })
	l.store.Configure(home)
	l.flushed(l.push(time.Minute, history.Batch{Waiting: true}))
	l.expect("elsewhere t t", `SELECT string_agg(concat_ws(' ', reason, began = $1::timestamptz, ended = $2::timestamptz), ',') FROM lock_history.gap`, began.Time(), ended.Time())
}

func TestLiveNamesThatAreNoUTF8(t *testing.T) {
	l := newLab(t, true)
	raw := l.cfg.Database + "_raw"
	l.must(`CREATE DATABASE ` + raw + ` TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'`)
	t.Cleanup(func() { l.must(`DROP DATABASE ` + raw + ` WITH (FORCE)`) })
	there := connect(t, l.dsn+" database="+raw+" client_encoding=SQL_ASCII")
	l.mustOn(there, "CREATE TABLE \"bad\xff\xfe\" (i int)")
	l.mustOn(there, `CREATE TABLE good (i int)`)
	var db, bad, good uint32
	err := there.QueryRow(t.Context(), `SELECT (SELECT oid FROM pg_database WHERE datname = current_database()),
		(SELECT oid FROM pg_class WHERE relname LIKE 'bad%'), 'good'::regclass::oid`).Scan(&db, &bad, &good)
	if err != nil {
		t.Fatal(err)
	}
	_ = there.Close(t.Context())
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Open: []history.Episode{
		l.wait(1, lockmgr.Tag{Field1: db, Field2: bad}, l.session(50, "BEGIN")),
		l.wait(2, lockmgr.Tag{Field1: db, Field2: good}, l.session(50, "BEGIN")),
	}}))
	l.expect(`public."bad\xFF\xFE" public.good`, `SELECT string_agg(object, ' ' ORDER BY wait_id) FROM lock_history.open`)
}

func TestLiveEncoding(t *testing.T) {
	l := newLab(t, true)
	l.start()
	bad := l.session(50, "SELECT 'gr\xf6\xdfe', 'größe', 'a\x00b'")
	bad.ApplicationName = "caf\xe9"
	end := l.push(time.Second, history.Batch{Open: []history.Episode{l.wait(60, lockmgr.Tag{Type: lockmgr.TransactionID, Field1: 1}, bad)}})
	l.flushed(end)
	l.expect(`SELECT 'gr\xF6\xDFe', 'größe', 'a`, `SELECT query FROM lock_history.actor WHERE pid = 50`)
	l.expect(`caf\xE9`, `SELECT application_name FROM lock_history.actor WHERE pid = 50`)
}

func TestLiveNames(t *testing.T) {
	l := newLab(t, true)
	there := l.cfg.Database + "_b"
	if len(there) > 63 {
		there = there[:63]
	}
	ident := pgx.Identifier{there}.Sanitize()
	l.must(`CREATE DATABASE ` + ident)
	t.Cleanup(func() { l.must(`DROP DATABASE IF EXISTS ` + ident + ` WITH (FORCE)`) })
	other := connect(t, strings.Replace(l.dsn, "dbname="+l.cfg.Database, "dbname="+there, 1))
	l.mustOn(other, `CREATE TABLE "T x" (i int)`)
	l.must(`CREATE TABLE gone (i int); CREATE SCHEMA s9; CREATE INDEX ix ON gone (i)`)
	var foreign, foreignDB uint32
	if err := other.QueryRow(t.Context(), `SELECT '"T x"'::regclass::oid, (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&foreign, &foreignDB); err != nil {
		t.Fatal(err)
	}
	other.Close(t.Context())
	gone, index, schema := l.oid(`SELECT 'gone'::regclass::oid`), l.oid(`SELECT 'ix'::regclass::oid`), l.oid(`SELECT 's9'::regnamespace::oid`)
	here := l.databaseOID()
	l.must(`BEGIN`)
	l.must(`CREATE TABLE in_prepared (i int)`)
	xid := l.oid(`SELECT pg_current_xact_id()::text::int8::oid`)
	gid := "gid of " + l.cfg.Database
	l.must(`PREPARE TRANSACTION '` + gid + `'`)
	t.Cleanup(func() { l.must(`ROLLBACK PREPARED '` + gid + `'`) })

	l.start()
	n := l.store.Names()
	// Held by somebody in the strongest mode: looking it up needs no lock on it.
	locker := connect(t, l.dsn)
	l.mustOn(locker, `BEGIN; LOCK TABLE gone IN ACCESS EXCLUSIVE MODE`)
	goneTag := lockmgr.Tag{Field1: here, Field2: gone, Type: lockmgr.Relation}
	n.WantTag(goneTag)
	goneKey := nameKey{kind: relationName, database: here, a: gone}
	l.until("it is named", func() bool { return n.get(goneKey) == "public.gone" })
	l.mustOn(locker, `COMMIT`)

	tests := []struct {
		name string
		tag  lockmgr.Tag
		want string
	}{
		{"other database", lockmgr.Tag{Field1: foreignDB, Field2: foreign, Type: lockmgr.Relation}, `public."T x"`},
		{"index", lockmgr.Tag{Field1: here, Field2: index, Type: lockmgr.Relation}, "public.ix"},
		{"shared catalog", lockmgr.Tag{Field2: 1260, Type: lockmgr.Relation}, "pg_catalog.pg_authid"},
		{"schema", lockmgr.Tag{Field1: here, Field2: 2615, Field3: schema, Type: lockmgr.Object}, "schema s9"},
		{"role", lockmgr.Tag{Field2: 1260, Field3: 10, Type: lockmgr.Object}, "role " + l.cfg.Server.BootstrapRole},
		{"no such object", lockmgr.Tag{Field2: 2396, Type: lockmgr.Object}, "pg_shdescription 0"},
		{"no such relation", lockmgr.Tag{Field1: here, Field2: 4_000_000_000, Type: lockmgr.Relation}, "relation 4000000000"},
		{"no such database", lockmgr.Tag{Field1: 4_000_000_000, Field2: 5, Type: lockmgr.Relation}, "relation 5"},
	}
	var open []history.Episode
	prepared := &snapshot.Session{Prepared: xid, Database: here, Role: 10}
	for i, tt := range tests {
		open = append(open, l.wait(int32(i+1), tt.tag, prepared))
	}
	l.flushed(l.push(time.Second, history.Batch{Open: open}))
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l.expect(tt.want, `SELECT object FROM lock_history.open WHERE wait_id = $1::int`, i+1)
		})
	}
	l.expect(gid, `SELECT gid FROM lock_history.actor WHERE pid = 0`)
	l.expect("prepared true", `SELECT a.state || ' ' || (a.xact_start = p.prepared)
		FROM lock_history.actor AS a JOIN pg_prepared_xacts AS p ON p.gid = a.gid WHERE a.pid = 0`)
	l.expect(there, `SELECT datname FROM lock_history.open WHERE wait_id = 1`)

	// What is gone keeps its name, also when it is asked for again.
	l.must(`DROP TABLE gone`)
	n.store([]nameKey{goneKey}, nil)
	l.flushed(l.push(time.Second, history.Batch{Open: []history.Episode{l.wait(90, goneTag, prepared)}}))
	l.expect("public.gone", `SELECT object FROM lock_history.open WHERE wait_id = 90`)
}

// Rows that the server will never take must not keep those behind them.
// A name that comes after its row has been written is not lost: the open wait is
// written again.
func TestLiveLateNames(t *testing.T) {
	l := newLab(t, true)
	l.must(`CREATE TABLE slow (i int)`)
	rel := l.oid(`SELECT 'slow'::regclass::oid`)
	var asked atomic.Int32
	var open atomic.Bool
	l.mayDial = func() <-chan bool {
		answer := make(chan bool, 1)
		answer <- asked.Add(1) == 1 || open.Load() // the writer, and nobody else yet
		return answer
	}
	l.start()
	l.until("it records", func() bool { return l.store.Status().State == StateRecording })
	l.flushed(l.push(time.Second, history.Batch{Waiting: true})) // opens the first segment
	l.store.RewriteOpen()
	e := l.wait(60, lockmgr.Tag{Field1: l.databaseOID(), Field2: rel, Type: lockmgr.Relation, Method: 1}, l.session(50, "BEGIN"))
	batch := history.Batch{Waiting: true, Open: []history.Episode{e}}
	l.flushed(l.push(time.Second, batch))
	l.expect("0", `SELECT count(*) FROM lock_history.open WHERE object = 'public.slow'`)
	if l.store.RewriteOpen() {
		t.Error("open waits are asked for before there is a name")
	}
	open.Store(true)
	l.until("open waits are asked for again", func() bool {
		l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
		return l.store.RewriteOpen()
	})
	l.until("the name is there", func() bool {
		l.flushed(l.push(time.Second, batch))
		return l.query(`SELECT count(*) FROM lock_history.open WHERE object = 'public.slow'`) != "0"
	})
}

func TestLiveRefusedRows(t *testing.T) {
	l := newLab(t, true)
	l.must(`ALTER TABLE lock_history.gap_0 ADD CHECK (lost <> 13)`)
	l.start()
	gap := func(lost int64) history.Batch {
		return history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate, Lost: lost}}}
	}
	l.flushed(l.push(time.Second, gap(1)))
	l.push(time.Second, gap(13))
	l.until("the hand is dropped", func() bool { return l.store.Status().RowsDropped == 1 })
	l.flushed(l.push(time.Second, gap(2)))
	l.expect("1,1,2", `SELECT string_agg(lost::text, ',' ORDER BY lost) FROM lock_history.gap`)
	l.expect("1", `SELECT lost FROM lock_history.gap WHERE reason = 'writer blocked'`)
}

// A panic costs the batch that caused it and nothing else.
func TestLivePanic(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	l.store.flushed = func(uint64) { panic("a callback that fails") }
	l.push(time.Second, history.Batch{Ticket: 1, Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}})
	l.until("it is reported", func() bool { return strings.Contains(strings.Join(l.texts, "\n"), "a callback that fails") })
	l.flushed(l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}}))
}

// Two servers that write to one history: when one turns the ring, the other
// follows, and forgets what it knew about the segment before.
func TestLiveTwoNodes(t *testing.T) {
	l := newLab(t, true)
	l2 := &lab{t: t, dsn: l.dsn, db: l.db, cfg: l.cfg, now: l.now, changed: make(chan struct{})}
	l2.cfg.NodeName = "lab:2"
	tag := lockmgr.Tag{Field1: 740, Type: lockmgr.TransactionID}
	idle := l.session(50, "BEGIN")
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Open: []history.Episode{l.wait(60, tag, idle)}}))
	l2.start()
	day := l.cfg.Retention / (ring.Segments - 1)
	l2.flushed(l2.push(day+time.Minute, history.Batch{Open: []history.Episode{l2.wait(70, tag, idle)}}))
	l.flushed(l.push(day+2*time.Minute, history.Batch{Open: []history.Episode{l.wait(61, tag, idle)}}))

	l.expect("0:lab:1:60 1:lab:1:61 1:lab:2:70", `SELECT string_agg(seg || ':' || node || ':' || wait_id, ' ' ORDER BY seg, wait_id) FROM lock_history.open JOIN lock_history.node USING (node_id)`)
	l.expect("0:lab:1 1:lab:1 1:lab:2", `SELECT string_agg(seg || ':' || node, ' ' ORDER BY seg, node) FROM lock_history.actor JOIN lock_history.node USING (node_id) WHERE pid = 50`)
}

// Segments that grew one after the other do not add up past the bound: the
// oldest is given up early, wherever it is.
func TestLiveTotalSizeIsBounded(t *testing.T) {
	l := newLab(t, true)
	l.cfg.MaxSize = 8 << 20
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	for _, seg := range []int{3, 4, 5, 6} { // 1.8 MB each, nearly twice their share; empty tables take as much in all
		l.must(fmt.Sprintf(`INSERT INTO lock_history.gap_%d SELECT %d, 1, 1, now(), now(), 'old', 0, repeat('x', 900) FROM generate_series(1, 1800)`, seg, seg))
		l.must(`UPDATE lock_history.ring SET is_empty = false, round = 1, opened_at = now(), closed_at = now() WHERE seg = $1::int`, seg)
	}
	rows := make([]history.Health, 2000) // a quarter of a megabyte
	for range 3 {
		l.flushed(l.push(time.Second, history.Batch{Health: rows}))
	}
	l.expect("4,5,6", `SELECT string_agg(DISTINCT seg::text, ',' ORDER BY seg::text) FROM lock_history.gap WHERE reason = 'old'`)
	l.expect("3 is empty", `SELECT seg || ' is empty' FROM lock_history.ring WHERE is_empty AND seg = 3`)
}

// A session of another server is no business of this one's slots.
func TestLiveSlots(t *testing.T) {
	l := newLab(t, true)
	var spare atomic.Bool
	var asked atomic.Int32
	l.mayDial = func() <-chan bool {
		asked.Add(1)
		answer := make(chan bool, 1)
		answer <- spare.Load()
		return answer
	}
	l.start()
	end := l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}})
	l.store.Names().WantSession(&snapshot.Session{Role: 10})
	l.until("it has asked several times", func() bool { return l.store.Status().State == StateSlots && l.store.Status().Errors > 2 })
	l.expect("0", `SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pg_lock_history %' AND datname = current_database()`)
	if n := strings.Count(strings.Join(l.texts, "\n"), "the writer waits for one"); n != 1 {
		t.Errorf("told %d times: %q", n, l.texts)
	}
	spare.Store(true)
	l.flushed(end)
	l.expect("1", `SELECT count(*) FROM lock_history.gap`)
	l.until("roles are named", func() bool {
		l.store.Names().WantSession(&snapshot.Session{Role: 10})
		return l.store.Names().get(roleKey(10)) == l.cfg.Server.BootstrapRole
	})
	l.stop()

	// By host and port of a server that is not ours as far as is known.
	spare.Store(false)
	asked.Store(0)
	admin := l.db.Config()
	l.cfg.ConnInfo = fmt.Sprintf("host=%s port=%d user=%s", admin.Host, admin.Port, admin.User)
	l.cfg.Server.Port++
	l.start()
	l.until("it records", func() bool { return l.store.Status().State == StateRecording })
	if n := asked.Load(); n != 0 {
		t.Errorf("asked %d times for a slot of this server", n)
	}
}

// Nothing of ours is committed once a publication would send it: not the rows,
// not the heartbeat, not an emptied segment.
func TestLivePublished(t *testing.T) {
	for _, pub := range []string{"FOR ALL TABLES", "FOR TABLES IN SCHEMA lock_history", "FOR TABLE lock_history.run"} {
		t.Run(pub, func(t *testing.T) {
			l := newLab(t, true)
			l.start()
			gap := history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}}
			l.flushed(l.push(time.Second, gap))
			l.must(`UPDATE lock_history.ring SET is_empty = false WHERE seg = 1`) // to be emptied before the next change
			l.must(`CREATE PUBLICATION p ` + pub)
			written := func() string {
				return l.query(`SELECT concat_ws(' ', (SELECT count(*) FROM lock_history.gap), (SELECT string_agg(is_empty::text, ',' ORDER BY seg) FROM lock_history.ring), (SELECT r.xmin FROM lock_history.run AS r))`)
			}
			before := written()
			day := l.cfg.Retention / (ring.Segments - 1)
			end := l.push(day, gap)
			l.until("it stops", func() bool { return l.store.Status().State == StatePublished && l.store.Status().Errors > 2 })
			if after := written(); after != before {
				t.Errorf("written although published: %s, before %s", after, before)
			}
			l.must(`DROP PUBLICATION p`)
			l.flushed(end)
			l.expect("2", `SELECT count(*) FROM lock_history.gap`)

			l.must(`CREATE PUBLICATION p ` + pub)
			end = l.push(time.Second, gap)
			l.until("it stops again", func() bool { return l.store.Status().State == StatePublished })
			l.cfg.AllowPublished = true
			l.store.Configure(l.cfg)
			l.flushed(end)
			told := slices.DeleteFunc(l.texts, func(text string) bool { return !strings.HasPrefix(text, `publication "p" sends the history`) })
			if len(told) != 2 {
				t.Errorf("told %d times, want once each: %q", len(told), told)
			}
		})
	}
}

// A row filter without the key makes our UPDATE fail before we look.
func TestLivePublishedByFilter(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	l.must(`CREATE PUBLICATION p FOR TABLE lock_history.run WHERE (batch > 0)`)
	end := l.push(time.Second, history.Batch{Waiting: true})
	l.until("it stops", func() bool { return l.store.Status().State == StatePublished })
	l.must(`DROP PUBLICATION p`)
	l.flushed(end)
}

// The publication may come while our transaction runs.
func TestLivePublishedMeanwhile(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Waiting: true}))
	other := connect(t, l.dsn)
	l.mustOn(other, `BEGIN`)
	l.mustOn(other, `UPDATE lock_history.run SET heartbeat = heartbeat`)
	l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}})
	l.until("the writer waits for the row", func() bool {
		return l.query(`SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND application_name = 'pg_lock_history writer' AND datname = current_database()`) == "1"
	})
	l.must(`CREATE PUBLICATION p FOR ALL TABLES`)
	l.mustOn(other, `COMMIT`)
	l.until("it stops", func() bool { return l.store.Status().State == StatePublished })
	l.expect("0", `SELECT count(*) FROM lock_history.gap`)
}
