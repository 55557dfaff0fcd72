package livetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	rounds   = 8
	sessions = 30
	// steps a round: more than sessions, so that some hold several locks.
	steps = 75
	// settled bounds the wait for a fact; nothing waits for it to pass.
	settled = 30 * time.Second
)

// TestSameBlockersAsServer builds random wait graphs of up to 30 sessions over
// row locks, relation locks of all modes and advisory locks, cycles included,
// and compares the blockers in the history with pg_blocking_pids() for every
// waiter. PLH_SEED repeats a run.
func TestSameBlockersAsServer(t *testing.T) {
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
	t.Logf("seed: PLH_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))

	g := newGraph(t, dsn)
	waiters, edges := 0, 0
	for round := range rounds {
		w, e := g.round(round, random)
		waiters, edges = waiters+w, edges+e
	}
	t.Logf("%d waiters with %d blockers in %d rounds were the same", waiters, edges, rounds)
	if waiters < rounds*sessions/4 || edges < waiters {
		t.Errorf("only %d waiters with %d blockers came about: the test tests too little", waiters, edges)
	}
}

type graph struct {
	t     *testing.T
	ctx   context.Context
	dsn   string
	watch *pgx.Conn
}

// client is one session: it runs one statement at a time, which may block.
type client struct {
	conn *pgx.Conn
	pid  int32
	work chan string
	done chan error // answer of each statement
	busy bool
}

func newGraph(t *testing.T, dsn string) *graph {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	g := &graph{t: t, ctx: ctx, dsn: dsn, watch: connect(t, ctx, dsn)}
	t.Cleanup(func() { _ = g.watch.Close(context.WithoutCancel(ctx)) })
	g.exec(g.watch, `DROP TABLE IF EXISTS public.plh_row, public.plh_a, public.plh_b, public.plh_c`)
	g.exec(g.watch, `CREATE TABLE public.plh_row (id int PRIMARY KEY, v int)`)
	g.exec(g.watch, `INSERT INTO public.plh_row SELECT i, 0 FROM generate_series(1, 5) AS i`)
	for _, name := range []string{"a", "b", "c"} {
		g.exec(g.watch, `CREATE TABLE public.plh_`+name+` (i int)`)
	}
	t.Cleanup(func() {
		_, _ = g.watch.Exec(context.WithoutCancel(ctx), `DROP TABLE IF EXISTS public.plh_row, public.plh_a, public.plh_b, public.plh_c`)
	})
	return g
}

func connect(t *testing.T, ctx context.Context, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return conn
}

func (g *graph) exec(c *pgx.Conn, sql string) {
	g.t.Helper()
	if _, err := c.Exec(g.ctx, sql); err != nil {
		g.t.Fatalf("%s: %v", sql, err)
	}
}

var modes = []string{"ACCESS SHARE", "ROW SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE",
	"SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"}

// statement picks what a session locks next.
func statement(r *rand.Rand) string {
	row := 1 + r.IntN(5)
	switch r.IntN(6) {
	case 0:
		return fmt.Sprintf(`UPDATE public.plh_row SET v = v + 1 WHERE id = %d`, row)
	case 1:
		strength := []string{"UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"}[r.IntN(4)]
		return fmt.Sprintf(`SELECT v FROM public.plh_row WHERE id = %d FOR %s`, row, strength)
	case 2:
		function := []string{"pg_advisory_xact_lock", "pg_advisory_xact_lock_shared"}[r.IntN(2)]
		return fmt.Sprintf(`SELECT %s(%d)`, function, 1+r.IntN(3))
	default:
		return fmt.Sprintf(`LOCK TABLE public.plh_%c IN %s MODE`, 'a'+rune(r.IntN(3)), modes[r.IntN(len(modes))])
	}
}

func (g *graph) start() *client {
	c := &client{conn: connect(g.t, g.ctx, g.dsn), work: make(chan string, 1), done: make(chan error, 1)}
	c.pid = int32(c.conn.PgConn().PID())
	// Cycles stay as they are while they are compared.
	g.exec(c.conn, `SET deadlock_timeout = '1h'`)
	g.exec(c.conn, `BEGIN`)
	go func() { // ends when work is closed
		for sql := range c.work {
			_, err := c.conn.Exec(g.ctx, sql)
			c.done <- err
		}
		close(c.done)
	}()
	return c
}

// round builds one graph, compares it, and takes it down.
func (g *graph) round(number int, r *rand.Rand) (waiters, edges int) {
	clients := make([]*client, 2+r.IntN(sessions-1))
	for i := range clients {
		clients[i] = g.start()
	}
	defer func() {
		// Those who wait are freed by cancelling all: a cycle would not end by itself.
		pids := make([]int32, len(clients))
		for i, c := range clients {
			pids[i] = c.pid
		}
		_, _ = g.watch.Exec(context.WithoutCancel(g.ctx), `SELECT pg_terminate_backend(p) FROM unnest($1::int[]) AS p`, pids)
		for _, c := range clients {
			close(c.work)
			for range c.done {
				continue
			}
			_ = c.conn.Close(context.WithoutCancel(g.ctx))
		}
	}()

	var script []string
	for range steps {
		var free []*client
		for _, c := range clients {
			if !c.busy {
				free = append(free, c)
			}
		}
		if len(free) == 0 {
			break
		}
		c := free[r.IntN(len(free))]
		sql := statement(r)
		script = append(script, fmt.Sprintf("%d: %s", c.pid, sql))
		c.work <- sql
		g.settle(c)
	}

	expected := g.server(clients)
	for _, blockers := range expected {
		edges += len(blockers)
	}
	deadline := time.Now().Add(settled)
	for {
		found := g.history(clients)
		if difference := compare(expected, found); difference == "" {
			return len(expected), edges
		} else if time.Now().After(deadline) {
			for _, line := range script {
				g.t.Log(line)
			}
			g.t.Fatalf("round %d: %s", number, difference)
		}
	}
}

// settle returns when the statement given to c has ended or waits for a lock.
func (g *graph) settle(c *client) {
	deadline := time.Now().Add(settled)
	for {
		select {
		case err := <-c.done:
			// Two who upgrade the same lock: the server sees that at once.
			var pg *pgconn.PgError
			if errors.As(err, &pg) && pg.Code == "40P01" {
				g.exec(c.conn, `ROLLBACK`)
				g.exec(c.conn, `BEGIN`)
			} else if err != nil {
				g.t.Fatalf("statement of %d: %v", c.pid, err)
			}
			return
		default:
		}
		var waits bool
		err := g.watch.QueryRow(g.ctx, `SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)`, c.pid).Scan(&waits)
		if err != nil {
			g.t.Fatalf("look at %d: %v", c.pid, err)
		}
		if waits {
			c.busy = true
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("statement of %d neither ended nor waits", c.pid)
		}
	}
}

func pidsOf(clients []*client) []int32 {
	pids := make([]int32, len(clients))
	for i, c := range clients {
		pids[i] = c.pid
	}
	return pids
}

// server returns pg_blocking_pids() of every session that waits.
func (g *graph) server(clients []*client) map[int32][]int32 {
	return g.blockers(`SELECT l.pid, pg_blocking_pids(l.pid) FROM pg_locks AS l
		WHERE NOT l.granted AND l.pid = ANY ($1)`, pidsOf(clients))
}

// history returns who blocks each open wait now, according to us.
func (g *graph) history(clients []*client) map[int32][]int32 {
	g.exec(g.watch, `SELECT lock_history.flush('10 s')`)
	return g.blockers(`SELECT w.pid, coalesce(array_agg(b.blocker_pid) FILTER (WHERE b.last_seen IS NULL), '{}')
		FROM lock_history.waits AS w
		LEFT JOIN LATERAL lock_history.blocking_all(w.wait_id) AS b ON true
		WHERE w.wait_end IS NULL AND w.pid = ANY ($1)
		GROUP BY w.pid, w.wait_id`, pidsOf(clients))
}

func (g *graph) blockers(sql string, pids []int32) map[int32][]int32 {
	rows, err := g.watch.Query(g.ctx, sql, pids)
	if err != nil {
		g.t.Fatalf("%s: %v", sql, err)
	}
	all := make(map[int32][]int32)
	for rows.Next() {
		var pid int32
		var blockers []int32
		if err := rows.Scan(&pid, &blockers); err != nil {
			g.t.Fatalf("%s: %v", sql, err)
		}
		slices.Sort(blockers)
		all[pid] = slices.Compact(blockers)
	}
	if err := rows.Err(); err != nil {
		g.t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// compare returns the first difference in words, "" when there is none.
func compare(expected, found map[int32][]int32) string {
	for pid, blockers := range expected {
		got, ok := found[pid]
		if !ok {
			return fmt.Sprintf("pid %d waits behind %v and is not in the history", pid, blockers)
		}
		if !slices.Equal(blockers, got) {
			return fmt.Sprintf("pid %d: the server says %v, the history %v", pid, blockers, got)
		}
	}
	for pid := range found {
		if _, ok := expected[pid]; !ok {
			return fmt.Sprintf("pid %d does not wait, but the history says so", pid)
		}
	}
	return ""
}
