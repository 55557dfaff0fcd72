package store

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/historytest"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/snapshot"
)

// A day of seconds of 50 active sessions of a steady mix. The promise is 64 MiB
// in all tables together; a third of it is left to what else is told of a second.
//
// PLH_LOAD_SECONDS makes it longer, with a transaction for each second as on a
// real server (make bench CASE=storage).
func TestLiveLoadSize(t *testing.T) {
	seconds, inBatch := 2000, 50
	if n, err := strconv.Atoi(os.Getenv("PLH_LOAD_SECONDS")); err == nil {
		seconds, inBatch = n, 1
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	tests := []struct {
		statements int
		limit      float64 // MiB a day
	}{
		{200, 64 * 2 / 3},
		{5000, 64 * 2 / 3}, // and its dictionary, which is not for each second
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d statements", tt.statements), func(t *testing.T) {
			l := newLab(t, true)
			m := historytest.NewMix(seed, tt.statements, l.databaseOID())
			l.start()
			l.now -= l.now % snapshot.Micros(time.Second/time.Microsecond)
			var batch []history.Second
			combinations := 0
			from := l.query(`pg_current_wal_insert_lsn()`)
			size := func(leaf string) float64 {
				return l.float(`SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relname = $1`, leaf)
			}
			const mib = 1 << 20
			var half float64 // size after half of them: what is there once does not count for each
			for n := range seconds {
				s := m.Second(l.now.Add(time.Duration(len(batch)) * time.Second))
				combinations += len(s.Loads)
				if batch = append(batch, s); len(batch) == inBatch || n == seconds-1 {
					l.flushed(l.push(time.Duration(len(batch))*time.Second, history.Batch{Seconds: batch}))
					batch = nil
				}
				if n == seconds/2-1 {
					half = size("second_0")
				}
			}
			wal := l.float(`pg_current_wal_insert_lsn() - $1::pg_lsn`, from)
			l.expect(fmt.Sprint(seconds), `SELECT count(*) FROM lock_history.second`)
			l.expect(fmt.Sprint(combinations), `SELECT sum(cardinality(dims)) FROM lock_history.second`)

			perSecond := (size("second_0") - half) / float64(seconds-seconds/2)
			dims := size("dim_0") / mib
			day := perSecond * 86400 / mib
			t.Logf("%.1f combinations a second: %.0f bytes a second, %.1f MiB a day; dictionary %.2f MiB for %s combinations; WAL %.0f bytes a second",
				float64(combinations)/float64(seconds), perSecond, day, dims, l.query(`SELECT count(*) FROM lock_history.dim`), wal/float64(seconds))
			if day > tt.limit {
				t.Errorf("%.1f MiB a day, the limit is %.1f", day, tt.limit)
			}
		})
	}
}

func (l *lab) float(sql string, args ...any) float64 {
	l.t.Helper()
	var f float64
	if err := l.db.QueryRow(context.Background(), `SELECT (`+sql+`)::float8`, args...).Scan(&f); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
	return f
}

// A text is written once for each segment, statement, role and database.
func TestLiveTexts(t *testing.T) {
	l := newLab(t, true)
	l.cfg.QueryLength = 20
	l.start()
	text := func(queryID int64, role uint32, query string) *snapshot.Session {
		s := l.session(60, query)
		s.QueryID, s.Role = queryID, role
		return s
	}
	all := `SELECT string_agg(seg || ':' || query_id || ':' || coalesce(usename, '-') || ':' || query, ',' ORDER BY seg, query_id, usesysid) FROM lock_history.dim WHERE kind = 5`
	l.flushed(l.push(time.Second, history.Batch{Texts: []*snapshot.Session{text(7, 10, "SELECT 1"), text(7, 10, "SELECT 2"), text(8, 10, "SELECT a long list of columns"), text(7, 6161, "SELECT 3")}}))
	first := "0:7:postgres:SELECT 1,0:7:-:SELECT 3,0:8:postgres:SELECT a long list o"
	l.expect(first, all)
	l.flushed(l.push(time.Second, history.Batch{Texts: []*snapshot.Session{text(7, 10, "SELECT 4")}}))
	l.stop()
	l.cfg.Server.WorkerStart = l.now // another life asks the table
	l.cfg.QueryText = querytext.Off
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Texts: []*snapshot.Session{text(8, 10, "SELECT 5"), text(9, 10, "SELECT 6")}}))
	l.expect(first, all)
	l.cfg.QueryText = querytext.Normalized
	l.store.Configure(l.cfg)
	l.store.RewriteOpen()
	l.flushed(l.push(l.cfg.Retention/7+time.Minute, history.Batch{Texts: []*snapshot.Session{text(9, 10, "SELECT 7")}}))
	l.expect(first+",1:9:postgres:SELECT $1", all)
	if !l.store.RewriteOpen() {
		t.Error("a new segment does not ask for the texts again")
	}
	l.expect("4", `SELECT count(*) FROM lock_history.queries`)
	l.expect("0", `SELECT count(*) FROM lock_history.load`)
}

