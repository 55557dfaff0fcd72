package livetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	shortRun   = 18 * time.Second
	maxClients = 24
	// stillSteps in a round; between two comparisons compareEvery.
	stillSteps   = 90
	compareEvery = 18
	stormLasts   = 4 * time.Second
)

// figures are what a run has compared.
type figures struct {
	moments, waiters, blockers int // at still moments
	parallel, prepared         int // of waiters, of blockers
	waits, short, eitherWon    int
	deadlocks, still, storms   int
	either                     [2]int // in still rounds, in storms
	outcomes                   map[string]int
	retries                    int // moments that were not still
}

// TestSameAsServer: see the package comment. PLH_SEED repeats a run,
// PLH_RANDOM_SECONDS says how long it is.
func TestSameAsServer(t *testing.T) {
	dsn := os.Getenv("PLH_TEST_DSN")
	if dsn == "" {
		t.Skip("PLH_TEST_DSN is not set: no server to compare with")
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("PLH_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("PLH_SEED: %v", err)
		}
	}
	length := shortRun
	if s := os.Getenv("PLH_RANDOM_SECONDS"); s != "" {
		seconds, err := strconv.Atoi(s)
		if err != nil || seconds <= 0 {
			t.Fatalf("PLH_RANDOM_SECONDS must be a number of seconds, but is %q", s)
		}
		length = time.Duration(seconds) * time.Second
	}
	t.Logf("seed: PLH_SEED=%d", seed)

	l := newLab(t, dsn, length)
	f := figures{outcomes: make(map[string]int)}
	began := time.Now()
	for round := 0; round < 2 || time.Since(began) < length; round++ {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		kind := "storm"
		if round%3 != 1 {
			kind = "still"
		}
		l.begin(r)
		roundBegan := time.Now()
		if kind == "storm" {
			l.storm(r)
			f.storms++
		} else {
			l.still(r, &f)
			f.still++
		}
		l.judge(fmt.Sprintf("PLH_SEED=%d, %s round %d", seed, kind, round), roundBegan, &f, kind == "storm")
		if t.Failed() {
			break
		}
	}

	t.Logf("%d still rounds, %d storms in %s", f.still, f.storms, time.Since(began).Round(time.Second))
	t.Logf("%d still moments (%d more were not still): %d waiters (%d in parallel queries), %d blockers (%d prepared transactions) were the same",
		f.moments, f.retries, f.waiters, f.parallel, f.blockers, f.prepared)
	var words []string
	for _, outcome := range slices.Sorted(maps.Keys(f.outcomes)) {
		words = append(words, fmt.Sprintf("%d %s", f.outcomes[outcome], outcome))
	}
	t.Logf("%d waits ended as clients saw it: %s; %d of them either way (%d of these in storms; %d granted); %d were too short to be kept; %d deadlocks",
		f.waits, strings.Join(words, ", "), f.either[0]+f.either[1], f.either[1], f.eitherWon, f.short, f.deadlocks)
	if either := f.either[0] + f.either[1]; f.eitherWon > 3+either/20 {
		t.Errorf("of %d waits that may have been granted just when they failed, history has %d as granted", either, f.eitherWon)
	}
	if f.waiters < 5*f.still || f.blockers < f.waiters/2 || f.waits < 10*(f.still+f.storms) {
		t.Error("the test tests too little")
	}
	for _, outcome := range []string{"granted", "lock_timeout", "statement_timeout", "cancelled", "terminated", "deadlock"} {
		if length >= time.Minute && (f.outcomes[outcome] == 0 || f.parallel == 0 || f.prepared == 0) {
			t.Errorf("%d waits ended by %s, %d were of parallel queries, %d behind prepared transactions: the test tests too little",
				f.outcomes[outcome], outcome, f.parallel, f.prepared)
		}
	}
}

func newLab(t *testing.T, dsn string, length time.Duration) *lab {
	ctx, cancel := context.WithTimeout(context.Background(), length+3*time.Minute)
	l := &lab{t: t, ctx: ctx, history: connect(t, ctx, dsn)}
	l.exec(l.history, `DROP DATABASE IF EXISTS plh_random WITH (FORCE)`)
	l.exec(l.history, `CREATE DATABASE plh_random`)
	l.dsn = dsn + " dbname=plh_random"
	l.admin = connect(t, ctx, l.dsn)
	l.exec(l.admin, schema)
	var ms int64
	err := l.history.QueryRow(ctx, `SELECT extract(epoch FROM current_setting('pg_lock_history.min_duration')::interval) * 1000,
		current_setting('server_version_num')::int`).Scan(&ms, &l.version)
	if err != nil {
		t.Fatalf("settings: %v", err)
	}
	l.minDuration = time.Duration(ms) * time.Millisecond
	watching, stop := context.WithCancel(ctx)
	l.watcher = startWatcher(t, watching, dsn)
	t.Cleanup(func() {
		stop()
		<-l.watcher.ended
		background, cancelBackground := context.WithTimeout(context.WithoutCancel(ctx), settled)
		defer cancelBackground()
		// Those of a round that was given up; they keep the database from being dropped.
		rows, _ := l.admin.Query(background, `SELECT gid FROM pg_prepared_xacts WHERE database = 'plh_random'`)
		gids, _ := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, gid := range gids {
			_, _ = l.admin.Exec(background, fmt.Sprintf(`ROLLBACK PREPARED '%s'`, gid))
		}
		_ = l.admin.Close(background)
		if _, err := l.history.Exec(background, `DROP DATABASE IF EXISTS plh_random WITH (FORCE)`); err != nil {
			t.Errorf("drop database: %v", err)
		}
		_ = l.history.Close(background)
		cancel()
	})
	return l
}

