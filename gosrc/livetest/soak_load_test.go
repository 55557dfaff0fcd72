package livetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	soakRoles  = 12
	soakTables = 16 // that scenes are played on; one scene at a time has one
	hotNoise   = 8000
)

// soakDatabases are where scenes are played; the history and the random sessions
// have others.
var soakDatabases = []string{"soak_a", "soak_b"}

// soakSchema is made in each of them, by its owner, whose members all roles are.
const soakSchema = `
	CREATE ROLE soak_owner;
	DO $$ BEGIN FOR i IN 0..%d LOOP
		EXECUTE format('CREATE ROLE soak_%%s LOGIN IN ROLE soak_owner', i);
	END LOOP; END $$`

const soakTable = `
	SET ROLE soak_owner;
	CREATE TABLE public.soak_%[1]d (id int PRIMARY KEY, v int);
	INSERT INTO public.soak_%[1]d SELECT i, 0 FROM generate_series(1, 4) AS i`

// scene is a wait whose beginning and end its players know: one session holds a
// lock, others ask for it, and somebody goes.
type scene struct {
	*soak
	r        *rand.Rand
	id       int
	database string
	key      int // of an advisory lock of its own
	table    int // of its own while it is played
}

// hold is what the holder does.
type hold struct {
	sql      string
	ask      func(*scene) string
	advisory bool
}

// holds are the locks that are waited for, each by statements that conflict.
var holds = []hold{
	{`SELECT pg_advisory_xact_lock(7, %[1]d)`, func(s *scene) string {
		return fmt.Sprintf(oneOf(s.r, `SELECT pg_advisory_xact_lock(7, %d)`, `SELECT pg_advisory_xact_lock_shared(7, %d)`), s.key)
	}, true},
	{`LOCK TABLE public.soak_%[2]d IN ACCESS EXCLUSIVE MODE`, askForTable, false},
	{`ALTER TABLE public.soak_%[2]d ADD COLUMN extra int`, askForTable, false},
	{`CREATE INDEX ON public.soak_%[2]d (v)`, func(s *scene) string {
		return fmt.Sprintf(oneOf(s.r, `DELETE FROM public.soak_%d WHERE id = 9`, `LOCK TABLE public.soak_%d IN ROW EXCLUSIVE MODE`), s.table)
	}, false},
	{`UPDATE public.soak_%[2]d SET v = v + 1 WHERE id = 1`, func(s *scene) string {
		return fmt.Sprintf(oneOf(s.r, `UPDATE public.soak_%d SET v = v + 1 WHERE id = 1`, `SELECT v FROM public.soak_%d WHERE id = 1 FOR UPDATE`), s.table)
	}, false},
}

func askForTable(s *scene) string {
	return fmt.Sprintf(oneOf(s.r, `SELECT count(*) FROM public.soak_%d`, `UPDATE public.soak_%d SET v = v + 1`,
		`LOCK TABLE public.soak_%d IN SHARE MODE`, `TRUNCATE public.soak_%d`), s.table)
}

func oneOf(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

// ms is a time from least to most, short ones more often.
func ms(r *rand.Rand, least, most int) time.Duration {
	x := r.Float64()
	return time.Duration(float64(least)+x*x*float64(most-least)) * time.Millisecond
}

// playScenes plays one scene after the other until ctx is done.
func (s *soak) playScenes(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		table := <-s.tables
		c := &scene{soak: s, r: r, id: s.list.newScene(), database: soakDatabases[r.IntN(len(soakDatabases))], table: table}
		c.key = c.id
		if r.IntN(8) == 0 {
			c.deadlock(ctx)
		} else {
			c.play(ctx)
		}
		s.tables <- table
		pause(ctx, ms(r, 0, 200))
	}
}

// pause is load that does nothing; it waits for no fact.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// join connects a session of the scene, under some role and name; nil when the
// server is not there just now.
func (c *scene) join(ctx context.Context) *pgx.Conn {
	role := fmt.Sprintf("soak_%d", c.r.IntN(soakRoles))
	conn, err := c.server.dial(ctx, c.database, role, fmt.Sprintf("scene %d", c.r.IntN(100)))
	if err != nil {
		pause(ctx, 50*time.Millisecond)
		return nil
	}
	return conn
}

