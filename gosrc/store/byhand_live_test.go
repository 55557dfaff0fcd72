package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/queue"
	"pg_lock_history/gosrc/ring"
	"pg_lock_history/gosrc/snapshot"
)

func aGap(lost int64) history.Batch {
	return history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate, Lost: lost}}}
}

// Tables changed by hand while the writer runs: it says so once, with the way
// out, keeps the facts, and goes on by itself when that is undone.
func TestLiveChangedByHand(t *testing.T) {
	const drop = `ALTER EXTENSION pg_lock_history DROP TABLE lock_history.episode_5; `
	tests := []struct {
		name, change, undo string
		says               string
		dropped            bool // the rows are refused, not kept
	}{
		{"leaf dropped", drop + `DROP TABLE lock_history.episode_5`,
			`CREATE TABLE lock_history.episode_5 PARTITION OF lock_history.episode FOR VALUES IN (5)`, "lock_history.episode_5 is missing", false},
		{"leaf detached", `ALTER TABLE lock_history.second DETACH PARTITION lock_history.second_3`,
			`ALTER TABLE lock_history.second ATTACH PARTITION lock_history.second_3 FOR VALUES IN (3)`, "lock_history.second_3 is missing or detached", false},
		{"current leaf renamed", `ALTER TABLE lock_history.gap_0 RENAME TO gap_x`, `ALTER TABLE lock_history.gap_x RENAME TO gap_0`, "lock_history.gap_0 is missing", false},
		{"parent renamed", `ALTER TABLE lock_history.gap RENAME TO gap_x; SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND datname = current_database()`,
			`ALTER TABLE lock_history.gap_x RENAME TO gap`, "lock_history.gap is missing", false},
		{"schema renamed", `ALTER SCHEMA lock_history RENAME TO elsewhere`, `ALTER SCHEMA elsewhere RENAME TO lock_history`, "is missing", false},
		{"ring emptied", `CREATE TABLE copy AS SELECT * FROM lock_history.ring; TRUNCATE lock_history.ring`,
			`INSERT INTO lock_history.ring SELECT * FROM copy`, "ring has 0 segments", false},
		{"column dropped", `ALTER TABLE lock_history.gap RENAME COLUMN detail TO detail_x`, `ALTER TABLE lock_history.gap RENAME COLUMN detail_x TO detail`, "changed by hand", false},
		{"column added", `ALTER TABLE lock_history.gap ADD COLUMN mine integer NOT NULL DEFAULT 7; ALTER TABLE lock_history.gap ALTER COLUMN mine DROP DEFAULT`,
			`ALTER TABLE lock_history.gap DROP COLUMN mine CASCADE`, `column "mine"`, true},
		{"constraint added", `ALTER TABLE lock_history.gap_0 ADD CONSTRAINT mine CHECK (lost < 0) NOT VALID`, `ALTER TABLE lock_history.gap_0 DROP CONSTRAINT mine`, `constraint "mine"`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, true)
			l.start()
			l.flushed(l.push(time.Second, aGap(1)))
			l.must(tt.change)
			end := l.push(time.Second, aGap(2)) // the ring has just turned, so its size is asked for
			l.until("it refuses", func() bool { return l.store.Status().State == StateRefused })
			if st := l.store.Status(); !strings.Contains(st.LastError, tt.says) || !strings.Contains(st.Hint, "Undo what was changed by hand") {
				t.Errorf("status %+v", st)
			}
			tried := l.store.Status().Errors
			l.until("it has tried again", func() bool { return l.store.Status().Errors >= tried+1 })
			told := slices.DeleteFunc(slices.Clone(l.texts), func(m string) bool { return !strings.Contains(m, "by hand") })
			if len(told) != 1 {
				t.Errorf("told %d times: %q", len(told), l.texts)
			}
			if tt.dropped {
				l.until("the rows are dropped", func() bool { return l.store.Status().RowsDropped > 0 })
			}
			l.must(tt.undo)
			l.flushed(max(end, l.push(time.Second, aGap(3))))
			l.until("it records", func() bool { return l.store.Status().State == StateRecording })
			late, refused := "1,2,3", "0"
			if tt.dropped {
				late, refused = "1,3", "1"
			}
			l.expect(late, `SELECT string_agg(lost::text, ',' ORDER BY lost) FROM lock_history.gap WHERE reason = 'late'`)
			l.expect(refused, `SELECT count(*) FROM lock_history.gap WHERE reason = 'writer blocked' AND lost > 0 AND detail LIKE '%refused the rows%'`)
		})
	}
}

