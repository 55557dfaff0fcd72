package store

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/historytest"
	"pg_lock_history/gosrc/ring"
	"pg_lock_history/gosrc/snapshot"
)

func (l *lab) share() time.Duration { return l.cfg.Retention / (ring.Segments - 1) }

// minute0 sets the lab's clock to the begin of a minute.
func (l *lab) minute0() snapshot.Micros {
	l.now -= l.now % snapshot.Micros(time.Minute/time.Microsecond)
	return l.now
}

// feed writes seconds of one statement each, from now on.
func (l *lab) feed(seconds int, each time.Duration) {
	l.t.Helper()
	var batch []history.Second
	for n := range seconds {
		batch = append(batch, history.Second{At: l.now.Add(time.Duration(n) * time.Second), Sampled: time.Second, Clients: 10 * time.Second, Active: each,
			Loads: []history.Load{{EventType: history.CPU, Event: history.CPU, Mode: snapshot.NoLWLock, BackendType: "client backend", QueryID: int64(n%3 + 1), Time: each}}})
	}
	l.flushed(l.push(time.Duration(seconds)*time.Second, history.Batch{Seconds: batch}))
}

// turn goes on to the next segment.
func (l *lab) turn() {
	l.t.Helper()
	gap := history.Gap{Began: l.now, Ended: l.now.Add(time.Second), Reason: history.GapLate}
	l.flushed(l.push(l.share()+time.Minute, history.Batch{Gaps: []history.Gap{gap}}))
}

const isRolled = `SELECT bool_and(is_rolled) FROM lock_history.ring WHERE closed_at IS NOT NULL`

func (l *lab) rolled() {
	l.t.Helper()
	l.until("closed segments are rolled up", func() bool { return l.query(isRolled) != "false" })
}

func TestLiveRollUp(t *testing.T) {
	l := newLab(t, true)
	began := l.minute0()
	l.cfg.Server.WorkerStart = began
	l.start()
	l.push(0, history.Batch{Gaps: []history.Gap{{Began: began, Ended: began + 1, Reason: history.GapLate}}}) // opens the segment
	l.feed(150, 2*time.Second)
	l.flushed(l.push(10*time.Second, history.Batch{Gaps: []history.Gap{{Began: began.Add(150 * time.Second), Ended: began.Add(160 * time.Second), Reason: history.GapLate}}}))
	text := l.session(60, "SELECT 1")
	text.QueryID = 2
	l.flushed(l.push(time.Second, history.Batch{Texts: []*snapshot.Session{text}}))
	history1 := func(view string) string {
		return `SELECT count(*) || ' ' || sum(load_ms) || ' ' || count(DISTINCT at) || ' ' || min(length) FROM lock_history.` + view
	}
	l.expect("0", `SELECT count(*) FROM lock_history.minute`)
	l.turn()
	l.rolled()

	// Seconds are there still: they count, or minutes do, and never both.
	l.expect("150 300000 150 00:00:01", history1("load_history"))
	l.expect("9 300000 3 00:01:00", history1("load_by_minute"))
	l.expect("60000 20,60000 20,31000 10", `SELECT string_agg(sampled_ms || ' ' || round((active * sampled_ms / 1000 / 6)::numeric), ',' ORDER BY at) FROM lock_history.minute`)
	l.expect("10", `SELECT max(clients) FROM lock_history.minute`)
	l.expect("3", `SELECT count(*) FROM lock_history.minute_dim WHERE kind = 1`)
	l.feed(60, time.Second)
	l.expect("210 360000 210 00:00:01", history1("load_history"))
	l.expect("69 360000 63 00:00:01", history1("load_by_minute"))

	// The ring comes round.
	for range ring.Segments - 1 {
		l.turn()
	}
	l.rolled()
	l.expect("0", `SELECT count(*) FROM lock_history.second_0`)
	l.expect("0", `SELECT count(*) FROM lock_history.second WHERE at < $1::timestamptz`, began.Add(time.Hour).Time())
	l.expect("69 360000 63 00:00:01", history1("load_history"))
	for range 2 {
		l.turn()
	}
	l.rolled()
	l.expect("15 360000 5 00:01:00", history1("load_history")) // the second minute of load was two
	l.expect("15 360000 5 00:01:00", history1("load_by_minute"))
	l.expect("SELECT 1", `SELECT query FROM lock_history.queries WHERE query_id = 2`)
	l.expect("149999.999 10000", `SELECT lock_history.sampled_ms('lab:1', $1, $1::timestamptz + interval '160 s') || ' ' || lock_history.sampled_ms('lab:1', $1::timestamptz + '170 s', $1::timestamptz + interval '180 s')`, began.Time())
	if st := l.store.Status(); st.Errors != 0 || st.State != StateRecording {
		t.Errorf("status %+v, messages %q", st, l.texts)
	}

	l.must(`SELECT lock_history.reset()`)
	l.expect("0 0 0 true", `SELECT (SELECT count(*) FROM lock_history.minute) || ' ' || (SELECT count(*) FROM lock_history.minute_dim) || ' ' || (SELECT count(*) FROM lock_history.minute_gap)
		|| ' ' || (SELECT bool_and(is_empty AND opened_at IS NULL) FROM lock_history.minute_ring)`)
}