// begin forgets the round before.
func (l *lab) begin(r *rand.Rand) {
	l.statements, l.ends, l.leaders = nil, nil, nil
	l.deadlocks = l.countDeadlocks()
	l.watcher.take()
	for len(l.prepared) > 0 {
		l.finishPrepared(r)
	}
	l.exec(l.admin, `DELETE FROM plh_row WHERE id > 5`)
	l.statements = nil
}

// still has one thing happen at a time, and compares who blocks whom.
func (l *lab) still(r *rand.Rand, f *figures) {
	sessions := make([]*session, 3+r.IntN(maxClients-2))
	for i := range sessions {
		sessions[i] = l.serving(r)
	}
	defer func() {
		l.settle(sessions)
		for _, s := range sessions {
			if s.busy { // nobody frees those who wait in a circle
				l.send("pg_terminate_backend", s.pid, s.pid)
				l.await(s)
			}
			close(s.orders)
			s.end()
			l.settle(sessions)
		}
		for len(l.prepared) > 0 {
			l.finishPrepared(r)
		}
	}()

	for step := range stillSteps {
		var free, waiting []*session
		for i, s := range sessions {
			if s.dead {
				close(s.orders)
				s = l.serving(r)
				sessions[i] = s
			}
			if s.busy {
				waiting = append(waiting, s)
			} else {
				free = append(free, s)
			}
		}
		switch n := r.IntN(100); {
		case len(waiting) > 0 && (n < 8 || len(free) == 0):
			s := waiting[r.IntN(len(waiting))]
			function := "pg_cancel_backend"
			if r.IntN(3) == 0 {
				function = "pg_terminate_backend"
			}
			pid := s.pid
			if workers := l.watcher.processes(s.pid); len(workers) > 0 {
				pid = workers[r.IntN(len(workers))]
			}
			l.send(function, pid, s.pid)
			l.await(s)
		case n < 14 && len(l.prepared) > 0:
			l.finishPrepared(r)
		case len(free) > 0:
			s := free[r.IntN(len(free))]
			s.busy = true
			s.orders <- s.script.next(s.state(), s.savepoint, l.freeGid())
		}
		l.settle(sessions)
		if (step+1)%compareEvery == 0 {
			l.compare(sessions, f)
			if l.t.Failed() {
				return
			}
		}
	}
}

// serving starts a session of a still round.
func (l *lab) serving(r *rand.Rand) *session {
	s, err := l.start(rand.New(rand.NewPCG(r.Uint64(), r.Uint64())), 0)
	if err != nil {
		l.t.Fatalf("connect: %v", err)
	}
	s.script.end, s.script.timeouts = 12, 15
	go s.serve()
	return s
}

// await returns when s has done what it was told: it was cancelled or ended, and
// waits only where that does not help.
func (l *lab) await(s *session) {
	l.t.Helper()
	select {
	case <-s.done:
		s.busy = false
	case <-time.After(settled):
		l.t.Fatalf("session %d does not answer", s.pid)
	}
}

// settle returns when every session has either done what it was told or waits
// for a lock.
func (l *lab) settle(sessions []*session) {
	l.t.Helper()
	deadline := time.Now().Add(settled)
	for {
		seen := l.watcher.fresh(l.t)
		still := !seen.nascent
		for _, s := range sessions {
			if !s.busy {
				continue
			}
			select {
			case <-s.done:
				s.busy = false
			default:
				if !seen.waiting[s.pid] {
					still = false
				}
			}
		}
		if still {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatal("sessions neither end nor wait")
		}
	}
}