// play has one session hold a lock, and others wait for it.
func (c *scene) play(ctx context.Context) {
	h := holds[c.r.IntN(len(holds))]
	holder := c.join(ctx)
	if holder == nil {
		return
	}
	pid := int32(holder.PgConn().PID())
	if _, err := holder.Exec(ctx, "BEGIN; "+fmt.Sprintf(h.sql, c.key, c.table)); err != nil {
		hangUp(holder)
		return
	}
	gid := ""
	if h.advisory && c.r.IntN(4) == 0 {
		gid = fmt.Sprintf("soak_%d", c.id)
		if _, err := holder.Exec(ctx, fmt.Sprintf("PREPARE TRANSACTION '%s'", gid)); err != nil {
			c.finishPrepared(ctx, gid) // its answer may have been lost
			hangUp(holder)
			return
		}
		pid = 0
	}

	var waiters sync.WaitGroup
	var pids []int32
	for range 1 + c.r.IntN(3) {
		conn := c.join(ctx)
		if conn == nil {
			continue
		}
		pids = append(pids, int32(conn.PgConn().PID()))
		a := &attempt{scene: c.id, pid: pids[len(pids)-1], sql: h.ask(c), advisory: h.advisory, holder: pid}
		prelude, linger := c.prelude(), ms(c.r, 0, 50)
		waiters.Go(func() { c.wait(ctx, conn, a, prelude, linger) })
	}
	c.interrupt(ctx, pids)

	end := oneOf(c.r, "COMMIT", "ROLLBACK", "")
	if strings.HasPrefix(h.sql, "ALTER") || strings.HasPrefix(h.sql, "CREATE") {
		end = "ROLLBACK" // the table is as it was
	}
	c.list.release(c.id, func() {
		switch {
		case gid != "":
			c.finishPrepared(ctx, gid)
		case end != "":
			_, _ = holder.Exec(ctx, end)
		case c.r.IntN(2) == 0:
			c.signal(ctx, "pg_terminate_backend", pid)
		}
	})
	c.list.leave(c.id, holder)
	waiters.Wait()
}

// prelude sets what may end the wait.
func (c *scene) prelude() string {
	switch c.r.IntN(6) {
	case 0, 1:
		return fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = %d", 1+c.r.IntN(800))
	case 2:
		return fmt.Sprintf("BEGIN; SET LOCAL statement_timeout = %d", 1+c.r.IntN(800))
	}
	return "BEGIN"
}

// wait asks for the lock, notes how that ended, and goes.
func (c *scene) wait(ctx context.Context, conn *pgx.Conn, a *attempt, prelude string, linger time.Duration) {
	defer c.list.leave(c.id, conn)
	if _, err := conn.Exec(ctx, prelude); err != nil {
		return
	}
	c.list.begin(a)
	_, err := conn.Exec(ctx, a.sql)
	c.list.end(a, err, conn.IsClosed())
	pause(ctx, linger)
}

// interrupt lets the wait go on for a while; some waiters somebody ends.
func (c *scene) interrupt(ctx context.Context, waiters []int32) {
	long := ms(c.r, 5, 1500)
	if c.r.IntN(12) == 0 {
		long = ms(c.r, 1500, 9000)
	}
	pause(ctx, long/2)
	if len(waiters) > 0 && c.r.IntN(4) == 0 {
		function := oneOf(c.r, "pg_cancel_backend", "pg_cancel_backend", "pg_terminate_backend")
		c.signal(ctx, function, waiters[c.r.IntN(len(waiters))])
	}
	pause(ctx, long/2)
}