// A column that does not get in the way does not get in the way.
func TestLiveHarmlessColumn(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, aGap(1)))
	l.must(`ALTER TABLE lock_history.gap ADD COLUMN note text DEFAULT 'mine'`)
	l.flushed(l.push(time.Second, aGap(2)))
	l.expect("1,2", `SELECT string_agg(lost::text, ',' ORDER BY lost) FROM lock_history.gap`)
}

// Whoever empties tables by hand loses what was in them, and nothing of what
// comes later: actors and names of the dictionary are written again.
func TestLiveTruncatedByHand(t *testing.T) {
	for _, tables := range []string{"actor_0", "dim_0", "open", "node, lock_history.run, lock_history.detector"} {
		t.Run(tables, func(t *testing.T) {
			l := newLab(t, true)
			l.start()
			idle := l.session(50, "BEGIN")
			tag := lockmgr.Tag{Field1: 740, Type: lockmgr.TransactionID}
			facts := func(id int32) history.Batch {
				e := l.wait(id, tag, idle)
				e.Waiter = idle
				return history.Batch{Open: []history.Episode{e}, OldestOpen: e.Start, Waiting: true, Seconds: []history.Second{
					{At: l.now, Sampled: time.Second, Active: time.Second, Loads: []history.Load{{EventType: "CPU", Event: "CPU", QueryID: 7, Time: time.Second}}}}}
			}
			l.flushed(l.push(time.Second, facts(60)))
			l.flushed(l.push(time.Second, facts(61)))
			l.store.RewriteOpen()
			l.must(`TRUNCATE lock_history.` + tables)
			l.flushed(l.push(time.Second, facts(62)))
			l.flushed(l.push(time.Second, facts(63)))
			if !l.store.RewriteOpen() {
				t.Error("open waits may be among what has gone")
			}
			l.expect("1", `SELECT count(*) FROM lock_history.actor JOIN lock_history.node USING (node_id) WHERE pid = 50`)
			l.expect("1", `SELECT count(*) FROM lock_history.dim JOIN lock_history.node USING (node_id) WHERE query_id = 7`)
			l.expect("2", `SELECT count(*) FROM lock_history.open AS o JOIN lock_history.actor AS a USING (seg, node_id, actor_id) WHERE o.wait_id IN (62, 63)`)
			l.expect("1", `SELECT count(*) FROM lock_history.node`)
			if st := l.store.Status(); st.State != StateRecording || st.RowsDropped != 0 {
				t.Errorf("status %+v", st)
			}
		})
	}
}