// storm has all sessions run at once.
func (l *lab) storm(r *rand.Rand) {
	ctx, stop := context.WithTimeout(l.ctx, stormLasts)
	defer stop()
	var sessions sync.WaitGroup
	var mu sync.Mutex
	live := make(map[int32]bool)
	deadlockTimeout := time.Duration(5+r.IntN(300)) * time.Millisecond
	for range 4 + r.IntN(maxClients/2) {
		r := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		sessions.Go(func() {
			for ctx.Err() == nil {
				s, err := l.start(r, deadlockTimeout)
				if err != nil {
					l.t.Errorf("connect: %v", err)
					return
				}
				s.script.end, s.script.timeouts, s.script.ends = 30, 50, l.version >= 170000
				mu.Lock()
				live[s.pid] = true
				mu.Unlock()
				for !s.dead && ctx.Err() == nil {
					s.do(s.script.next(s.state(), s.savepoint, l.freeGid()))
					time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond) // load, not a wait for something
				}
				mu.Lock()
				delete(live, s.pid)
				mu.Unlock()
				s.end()
			}
		})
	}
	// Signals, and the ends of prepared transactions, until all have ended; at last
	// one after the other, so that their ends do not meet.
	ended := make(chan struct{})
	var signals sync.WaitGroup
	send := func(function string, pid int32) { l.send(function, pid, pid) }
	signals.Go(func() {
		for {
			pause := time.Duration(20+r.IntN(150)) * time.Millisecond
			if ctx.Err() != nil {
				pause = 5 * pollEvery
			}
			select {
			case <-ended:
				return
			case <-time.After(pause):
			}
			mu.Lock()
			pids := slices.Sorted(maps.Keys(live))
			mu.Unlock()
			if ctx.Err() != nil && len(pids) > 0 {
				send("pg_terminate_backend", pids[r.IntN(len(pids))])
				continue
			}
			switch n := r.IntN(10); {
			case n < 3:
				l.finishPrepared(r)
			case len(pids) == 0:
			case n < 7:
				send("pg_cancel_backend", pids[r.IntN(len(pids))])
			case n < 8:
				send("pg_terminate_backend", pids[r.IntN(len(pids))])
			}
		}
	})
	sessions.Wait()
	close(ended)
	signals.Wait()
	for len(l.prepared) > 0 {
		l.finishPrepared(r)
	}
}

// judge compares how the waits of the round ended.
func (l *lab) judge(name string, began time.Time, f *figures, isStorm bool) {
	l.t.Helper()
	deadline := time.Now().Add(settled)
	for {
		seen := l.watcher.fresh(l.t)
		if !slices.ContainsFunc(l.leaders, func(pid int32) bool { return seen.waiting[pid] }) {
			break
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: sessions that have ended wait", name)
		}
	}
	l.flush()
	e := evidence{minDuration: l.minDuration, statements: l.statements, ends: l.ends, seen: l.watcher.take()}
	rows, err := l.history.Query(l.ctx, `SELECT w.wait_id, w.pid, coalesce(w.leader_pid, w.pid), w.wait_start, w.wait_end, w.locktype, w.mode, coalesce(w.outcome, '')
		FROM lock_history.waits AS w WHERE w.wait_start >= $1 AND coalesce(w.leader_pid, w.pid) = ANY ($2)`, began, l.leaders)
	if err != nil {
		l.t.Fatalf("waits: %v", err)
	}
	for rows.Next() {
		var w told
		if err := rows.Scan(&w.id, &w.pid, &w.leader, &w.start, &w.end, &w.locktype, &w.mode, &w.outcome); err != nil {
			l.t.Fatalf("waits: %v", err)
		}
		e.told = append(e.told, w)
	}
	if err := rows.Err(); err != nil {
		l.t.Fatalf("waits: %v", err)
	}
	// Workers that met in one may be gone before anybody could ask for their leaders.
	err = l.history.QueryRow(l.ctx, `SELECT count(DISTINCT deadlock_id) FROM lock_history.deadlocks
		WHERE at >= $1 AND coalesce(datname, 'plh_random') = 'plh_random'`, began).Scan(&e.deadlocks)
	if err != nil {
		l.t.Fatalf("deadlocks: %v", err)
	}

	err = l.history.QueryRow(l.ctx, `SELECT coalesce(sum(waits), 0), coalesce(sum(failed), 0) FROM lock_history.short_waits
		WHERE at >= date_trunc('second', $1::timestamptz)`, began).Scan(&e.shortWaits, &e.shortFailed)
	if err != nil {
		l.t.Fatalf("short_waits: %v", err)
	}
	e.counted = l.countDeadlocks() - l.deadlocks

	v := judge(&e)
	for i, difference := range v.differences {
		if i == 10 {
			l.t.Errorf("%s: %d more differences", name, len(v.differences)-i)
			break
		}
		l.t.Errorf("%s: %s", name, difference)
	}
	f.waits, f.short, f.eitherWon, f.deadlocks = f.waits+v.waits, f.short+v.short, f.eitherWon+v.eitherWon, f.deadlocks+v.deadlocks
	if isStorm {
		f.either[1] += v.either
	} else {
		f.either[0] += v.either
	}
	for outcome, n := range v.outcomes {
		f.outcomes[outcome] += n
	}
}

// countDeadlocks returns how many the server has counted. What a session counts
// is there once it has left.
func (l *lab) countDeadlocks() (n int) {
	l.t.Helper()
	if err := l.history.QueryRow(l.ctx, `SELECT deadlocks FROM pg_stat_database WHERE datname = 'plh_random'`).Scan(&n); err != nil {
		l.t.Fatalf("pg_stat_database: %v", err)
	}
	return n
}

func (l *lab) flush() {
	l.t.Helper()
	var done bool
	if err := l.history.QueryRow(l.ctx, `SELECT lock_history.flush('30 s')`).Scan(&done); err != nil || !done {
		l.t.Fatalf("flush: %t, %v", done, err)
	}
}