func TestTextsOfASegmentAreBounded(t *testing.T) {
	n := newDimensions()
	for q := range int64(maxTexts + 10) {
		if got, want := n.lacksText(textKey{queryID: q}), q < maxTexts; got != want {
			t.Fatalf("text %d is wanted: %t", q, got)
		}
	}
	if n.lacksText(textKey{queryID: 1}) {
		t.Error("a text is written twice")
	}
}

// What does not fit two bytes of milliseconds, and numbers over 32767.
func TestLiveLoadOfManySessions(t *testing.T) {
	l := newLab(t, true)
	l.start()
	load := func(queryID int64, d time.Duration) history.Load {
		return history.Load{EventType: "Lock", Event: "relation", Mode: snapshot.NoLWLock, BackendType: "client backend", QueryID: queryID, Time: d}
	}
	at := l.now - l.now%1_000_000
	seconds := []history.Second{
		{At: at, Sampled: time.Second, Loads: []history.Load{load(1, 1001*time.Second), load(2, 32768*time.Millisecond), load(3, 32767*time.Millisecond), load(4, 0)}},
		{At: at.Add(time.Second), Sampled: time.Second, Loads: []history.Load{load(3, 32767*time.Millisecond), load(2, 40*time.Second), load(1, time.Millisecond)}},
		{At: at.Add(2 * time.Second), Sampled: time.Second, Loads: []history.Load{load(1, time.Second)}},
	}
	l.flushed(l.push(3*time.Second, history.Batch{Seconds: seconds}))
	l.expect("0/1:1001,0/2:32.768,0/3:32.767,1/1:0.001,1/2:40,1/3:32.767,2/1:1",
		`SELECT string_agg(extract(epoch FROM at - $1::timestamptz)::int || '/' || query_id || ':' || aas, ',' ORDER BY at, query_id) FROM lock_history.load`, at.Time())
	l.expect("1", `SELECT count(*) FROM lock_history.second WHERE carry IS NULL`)

	// Of numbers that are stored with a sign.
	var many history.Second
	many.At, many.Sampled = at.Add(3*time.Second), time.Second
	for n := range 40_000 {
		many.Loads = append(many.Loads, load(int64(n+1), 5*time.Millisecond))
	}
	l.flushed(l.push(time.Second, history.Batch{Seconds: []history.Second{many}}))
	l.expect("40000 800020000 200", `SELECT count(*) || ' ' || sum(query_id) || ' ' || round(sum(aas)::numeric, 3)::float8 FROM lock_history.load WHERE at = $1::timestamptz`, many.At.Time())
	l.stop()
	l.cfg.Server.WorkerStart = l.now // another life reads the dictionary
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Seconds: []history.Second{{At: l.now, Sampled: time.Second, Loads: []history.Load{load(39_000, time.Second), load(50_001, time.Second)}}}}))
	l.expect("39000,50001", `SELECT string_agg(query_id::text, ',' ORDER BY query_id) FROM lock_history.load WHERE aas = 1 AND query_id > 1`)
	l.expect("40001", `SELECT count(DISTINCT dim_id) FROM lock_history.dim`)
}