// Steps are transactions; whoever comes next goes on where the last one was.
func TestLiveRollUpGoesOn(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.minute0()
	l.feed(600, time.Second)
	l.stop()
	l.must(`UPDATE lock_history.ring SET closed_at = opened_at + interval '1 hour' WHERE seg = 0`)
	l.must(`UPDATE lock_history.ring SET round = 1, opened_at = $1, is_empty = false WHERE seg = 1`, l.now.Time())
	l.must(`UPDATE lock_history.minute_ring SET round = 1, opened_at = (SELECT opened_at FROM lock_history.ring WHERE seg = 0), is_empty = false WHERE seg = 0`)
	l.expect("false", `SELECT lock_history.roll_up(0::smallint, 0::smallint, '4 min')`)
	l.expect("4", `SELECT count(*) FROM lock_history.minute`)
	l.expect("600 600000", `SELECT count(*) || ' ' || sum(load_ms) FROM lock_history.load_by_minute`)

	// Somebody is at it, or reads what is to be written: nobody waits.
	other := connect(t, l.dsn)
	l.mustOn(other, `BEGIN; SELECT lock_history.roll_up(0::smallint, 0::smallint, '1 min')`)
	l.cfg.Server.WorkerStart = l.now
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}}))
	l.expect("4", `SELECT count(*) FROM lock_history.minute`)
	l.mustOn(other, `ROLLBACK`)
	l.rolled()
	l.expect("10 600000 30", `SELECT count(*) || ' ' || (SELECT sum(load_ms) FROM lock_history.load_by_minute) || ' ' || sum(cardinality(dims)) FROM lock_history.minute`)
	if st := l.store.Status(); st.Errors != 0 {
		t.Errorf("status %+v, messages %q", st, l.texts)
	}
}

// Two nodes in one history, each with numbers of its own.
func TestLiveRollUpOfTwoNodes(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.minute0()
	l.feed(60, time.Second)
	other := &lab{t: t, dsn: l.dsn, db: l.db, cfg: l.cfg, now: l.now.Add(-time.Minute), changed: make(chan struct{})}
	other.cfg.NodeName = "lab:2"
	other.start()
	other.feed(30, 3*time.Second)
	l.now = other.now
	l.turn()
	l.rolled()
	l.expect("lab:1 60000 3, lab:2 90000 3", `SELECT string_agg(v.t, ', ' ORDER BY v.t) FROM (SELECT node || ' ' || sum(load_ms) || ' ' || count(DISTINCT dim_id) AS t FROM lock_history.load_by_minute GROUP BY node) AS v`)
	l.expect("6", `SELECT count(*) FROM lock_history.minute_dim`)
}

// A segment whose minutes cannot be made stays as long as there is room, and no
// longer; what is lost then is a hole.
func TestLiveRollUpGivenUp(t *testing.T) {
	l := newLab(t, true)
	l.cfg.MaxSize = 8 << 20
	l.minute0()
	began := l.now
	l.start()
	l.feed(120, time.Second)
	l.must(`ALTER TABLE lock_history.minute ADD CONSTRAINT fails CHECK (at < '2000-01-01') NOT VALID`)
	m := historytest.NewMix(1, 5000, 5)
	for range 12 {
		l.turn()
		if l.query(`SELECT is_empty FROM lock_history.ring WHERE seg = 0`) == "true" {
			t.Fatal("emptied although its minutes were not made and there was room")
		}
	}
	for range 400 {
		var batch []history.Second
		for n := range 100 {
			batch = append(batch, m.Second(l.now.Add(time.Duration(n)*time.Second)))
		}
		l.flushed(l.push(100*time.Second, history.Batch{Seconds: batch}))
		if l.query(`SELECT round > 1 OR is_empty FROM lock_history.ring WHERE seg = 0`) == "true" {
			break
		}
	}
	l.expect("true", `SELECT round > 1 OR is_empty FROM lock_history.ring WHERE seg = 0`)
	l.until("that is told", func() bool {
		all := strings.Join(l.texts, "\n")
		return strings.Contains(all, "could not be added up by minute") && strings.Contains(all, "had to be removed before")
	})
	l.expect("0", `SELECT count(*) FROM lock_history.load_history WHERE at < $1::timestamptz`, began.Add(time.Hour).Time())
	l.expect("0", `SELECT lock_history.sampled_ms('lab:1', $1, $1::timestamptz + interval '100 s')`, began.Time())
}