// The ends of waits are emptied by hand, and what says that they had begun is not:
// nobody says that they go on, nor for longer than they were seen. Also when it
// happens while there is no session, or to a segment that is closed by now.
func TestLiveEndsTruncatedByHand(t *testing.T) {
	for _, tt := range []struct {
		name                   string
		between, closed, alone bool
	}{
		{"at work", false, false, false}, {"between sessions", true, false, false},
		{"closed segment, too", false, true, false}, {"closed segment alone", false, true, true}, {"closed segment, between sessions", true, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, true)
			l.start()
			tag := lockmgr.Tag{Type: lockmgr.Advisory, Field2: 1}
			stays := l.wait(61, tag, l.session(50, "BEGIN"))
			ends := l.wait(60, tag, l.session(50, "BEGIN"))
			goesOn := history.Batch{Waiting: true, OldestOpen: stays.Start, Open: []history.Episode{stays}}
			both := goesOn
			both.Open = []history.Episode{stays, ends}
			seen := l.push(time.Second, both)
			l.flushed(seen)
			closed := ends
			closed.End, closed.Outcome = l.now.Add(time.Second), history.Granted
			l.flushed(l.push(time.Second, history.Batch{Waiting: true, OldestOpen: stays.Start, Closed: []history.Episode{closed}}))
			l.flushed(l.push(time.Second, goesOn)) // the files are known by now
			l.expect("1", `SELECT count(*) FROM lock_history.waits WHERE wait_end IS NULL`)
			if tt.closed {
				l.turn()
				l.flushed(l.push(time.Second, goesOn))
				// Closed a moment ago: of those that are older, open waits are not asked for.
				l.must(`UPDATE lock_history.ring SET closed_at = (SELECT max(heartbeat) FROM lock_history.run) WHERE seg = 0`)
			}
			l.store.RewriteOpen()
			if tt.between {
				l.must(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND datname = current_database()`)
			}
			if tt.alone {
				l.must(`TRUNCATE lock_history.episode_0`)
			} else {
				l.must(`TRUNCATE lock_history.episode`)
			}
			l.flushed(l.push(time.Second, history.Batch{Waiting: true, OldestOpen: stays.Start}))
			if !l.store.RewriteOpen() {
				t.Fatal("the one that goes on is not asked for")
			}
			l.flushed(l.push(time.Second, goesOn))
			l.expect("61", `SELECT string_agg(a.pid::text, ',') FROM lock_history.waits AS a WHERE wait_end IS NULL`)
			l.expect("unknown "+seen.Time().UTC().Format("15:04:05.000000"), `SELECT outcome || ' ' || to_char(wait_end AT TIME ZONE 'UTC', 'HH24:MI:SS.US') FROM lock_history.waits WHERE wait_end IS NOT NULL`)
		})
	}
}

// A file is gone: said, and mended by the TRUNCATE that the hint names.
func TestLiveMissingFile(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, aGap(1)))
	dir := l.query(`SELECT current_setting('data_directory')`)
	file := filepath.Join(dir, l.query(`SELECT pg_relation_filepath('lock_history.gap_0')`))
	l.must(`CHECKPOINT`) // or the server would look for the file itself
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	l.must(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND datname = current_database()`)
	end := l.push(time.Second, aGap(2))
	l.until("it says so", func() bool { return strings.Contains(l.store.Status().LastError, "damaged or missing") })
	if st := l.store.Status(); !strings.Contains(st.LastError, filepath.Base(file)) || !strings.Contains(st.Hint, "TRUNCATE") {
		t.Errorf("status %+v", st)
	}
	l.must(`TRUNCATE lock_history.gap_0`)
	l.flushed(end)
	l.expect("2", `SELECT string_agg(lost::text, ',') FROM lock_history.gap`)
}

// What was copied before a lock was met would stay on the disk, with each try.
func TestLiveTriesLeaveNothing(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, aGap(1)))
	other := connect(t, l.dsn)
	l.mustOn(other, `BEGIN; LOCK TABLE lock_history.health_minute IN SHARE MODE`)
	end := l.push(time.Second, history.Batch{Gaps: make([]history.Gap, 2000), Health: make([]history.Health, 1)})
	l.until("it has tried some times", func() bool { return l.store.Status().Errors >= 3 })
	if size := l.query(`SELECT pg_relation_size('lock_history.gap_0')`); size != "8192" {
		t.Errorf("gap_0 has grown to %s bytes without a row", size)
	}
	l.mustOn(other, `COMMIT`)
	l.flushed(end)
}