// deadlock has two sessions ask for what the other one has.
func (c *scene) deadlock(ctx context.Context) {
	one, two := c.join(ctx), c.join(ctx)
	if one == nil || two == nil {
		for _, conn := range []*pgx.Conn{one, two} {
			if conn != nil {
				hangUp(conn)
			}
		}
		return
	}
	lock := func(n int) string { return fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d, %d)`, 7+n, c.key) }
	var both sync.WaitGroup
	ready := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	for i, conn := range []*pgx.Conn{one, two} {
		other := []*pgx.Conn{two, one}[i]
		a := &attempt{scene: c.id, pid: int32(conn.PgConn().PID()), sql: lock(1 - i), advisory: true, holder: int32(other.PgConn().PID())}
		both.Go(func() {
			defer c.list.leave(c.id, conn)
			_, err := conn.Exec(ctx, "BEGIN; "+lock(i))
			close(ready[i])
			<-ready[1-i]
			if err != nil {
				return
			}
			c.list.begin(a)
			_, err = conn.Exec(ctx, a.sql)
			c.list.end(a, err, conn.IsClosed())
		})
	}
	both.Wait()
}

// finishPrepared ends a prepared transaction, which a crash does not.
func (s *soak) finishPrepared(ctx context.Context, gid string) {
	var database string
	for ctx.Err() == nil {
		conn, err := s.server.dial(ctx, "postgres", "postgres", "soak")
		if err == nil {
			err = conn.QueryRow(ctx, `SELECT database FROM pg_prepared_xacts WHERE gid = $1`, gid).Scan(&database)
			hangUp(conn)
		}
		if err == pgx.ErrNoRows {
			return
		}
		if err == nil {
			if conn, err = s.server.dial(ctx, database, "postgres", "soak"); err == nil {
				_, err = conn.Exec(ctx, fmt.Sprintf(`ROLLBACK PREPARED '%s'`, gid))
				hangUp(conn)
			}
			if err == nil {
				return
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// signal sends a signal, and waits for the end of a process that was ended.
func (s *soak) signal(ctx context.Context, function string, pid int32) {
	conn, err := s.server.dial(ctx, "postgres", "postgres", "soak")
	if err != nil {
		return
	}
	defer hangUp(conn)
	if function == "pg_terminate_backend" {
		function += "($1, 5000)"
	} else {
		function += "($1)"
	}
	_, _ = conn.Exec(ctx, "SELECT "+function, pid)
}

// ---- what goes on beside the scenes ----

// withSession does something in one session after the other, until ctx is done;
// what goes wrong in one, it does not mind.
func (s *soak) withSession(ctx context.Context, r *rand.Rand, database string, do func(*pgx.Conn) error) {
	for ctx.Err() == nil {
		conn, err := s.server.dial(ctx, database, "postgres", fmt.Sprintf("load %d", r.IntN(1000)))
		for n := 1 + r.IntN(50); err == nil && n > 0 && ctx.Err() == nil; n-- {
			err = do(conn)
			if !conn.IsClosed() {
				err = nil
			}
		}
		if conn != nil {
			hangUp(conn)
		}
		pause(ctx, ms(r, 0, 100))
	}
}

// wander is a session of the random comparison (script_test.go), without its
// exactness: it locks, fails and deadlocks as it likes.
func (s *soak) wander(ctx context.Context, r *rand.Rand) {
	w := script{r: r, end: 30, timeouts: 50}
	savepoint := false
	s.withSession(ctx, r, "soak_random", func(conn *pgx.Conn) error {
		defer pause(ctx, ms(r, 0, 60))
		gid := ""
		if r.IntN(40) == 0 {
			gid = fmt.Sprintf("plh_%d", r.Uint32())
		}
		o := w.next(conn.PgConn().TxStatus(), savepoint, gid)
		if o.prelude != "" {
			if _, err := conn.PgConn().Exec(ctx, o.prelude).ReadAll(); err != nil {
				return err
			}
		}
		_, err := conn.PgConn().Exec(ctx, o.sql).ReadAll()
		savepoint = err == nil && (strings.HasPrefix(o.sql, "SAVEPOINT") || savepoint) && conn.PgConn().TxStatus() != 'I'
		if strings.HasPrefix(o.sql, "PREPARE") {
			pause(ctx, ms(r, 10, 1000))
			s.finishPrepared(ctx, gid)
		}
		return err
	})
}

// fightOverRow is what a ring fills with: statements that cannot be compressed.
func (s *soak) fightOverRow(ctx context.Context, r *rand.Rand) {
	noise := make([]byte, hotNoise)
	s.withSession(ctx, r, "soak_load", func(conn *pgx.Conn) error {
		for i := range noise {
			noise[i] = letters[r.IntN(len(letters))]
		}
		_, err := conn.PgConn().Exec(ctx, fmt.Sprintf("BEGIN; UPDATE hot SET n = n + 1 WHERE id = 1 /* %s */; SELECT pg_sleep(%.3f); COMMIT",
			noise[:r.IntN(hotNoise)], ms(r, 1, 120).Seconds())).ReadAll()
		return err
	})
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// define makes, changes and drops tables.
func (s *soak) define(ctx context.Context, r *rand.Rand) {
	s.withSession(ctx, r, "soak_load", func(conn *pgx.Conn) error {
		n := r.IntN(5)
		_, err := conn.PgConn().Exec(ctx, fmt.Sprintf(oneOf(r,
			`CREATE TABLE IF NOT EXISTS made_%d AS SELECT i, i %% 7 AS v FROM generate_series(1, 500) AS i`,
			`ALTER TABLE IF EXISTS made_%d ALTER COLUMN v TYPE bigint`,
			`CREATE INDEX ON made_%d (v)`, `VACUUM (TRUNCATE) made_%d`, `TRUNCATE made_%d`,
			`DROP TABLE IF EXISTS made_%d`, `SELECT count(*) FROM made_%d`, `REINDEX TABLE made_%d`), n)).ReadAll()
		pause(ctx, ms(r, 0, 300))
		return err
	})
}

// forget leaves a transaction open for a while, as people do.
func (s *soak) forget(ctx context.Context, r *rand.Rand) {
	s.withSession(ctx, r, "soak_load", func(conn *pgx.Conn) error {
		_, err := conn.PgConn().Exec(ctx, fmt.Sprintf("BEGIN; UPDATE hot SET n = n WHERE id = %d; SELECT count(*) FROM hot", 2+r.IntN(3))).ReadAll()
		pause(ctx, ms(r, 100, 6000))
		if err == nil {
			_, err = conn.PgConn().Exec(ctx, "COMMIT").ReadAll()
		}
		return err
	})
}

// come connects and leaves, under ever new names.
func (s *soak) come(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		database := oneOf(r, append([]string{"postgres", "soak_random", "soak_load"}, soakDatabases...)...)
		conn, err := s.server.dial(ctx, database, fmt.Sprintf("soak_%d", r.IntN(soakRoles)), fmt.Sprintf("guest %d", r.Uint32()))
		if err == nil {
			_, _ = conn.Exec(ctx, "SELECT 1")
			hangUp(conn)
		}
		pause(ctx, ms(r, 10, 300))
	}
}