// Minutes have a ring of their own. A reader of it is not waited for, and what
// minutes take counts for max_size.
func TestLiveMinutesTurn(t *testing.T) {
	l := newLab(t, true)
	l.cfg.RollupRetention = 12 * l.share() // each segment of minutes holds four of the ring
	l.start()
	for range 24 {
		l.minute0()
		l.feed(60, time.Second)
		l.turn()
		l.rolled()
	}
	l.expect("true", `SELECT max(round) = 2 FROM lock_history.minute_ring`)
	l.expect("true", `SELECT min(at) > $1::timestamptz FROM lock_history.minute`, l.now.Add(-14*l.share()).Time())

	reader := connect(t, l.dsn)
	l.mustOn(reader, `BEGIN; SELECT count(*) FROM lock_history.minute`)
	for range 6 {
		l.minute0()
		l.feed(60, time.Second)
		l.turn()
	}
	before := l.query(`SELECT sum(round) FROM lock_history.minute_ring`)
	l.mustOn(reader, `ROLLBACK`)
	l.until("the ring of minutes goes on", func() bool {
		l.minute0()
		l.feed(1, time.Second)
		l.turn()
		return l.query(`SELECT sum(round) > $1::bigint FROM lock_history.minute_ring`, before) == "true"
	})
	if st := l.store.Status(); st.Errors != 0 {
		t.Errorf("status %+v, messages %q", st, l.texts)
	}
	const sizes = `SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relispartition AND c.relkind = 'r' AND c.relname ~ '_[0-7]$'`
	s := &session{conn: l.db, rows: ring.Rows{{OpenedAt: 1}}}
	if err := s.measure(context.Background(), &l.cfg); err != nil {
		t.Fatal(err)
	}
	l.expect(fmt.Sprint(s.measured.Total), sizes)
}

// Minutes of a steady mix: the promise is 5 MiB a day. PLH_LOAD_SECONDS makes it
// longer (make bench CASE=storage).
func TestLiveMinutesSize(t *testing.T) {
	seconds := 1800
	if n, err := strconv.Atoi(os.Getenv("PLH_LOAD_SECONDS")); err == nil {
		seconds = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, statements := range []int{200, 5000} {
		t.Run(fmt.Sprintf("%d statements", statements), func(t *testing.T) {
			l := newLab(t, true)
			l.minute0()
			m := historytest.NewMix(seed, statements, l.databaseOID())
			l.start()
			var batch []history.Second
			for n := range seconds {
				if batch = append(batch, m.Second(l.now.Add(time.Duration(len(batch))*time.Second))); len(batch) == 60 || n == seconds-1 {
					l.flushed(l.push(time.Duration(len(batch))*time.Second, history.Batch{Seconds: batch}))
					batch = nil
				}
			}
			sum := l.query(`SELECT sum(load_ms) FROM lock_history.load_history`)
			l.stop()
			l.must(`UPDATE lock_history.ring SET closed_at = $1 WHERE seg = 0`, l.now.Time())
			l.must(`UPDATE lock_history.ring SET round = 1, opened_at = $1, is_empty = false WHERE seg = 1`, l.now.Time())
			l.must(`UPDATE lock_history.minute_ring SET round = 1, opened_at = (SELECT opened_at FROM lock_history.ring WHERE seg = 0), is_empty = false WHERE seg = 0`)
			var took []time.Duration
			for done := "false"; done == "false"; {
				began := time.Now()
				done = l.query(`SELECT lock_history.roll_up(0::smallint, 0::smallint, $1::interval)`, rollUpStep)
				took = append(took, time.Since(began))
			}
			l.expect(sum, `SELECT sum(load_ms) FROM lock_history.load_by_minute`)
			const mib = 1 << 20
			perMinute := l.float(`SELECT avg(pg_column_size(m.*)) + 4 + 20 FROM lock_history.minute AS m`)
			pages := l.float(`SELECT pg_relation_size('lock_history.minute_0')`) / float64(seconds/60)
			dims := l.float(`SELECT pg_total_relation_size('lock_history.minute_dim_0')`) / mib
			day := 1440 * max(perMinute, pages) / mib
			slices.Sort(took)
			t.Logf("%s combinations a minute: %.0f bytes, %.1f MiB a day; dictionary of the segment %.1f MiB; a step of %v takes %v (%v to %v)",
				l.query(`SELECT round(avg(cardinality(dims))) FROM lock_history.minute`), max(perMinute, pages), day, dims, rollUpStep, took[len(took)/2], took[0], took[len(took)-1])
			// The dictionary is one for a third of rollup_retention.
			if day > 4 || dims > 10 {
				t.Errorf("%.1f MiB a day and a dictionary of %.1f MiB", day, dims)
			}
		})
	}
}
