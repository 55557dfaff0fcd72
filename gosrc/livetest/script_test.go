package livetest

import (
	"fmt"
	"math/rand/v2"
)

var modes = []string{"ACCESS SHARE", "ROW SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE",
	"SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"}

// script says what a session does next. Its numbers are odds.
type script struct {
	r        *rand.Rand
	end      int // in 100: end the transaction
	timeouts int // in 100: set a timeout first
	// ends: a transaction may be ended by its timeout, and the session with it
	ends bool
}

// schema is what the statements below work on. Autovacuum keeps away: it would
// hold locks that no client knows of.
const schema = `
	CREATE TABLE plh_row (id int PRIMARY KEY, v int) WITH (autovacuum_enabled = off);
	INSERT INTO plh_row SELECT i, 0 FROM generate_series(1, 5) AS i;
	CREATE TABLE plh_a (i int) WITH (autovacuum_enabled = off);
	CREATE TABLE plh_b (i int) WITH (autovacuum_enabled = off);
	CREATE TABLE plh_c (i int) WITH (autovacuum_enabled = off);
	CREATE TABLE plh_wide (i int, pad text) WITH (autovacuum_enabled = off, parallel_workers = 2);
	INSERT INTO plh_wide SELECT i, repeat('x', 500) FROM generate_series(1, 200) AS i;
	ANALYZE plh_wide;
	-- in each process of a parallel query
	CREATE FUNCTION plh_touch(i int, what text) RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS
		$$ BEGIN EXECUTE 'LOCK TABLE ' || what; RETURN i; END $$;
	-- a failed wait that no client sees
	CREATE FUNCTION plh_try(sql text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		message text;
		detail text;
		context text;
	BEGIN
		EXECUTE sql;
		RETURN '';
	EXCEPTION WHEN lock_not_available OR query_canceled OR deadlock_detected THEN
		GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, context = PG_EXCEPTION_CONTEXT;
		RETURN concat_ws('|', sqlstate, message, detail, context);
	END $$;`

// order is one thing for a session to do.
type order struct {
	prelude string // cannot wait
	sql     string
	isTry   bool // answers with the error it caught
	// releases: gives locks back when it succeeds, at any time while it runs
	releases bool
}

func (s *script) percent(n int) bool { return s.r.IntN(100) < n }

// next picks an order for a session whose transaction is in that state ('I', 'T'
// or 'E'); gid is free for a prepared transaction, "" when none may be made.
func (s *script) next(state byte, savepoint bool, gid string) order {
	switch {
	case state == 'E' && savepoint && s.percent(50):
		return order{sql: `ROLLBACK TO plh`, releases: true}
	case state == 'E':
		return order{sql: `ROLLBACK`, releases: true}
	case state == 'T' && s.percent(s.end):
		return s.ending(gid)
	case state == 'T' && s.percent(8):
		return order{sql: `SAVEPOINT plh`}
	case state == 'T' && savepoint && s.percent(15):
		return order{sql: `ROLLBACK TO plh`, releases: true}
	case s.percent(2):
		return order{sql: `SELECT pg_advisory_unlock_all()`, releases: true}
	}
	o := order{sql: s.asking()}
	if state == 'I' {
		o.prelude = `BEGIN;`
	}
	if s.percent(s.timeouts) {
		o.prelude += s.timeout()
	} else {
		o.prelude += `SET lock_timeout = 0; SET statement_timeout = 0;`
	}
	if s.ends {
		timeout := 0
		if s.percent(5) {
			timeout = 100 + s.r.IntN(400)
		}
		o.prelude += fmt.Sprintf(`SET transaction_timeout = %d;`, timeout)
	}
	if s.percent(12) {
		o.sql, o.isTry, o.releases = fmt.Sprintf(`SELECT plh_try($q$%s$q$)`, o.sql), true, true
	}
	return o
}

func (s *script) timeout() string {
	lock, statement := 0, 0
	switch s.r.IntN(3) {
	case 0:
		lock = 1 + s.r.IntN(600)
	case 1:
		statement = 1 + s.r.IntN(800)
	default:
		lock, statement = 1+s.r.IntN(600), 1+s.r.IntN(800)
	}
	return fmt.Sprintf(`SET lock_timeout = %d; SET statement_timeout = %d;`, lock, statement)
}

func (s *script) ending(gid string) order {
	switch n := s.r.IntN(10); {
	case n < 3 && gid != "":
		return order{sql: fmt.Sprintf(`PREPARE TRANSACTION '%s'`, gid), releases: true}
	case n < 7:
		return order{sql: `COMMIT`, releases: true}
	default:
		return order{sql: `ROLLBACK`, releases: true}
	}
}

// asking picks a statement that asks for a lock.
func (s *script) asking() string {
	r := s.r
	row := 1 + r.IntN(5)
	patience := ""
	switch r.IntN(10) {
	case 0:
		patience = " NOWAIT"
	case 1:
		patience = " SKIP LOCKED"
	}
	table := 'a' + rune(r.IntN(3))
	switch r.IntN(16) {
	case 0, 1:
		return fmt.Sprintf(`UPDATE plh_row SET v = v + 1 WHERE id = %d`, row)
	case 2:
		return fmt.Sprintf(`INSERT INTO plh_row VALUES (%d, 0)`, 6+r.IntN(3))
	case 3:
		return fmt.Sprintf(`INSERT INTO plh_row VALUES (%d, 0) ON CONFLICT DO NOTHING`, 6+r.IntN(3))
	case 4, 5, 6:
		strength := []string{"UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"}[r.IntN(4)]
		return fmt.Sprintf(`SELECT v FROM plh_row WHERE id = %d FOR %s%s`, row, strength, patience)
	case 7, 8:
		function := []string{"pg_advisory_xact_lock", "pg_advisory_xact_lock_shared"}[r.IntN(2)]
		return fmt.Sprintf(`SELECT %s(%d)`, function, 1+r.IntN(3))
	case 9:
		function := []string{"pg_advisory_lock", "pg_advisory_lock_shared"}[r.IntN(2)]
		return fmt.Sprintf(`SELECT %s(1, %d)`, function, 1+r.IntN(2))
	case 10, 11:
		return fmt.Sprintf(`SELECT count(plh_touch(i, 'plh_%c IN %s MODE')) FROM plh_wide`, table, modes[r.IntN(3)])
	case 12:
		other := 'a' + (table-'a'+1+rune(r.IntN(2)))%3
		return fmt.Sprintf(`LOCK TABLE plh_%c, plh_%c IN %s MODE`, table, other, modes[r.IntN(len(modes))])
	default:
		if patience != " NOWAIT" {
			patience = ""
		}
		return fmt.Sprintf(`LOCK TABLE plh_%c IN %s MODE%s`, table, modes[r.IntN(len(modes))], patience)
	}
}
