package livetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	shortSoak = 80 * time.Second

	// What is promised, see doc/reliability.md.
	soakMaxSize = 16 << 20
	soakMemory  = 16 << 20
	// One segment, and one flush: what the writer takes in one transaction.
	diskBound = soakMaxSize + soakMaxSize/8 + 4<<20
	// memory_limit and half as much for the runtime, on top of the process at rest.
	memoryBound = 8<<20 + soakMemory*3/2

	// recoversWithin bounds the time from the end of a condition to a flush() that
	// returns true: the writer tries every 5 s, the server may have to recover.
	recoversWithin = 45 * time.Second
)

// usual is what soakSettings say.
var usual = tempo{period: 10 * time.Millisecond, minDuration: 100 * time.Millisecond, maxRows: manyRows}

const soakSettings = `
pg_lock_history.database = 'history'
pg_lock_history.sample_period = '10ms'
pg_lock_history.min_duration = '100ms'
pg_lock_history.max_rows_per_second = 1000
pg_lock_history.flush_period = '500ms'
pg_lock_history.query_length = '16kB'
pg_lock_history.max_size = '16MB'
pg_lock_history.memory_limit = '16MB'
`

// soak is one run: its server, its load, its list.
type soak struct {
	t      *testing.T
	server *soakServer
	list   *soakList
	log    *serverLog
	path   string   // of the history's files, as the server names it
	oids   []uint32 // of soakDatabases
	tables chan int // of scenes, those that are free

	watcher  *watcher
	carried  []seenWait // ended, and not yet to be judged
	judgedTo time.Time
	past     map[int64]pastEnd // of waits that are judged, by their ids

	gauge gauge
	f     soakFigures
}

// pastEnd is how a wait ended, which nothing that comes later may change.
type pastEnd struct {
	end     time.Time
	outcome string
}

// soakFigures are what a run has found.
type soakFigures struct {
	found, counted, brief, victims int
	either, slowest                int // slowest: ms until all was well again
	lost, unknown, outcomes        map[string]int
	differences                    int
	advisory, advisoryCounted      int // asked for, and summed up
}

// TestSoak: see the package comment. PLH_SOAK_DURATION says how long it is,
// PLH_SEED repeats what is done.
func TestSoak(t *testing.T) {
	if os.Getenv("PLH_SOAK_BIN") == "" {
		t.Skip("PLH_SOAK_BIN is not set: no installation to soak")
	}
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("PLH_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("PLH_SEED: %v", err)
		}
	}
	length := shortSoak
	if v := os.Getenv("PLH_SOAK_DURATION"); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil {
			t.Fatalf("PLH_SOAK_DURATION: %v", err)
		}
	}
	t.Logf("seed: PLH_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))

	ctx, cancel := context.WithTimeout(t.Context(), length+5*time.Minute)
	defer cancel()
	s := newSoak(t, ctx)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	go watchServer(watching, s.watcher, func(ctx context.Context) (*pgx.Conn, error) {
		return s.server.dial(ctx, "postgres", "postgres", "soak watcher")
	})
	loading, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	var load sync.WaitGroup
	s.startLoad(loading, r, &load)

	began := time.Now()
	isLong := length > 10*time.Minute
	var lasting []condition
	var sudden []strike
	rounds := 0
	for ; !t.Failed() && (time.Since(began) < length || length == shortSoak && rounds < len(conditions)); rounds++ {
		lasting, sudden = deal(r, lasting, conditions), deal(r, sudden, strikes)
		s.round(ctx, r, lasting[0], sudden[0], isLong && r.IntN(10) == 0)
		lasting, sudden = lasting[1:], sudden[1:]
	}
	stopLoad()
	load.Wait()
	s.judge(ctx)
	if err := s.server.restart("fast"); err != nil {
		t.Errorf("the last restart: %v", err)
	}
	s.judge(ctx)
	stopWatching()
	<-s.watcher.ended
	s.differ(s.log.counts()...)
	s.report(time.Since(began), rounds)
}