// While nothing can be written, the oldest facts are dropped, the newest stay,
// and the gap says which: of all kinds, load too.
func TestLiveOldestAreDropped(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, aGap(1)))
	other := connect(t, l.dsn)
	l.mustOn(other, `BEGIN; LOCK TABLE lock_history.run IN ACCESS EXCLUSIVE MODE`)
	l.push(time.Second, aGap(2))
	l.until("the first is taken", func() bool { return l.queue.Len() == 0 })
	second := func() history.Batch {
		return history.Batch{Seconds: []history.Second{{At: l.now, Sampled: time.Second, Loads: make([]history.Load, 1)}}}
	}
	from := l.now
	l.push(time.Second, second())
	l.queue.SetLimit(queue.Limit{Bytes: l.queue.Bytes() * 2})
	for range 30 {
		l.push(time.Second, second())
	}
	kept := l.queue.Len()
	end := l.now
	l.mustOn(other, `COMMIT`)
	l.flushed(end)
	l.expect(fmt.Sprint(kept), `SELECT count(*) FROM lock_history.second`)
	l.expect(fmt.Sprint(31-kept), `SELECT sum(lost) FROM lock_history.gap WHERE reason = 'writer blocked'`)
	l.expect("t", `SELECT left((g.began = $1::timestamptz AND g.ended = (SELECT min(s.at) + interval '1 s' - interval '1 s' FROM lock_history.second AS s))::text, 1)
		FROM lock_history.gap AS g WHERE g.reason = 'writer blocked'`, from.Time())
	if got := l.store.Status().RowsDropped; got != uint64(31-kept) {
		t.Errorf("%d rows dropped, want %d", got, 31-kept)
	}
}

// A reader holds every segment while load comes in whose statements are never
// the same: seconds and their dictionary stay within the bound, too.
func TestLiveLoadIsBoundedUnderAReader(t *testing.T) {
	l := newLab(t, true)
	l.cfg.MaxSize = 8 << 20
	l.start()
	queryID := int64(0)
	fill := func() snapshot.Micros {
		var b history.Batch
		for range 10 {
			s := history.Second{At: l.now, Sampled: time.Second, Active: time.Second}
			for range 200 { // as many as there can be
				queryID++
				s.Loads = append(s.Loads, history.Load{EventType: "IO", Event: "DataFileRead", BackendType: "client backend", QueryID: queryID, Time: time.Millisecond})
			}
			l.now = l.now.Add(time.Second)
			b.Seconds = append(b.Seconds, s)
		}
		return l.push(time.Second, b)
	}
	size := func() (n int64) {
		fmt.Sscan(l.query(`SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relispartition AND c.relkind = 'r'`), &n)
		return n
	}
	rounds := func() (n int) {
		fmt.Sscan(l.query(`SELECT sum(round) FROM lock_history.ring`), &n)
		return n
	}
	for i := 0; rounds() < ring.Segments+1; i++ {
		if i > 200 {
			t.Fatalf("it does not go round: %+v", l.store.Status())
		}
		l.flushed(fill())
	}
	reader, err := pgx.Connect(t.Context(), l.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close(context.Background())
	l.mustOn(reader, `BEGIN; SELECT count(*) FROM lock_history.load; SELECT count(*) FROM lock_history.sessions`)
	const share, flush = 1 << 20, 1 << 20
	var most int64
	for i := 0; l.store.Status().State != StateHeld || i < 40; i++ {
		if i > 200 {
			t.Fatalf("never held: %+v", l.store.Status())
		}
		l.flushed(fill())
		most = max(most, size())
	}
	if most > l.cfg.MaxSize+share+flush {
		t.Errorf("%d bytes on disk, the bound is %d", most, l.cfg.MaxSize)
	}
	dropped := l.store.Status().RowsDropped
	l.mustOn(reader, `COMMIT`)
	l.flushed(fill())
	l.until("it records", func() bool { return l.store.Status().State == StateRecording })
	l.expect(fmt.Sprint(dropped), `SELECT sum(lost) FROM lock_history.gap WHERE reason = 'ring held'`)
}