// deal gives out everything once before it gives anything out again.
func deal[T any](r *rand.Rand, hand, all []T) []T {
	if len(hand) > 0 {
		return hand
	}
	hand = slices.Clone(all)
	r.Shuffle(len(hand), func(i, j int) { hand[i], hand[j] = hand[j], hand[i] })
	return hand
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func newSoak(t *testing.T, ctx context.Context) *soak {
	s := &soak{t: t, list: &soakList{}, tables: make(chan int, soakTables), past: make(map[int64]pastEnd),
		watcher: &watcher{ended: make(chan struct{}), next: make(chan struct{}), waits: make(map[waitName]*seenWait)},
		f:       soakFigures{lost: map[string]int{}, unknown: map[string]int{}, outcomes: map[string]int{}}}
	s.server = newSoakServer(t, soakSettings)
	s.log = &serverLog{server: s.server, told: make(map[string]int)}
	s.list.setTempo(usual)

	admin, err := s.server.dial(ctx, "postgres", "postgres", "soak")
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer hangUp(admin)
	run := func(database string, statements ...string) {
		t.Helper()
		conn := admin
		if database != "postgres" {
			if conn, err = s.server.dial(ctx, database, "postgres", "soak"); err != nil {
				t.Fatalf("connect: %v", err)
			}
			defer hangUp(conn)
		}
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	}
	run("postgres", `CREATE TABLESPACE small LOCATION ''`, `CREATE DATABASE history TABLESPACE small`,
		`CREATE DATABASE soak_random`, `CREATE DATABASE soak_load`, fmt.Sprintf(soakSchema, soakRoles-1))
	for _, database := range soakDatabases {
		run("postgres", `CREATE DATABASE `+database+` OWNER soak_owner`)
	}
	for table := range soakTables {
		for _, database := range soakDatabases {
			run(database, fmt.Sprintf(soakTable, table))
		}
		s.tables <- table
	}
	run("soak_random", schema)
	run("soak_load", `CREATE TABLE hot (id int PRIMARY KEY, n bigint); INSERT INTO hot SELECT i, 0 FROM generate_series(1, 4) AS i`)
	run("history", `CREATE EXTENSION pg_lock_history`)
	if err := admin.QueryRow(ctx, `SELECT '/pg_tblspc/' || oid || '/' FROM pg_tablespace WHERE spcname = 'small'`).Scan(&s.path); err != nil {
		t.Fatalf("tablespace: %v", err)
	}
	rows, _ := admin.Query(ctx, `SELECT oid FROM pg_database WHERE datname = ANY ($1)`, soakDatabases)
	if s.oids, err = pgx.CollectRows(rows, pgx.RowTo[uint32]); err != nil {
		t.Fatalf("databases: %v", err)
	}
	if err := s.wellAgain(ctx); err != nil {
		t.Fatalf("it does not record: %v", err)
	}
	s.log.forget() // its database was made just now
	s.judgedTo = time.Now()
	return s
}

// startLoad has everybody work until ctx is done.
func (s *soak) startLoad(ctx context.Context, r *rand.Rand, load *sync.WaitGroup) {
	load.Go(func() { s.measure(ctx) })
	for _, part := range []struct {
		n    int
		work func(context.Context, *rand.Rand)
	}{{8, s.playScenes}, {5, s.wander}, {3, s.fightOverRow}, {1, s.define}, {1, s.forget}, {1, s.come}} {
		for range part.n {
			own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
			load.Go(func() { part.work(ctx, own) })
		}
	}
}

// round lets one condition begin, strikes while it lasts where that can be, and
// looks whether all is as it should be when it is over.
func (s *soak) round(ctx context.Context, r *rand.Rand, c condition, k strike, long bool) {
	s.t.Logf("%s: %s", time.Now().Format(clock), c.name)
	end, err := c.begin(s, ctx, r)
	if err != nil && ctx.Err() == nil {
		s.t.Errorf("%s: %v", c.name, err)
	}
	lasts := ms(r, 500, 3000)
	if long {
		lasts = ms(r, 70_000, 80_000) // longer than facts are kept
	}
	pause(ctx, lasts/2)
	fits := k.fits(c)
	if fits {
		s.strike(ctx, r, k)
		pause(ctx, lasts/2)
	}
	if end != nil {
		s.again(ctx, c.name, end)
	}
	if !fits {
		pause(ctx, lasts/2)
		s.strike(ctx, r, k)
	}
	s.t.Logf("%s: over", time.Now().Format(clock))
	s.judge(ctx)
}

func (s *soak) strike(ctx context.Context, r *rand.Rand, k strike) {
	s.t.Logf("%s:   %s", time.Now().Format(clock), k.name)
	s.again(ctx, k.name, func() error { return k.act(s, ctx, r) })
}

// again does what the server may be too busy for, starting or stopping.
func (s *soak) again(ctx context.Context, name string, what func() error) {
	var err error
	for range 100 {
		if err = what(); err == nil || ctx.Err() != nil {
			return
		}
		pause(ctx, 100*time.Millisecond)
	}
	s.t.Errorf("%s: %v", name, err)
}

// flush has all up to now written.
func (s *soak) flush(ctx context.Context) error {
	var done bool
	if err := s.ask(ctx, &done, `SELECT lock_history.flush('10 s')`); err != nil {
		return err
	}
	if !done {
		return errors.New("flush() gave up")
	}
	return nil
}

// wellAgain returns when the history is complete up to now.
func (s *soak) wellAgain(ctx context.Context) error {
	began := time.Now()
	var err error
	for time.Since(began) < recoversWithin && ctx.Err() == nil {
		if err = s.flush(ctx); err == nil {
			var state string
			if err = s.ask(ctx, &state, `SELECT value FROM lock_history.status() WHERE key = 'state'`); err == nil {
				if state == "recording" {
					s.f.slowest = max(s.f.slowest, int(time.Since(began).Milliseconds()))
					return nil
				}
				err = fmt.Errorf("state is %q", state)
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
	return err
}

// judge compares the list with the history, up to now.
func (s *soak) judge(ctx context.Context) {
	s.t.Helper()
	s.differ(s.log.read()...)
	if err := s.wellAgain(ctx); err != nil {
		s.t.Errorf("it does not go on by itself: %v", err)
		return
	}
	cut := time.Now()
	e := soakEvidence{from: s.judgedTo, missed: make(map[int64]time.Duration)}
	s.carried = append(s.carried, s.watcher.take()...)
	var later []seenWait
	for _, w := range s.carried {
		if w.gone.Before(cut) {
			e.seen = append(e.seen, w)
		} else {
			later = append(later, w)
		}
	}
	s.carried = later
	since := s.judgedTo
	for i := range e.seen {
		if e.seen[i].start.Before(since) {
			since = e.seen[i].start
		}
	}
	since = since.Add(-5 * time.Second)
	s.list.take(since, &e)
	e.attempts = slices.DeleteFunc(e.attempts, func(a attempt) bool { return a.sent.After(cut) })
	err := s.flush(ctx)
	if err == nil {
		err = s.readHistory(ctx, since, &e)
	}
	if err != nil {
		s.t.Errorf("the history cannot be read: %v", err)
		return
	}
	v := judgeSoak(&e)
	s.differ(v.differences...)
	s.f.add(&v)
	s.judgeSums(&e, &v, cut)
	s.judgePast(&e, cut)
	s.judgedTo = cut
}

// judgeSums holds the sums against what can have been summed up. For the advisory
// locks of scenes nobody else waits, and each statement once; so what is counted
// can be no more than there were statements without a row of their own.
func (s *soak) judgeSums(e *soakEvidence, v *soakVerdict, cut time.Time) {
	running := 0
	for i := range e.attempts {
		switch a := &e.attempts[i]; {
		case !a.advisory:
		case a.done.IsZero():
			running++
		case !a.done.Before(s.judgedTo) && a.done.Before(cut) && !v.matched[a]:
			s.f.advisory++
		}
	}
	for i := range e.short {
		n := &e.short[i]
		if n.locktype == "advisory" && slices.Contains(s.oids, n.database) && n.second >= s.judgedTo.Unix() && n.second < cut.Unix() {
			s.f.advisoryCounted += n.waits
		}
	}
	// A stop counts a wait that goes on and that the next life cannot know again.
	stops := s.server.workers + s.server.restarts
	if most := s.f.advisory + running + 3*stops; s.f.advisoryCounted > most {
		s.differ(fmt.Sprintf("short_waits counts %d waits for advisory locks, and there were %d at most", s.f.advisoryCounted, most))
	}
}

// judgePast holds what was judged before against what the history has of it now. It
// may be gone: the ring goes round.
func (s *soak) judgePast(e *soakEvidence, cut time.Time) {
	for i := range e.past {
		k := &e.past[i]
		p, known := s.past[k.id]
		switch {
		case k.end == nil || !k.end.Before(cut):
			if known {
				s.differ(fmt.Sprintf("wait %d had ended at %s, %q, and has not any more: %s", k.id, p.end.Format(clock), p.outcome, k.describe()))
			}
		case !known:
			s.past[k.id] = pastEnd{*k.end, k.outcome}
		case !p.end.Equal(*k.end) || p.outcome != k.outcome:
			s.differ(fmt.Sprintf("wait %d had ended at %s, %q, and that has changed: %s", k.id, p.end.Format(clock), p.outcome, k.describe()))
		}
	}
}

func (f *soakFigures) add(v *soakVerdict) {
	f.found, f.counted, f.brief, f.victims, f.either = f.found+v.found, f.counted+v.counted, f.brief+v.brief, f.victims+v.victims, f.either+v.either
	for _, sum := range []struct{ to, from map[string]int }{{f.lost, v.lost}, {f.unknown, v.unknown}, {f.outcomes, v.outcomes}} {
		for key, n := range sum.from {
			sum.to[key] += n
		}
	}
}

// differ reports what is wrong.
func (s *soak) differ(differences ...string) {
	s.t.Helper()
	for _, d := range differences {
		if s.f.differences++; s.f.differences > 30 {
			return
		}
		s.t.Errorf("%s", d)
	}
}

// readHistory reads what waits that began after since are compared with.
func (s *soak) readHistory(ctx context.Context, since time.Time, e *soakEvidence) error {
	conn, err := s.server.dial(ctx, "history", "postgres", "soak judge")
	if err != nil {
		return err
	}
	defer hangUp(conn)
	var now time.Time
	var oldest *time.Time
	err = conn.QueryRow(ctx, `SELECT statement_timestamp(), (SELECT nullif(value, '')::timestamptz FROM lock_history.status() WHERE key = 'oldest_history')`).Scan(&now, &oldest)
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	if oldest != nil {
		e.oldest = *oldest
	}
	each := func(sql string, scan func(pgx.Rows) error) {
		if err != nil {
			return
		}
		var rows pgx.Rows
		if rows, err = conn.Query(ctx, sql, since); err == nil {
			for rows.Next() && err == nil {
				err = scan(rows)
			}
			rows.Close()
			err = errors.Join(err, rows.Err())
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", sql, err)
		}
	}
	each(`SELECT wait_id, coalesce(pid, 0), wait_start, wait_end, locktype, mode, coalesce(outcome, ''), backend_start
		FROM lock_history.waits WHERE wait_start >= $1::timestamptz - interval '10 min'`, func(rows pgx.Rows) error {
		var k keptWait
		var start *time.Time
		err := rows.Scan(&k.id, &k.pid, &k.start, &k.end, &k.locktype, &k.mode, &k.outcome, &start)
		if start != nil {
			k.backendStart = *start
		}
		if e.past = append(e.past, k); !k.start.Before(since) {
			e.kept = append(e.kept, k)
		}
		return err
	})
	each(`SELECT began, ended, reason, coalesce(lost, 0) FROM lock_history.gaps
		WHERE coalesce(ended, 'infinity') >= $1 AND part IS DISTINCT FROM 'load'`, func(rows pgx.Rows) error {
		g := toldGap{ended: now}
		var ended *time.Time
		err := rows.Scan(&g.began, &ended, &g.reason, &g.lost)
		if ended != nil {
			g.ended = *ended
		}
		e.gaps = append(e.gaps, g)
		return err
	})
	each(`SELECT extract(epoch FROM at)::bigint, coalesce(database, 0), locktype, coalesce(mode, ''), coalesce(root_pid, 0), sum(waits)::bigint
		FROM lock_history.short_waits WHERE at >= $1 GROUP BY 1, 2, 3, 4, 5`, func(rows pgx.Rows) error {
		var n shortSum
		err := rows.Scan(&n.second, &n.database, &n.locktype, &n.mode, &n.root, &n.waits)
		e.short = append(e.short, n)
		return err
	})
	each(`SELECT pid, at FROM lock_history.deadlocks WHERE is_victim AND at >= $1`, func(rows pgx.Rows) error {
		var d toldDeadlock
		err := rows.Scan(&d.pid, &d.at)
		e.deadlocks = append(e.deadlocks, d)
		return err
	})
	each(`SELECT extract(epoch FROM minute)::bigint / 60, ticks_missed * period_ms FROM lock_history.health
		WHERE minute >= $1::timestamptz - interval '2 min'`, func(rows pgx.Rows) error {
		var minute int64
		var missed float64
		err := rows.Scan(&minute, &missed)
		e.missed[minute] = time.Duration(missed * float64(time.Millisecond))
		return err
	})
	return err
}

// ---- memory and disk ----

// gauge has the most that was seen. One goroutine writes it, others read it when that has ended.
type gauge struct {
	mu                  sync.Mutex
	memory, disk, queue int64
	looks               int
}

// measure looks at the worker's memory, which needs no session, and at the ring's
// files, for which one must get into the history's database. It is over when ctx is.
func (s *soak) measure(ctx context.Context) {
	tick := time.NewTicker(gaugeEvery)
	defer tick.Stop()
	var conn *pgx.Conn
	for ctx.Err() == nil {
		memory := s.server.workerMemory()
		s.gauge.mu.Lock()
		s.gauge.memory = max(s.gauge.memory, memory)
		s.gauge.mu.Unlock()
		var err error
		if conn == nil {
			conn, err = s.server.dial(ctx, "history", "postgres", "soak gauge")
		}
		if err == nil {
			err = s.gaugeOnce(ctx, conn)
		}
		if err != nil && conn != nil {
			hangUp(conn)
			conn = nil
		}
		<-tick.C
	}
	if conn != nil {
		hangUp(conn)
	}
}

const gaugeEvery = 250 * time.Millisecond

func (s *soak) gaugeOnce(ctx context.Context, conn *pgx.Conn) error {
	// By their files: a look at their size would wait for who has them locked,
	// and be in the way of who empties them.
	rows, err := conn.Query(ctx, `
		WITH heap AS MATERIALIZED (
			SELECT unnest(ARRAY[l.oid, l.reltoastrelid]) AS oid FROM pg_class AS l
			WHERE l.relnamespace = 'lock_history'::regnamespace AND l.relispartition AND l.relkind = 'r' AND l.relname ~ '_[0-7]$')
		SELECT c.relfilenode FROM pg_class AS c
		WHERE c.oid IN (SELECT h.oid FROM heap AS h UNION ALL SELECT i.indexrelid FROM pg_index AS i JOIN heap AS h ON h.oid = i.indrelid)`)
	if err != nil {
		return err
	}
	nodes, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return err
	}
	var queue *string
	err = conn.QueryRow(ctx, `SELECT (SELECT value FROM lock_history.worker_status() WHERE key = 'queue_bytes')`).Scan(&queue)
	if err != nil {
		return err
	}
	var bytes int64
	// in place: a directory for the version, one for the database
	files, _ := filepath.Glob(filepath.Join(s.server.data, s.path, "*", "*", "*"))
	for _, file := range files {
		// The parts of a table, and its maps, have names that begin like this.
		name := filepath.Base(file)
		digits := len(name) - len(strings.TrimLeft(name, "0123456789"))
		node, _ := strconv.ParseUint(name[:digits], 10, 32)
		if info, err := os.Stat(file); err == nil && slices.Contains(nodes, uint32(node)) {
			bytes += info.Size()
		}
	}
	g := &s.gauge
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks++
	g.disk = max(g.disk, bytes)
	if queue != nil {
		n, _ := strconv.ParseInt(*queue, 10, 64)
		g.queue = max(g.queue, n)
	}
	return nil
}

// report says what was found, and what was too little.
func (s *soak) report(took time.Duration, rounds int) {
	f := &s.f
	list := func(m map[string]int) string {
		var words []string
		for _, key := range sortedKeys(m) {
			words = append(words, fmt.Sprintf("%d %s", m[key], key))
		}
		return strings.Join(words, ", ")
	}
	s.t.Logf("%d rounds in %s; %d crashes, %d restarts, %d ends of the worker by hand", rounds, took.Round(time.Second), s.server.crashes, s.server.restarts, s.server.workers)
	s.t.Logf("%d waits of the list are in waits, %d are counted in short_waits, %d may have fallen between two samples", f.found, f.counted, f.brief)
	s.t.Logf("not there, with a reason: %s", list(f.lost))
	s.t.Logf("there without their end, with a reason: %s", list(f.unknown))
	s.t.Logf("ended as their clients were told: %s; %d of them either way; %d victims of deadlocks", list(f.outcomes), f.either, f.victims)
	s.t.Logf("at most, in %d looks: memory of the worker %.1f MiB, facts in it %.1f MiB, ring on disk %.1f MiB; all well again within %.1f s",
		s.gauge.looks, float64(s.gauge.memory)/(1<<20), float64(s.gauge.queue)/(1<<20), float64(s.gauge.disk)/(1<<20), float64(f.slowest)/1000)
	s.t.Logf("the log says: %s", list(s.log.told))
	if s.gauge.disk > diskBound {
		s.t.Errorf("the ring took %d bytes on disk, the bound is %d", s.gauge.disk, diskBound)
	}
	if s.gauge.memory > memoryBound {
		s.t.Errorf("the worker took %d bytes of memory, the bound is %d", s.gauge.memory, memoryBound)
	}
	if f.found < 10*rounds || f.counted < rounds || f.victims == 0 || s.gauge.looks < rounds {
		s.t.Error("the soak tests too little")
	}
}
