package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/ring"
)

// What sql/parts/56_reset.sql promises of a writer that runs beside reset().

const ringAsAtFirst = `SELECT bool_and(is_empty AND opened_at IS NULL AND closed_at IS NULL) FROM lock_history.ring`

func TestLiveReset(t *testing.T) {
	l := newLab(t, true)
	l.start()
	idle := l.session(50, "BEGIN")
	tag := lockmgr.Tag{Field1: 740, Type: lockmgr.TransactionID}
	gap := history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}}
	l.flushed(l.push(time.Second, history.Batch{Open: []history.Episode{l.wait(60, tag, idle)}}))
	l.flushed(l.push(l.cfg.Retention/(ring.Segments-1)+time.Minute, gap))
	l.flushed(l.push(time.Second, history.Batch{Open: []history.Episode{l.wait(61, tag, idle)}}))
	l.expect("true", `SELECT seg <> 0 FROM lock_history.ring WHERE closed_at IS NULL AND opened_at IS NOT NULL`)
	l.store.RewriteOpen()

	l.must(`SELECT lock_history.reset()`)
	l.expect("true", ringAsAtFirst)
	for _, leaf := range leaves {
		l.expect("0", `SELECT count(*) FROM lock_history.`+leaf)
	}
	l.expect("1 1", `SELECT (SELECT count(*) FROM lock_history.node) || ' ' || (SELECT count(*) FROM lock_history.run)`)

	// The writer goes on by itself; what it had remembered of the ring is gone.
	end := l.push(time.Second, history.Batch{Open: []history.Episode{l.wait(62, tag, idle)}})
	l.flushed(end)
	if !l.store.RewriteOpen() {
		t.Error("open waits are not asked for although reset() removed them")
	}
	l.expect("0", `SELECT seg FROM lock_history.ring WHERE closed_at IS NULL AND opened_at IS NOT NULL`)
	l.expect("0 62", `SELECT string_agg(seg || ' ' || wait_id, ',') FROM lock_history.open`)
	l.expect("2", `SELECT count(*) FROM lock_history.actor WHERE seg = 0 AND pid IN (50, 62)`)
	l.expect("true", `SELECT heartbeat = $1::timestamptz FROM lock_history.run`, end.Time())
	if st := l.store.Status(); st.Errors != 0 || st.RowsDropped != 0 || st.State != StateRecording {
		t.Errorf("status %+v", st)
	}
}

// A writer that has read the ring, and then waits for reset() to commit, must
// not write into what it has read.
func TestLiveResetBetweenLookAndWrite(t *testing.T) {
	l := newLab(t, true)
	l.start()
	gap := func(n int64) history.Batch {
		return history.Batch{Gaps: []history.Gap{{Began: l.now, Ended: l.now, Reason: history.GapLate, Lost: n}}}
	}
	l.flushed(l.push(time.Second, gap(1)))
	l.flushed(l.push(l.cfg.Retention/(ring.Segments-1)+time.Minute, gap(2)))
	l.flushed(l.push(time.Second, gap(3)))
	l.expect("true", `SELECT seg <> 0 FROM lock_history.ring WHERE closed_at IS NULL AND opened_at IS NOT NULL`)

	other := connect(t, l.dsn)
	l.mustOn(other, `BEGIN`)
	l.mustOn(other, `SELECT lock_history.reset()`)
	end := l.push(time.Second, gap(4))
	l.until("the writer waits for reset()", func() bool {
		return l.query(`SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND datname = current_database() AND wait_event_type = 'Lock'`) == "1"
	})
	l.mustOn(other, `COMMIT`)
	l.flushed(end)
	l.expect("0 4", `SELECT string_agg(seg || ' ' || lost, ',') FROM lock_history.gap`)
	l.expect("0", `SELECT string_agg(seg::text, ',') FROM lock_history.ring WHERE NOT is_empty`)
}

// The ring goes round, segments are emptied and opened, and is reset all the
// time: nobody waits for ever, nobody is the victim of a deadlock.
func TestLiveResetBesideWriter(t *testing.T) {
	l := newLab(t, true)
	l.cfg.MaxSize = 8 << 20 // a megabyte for each segment
	l.start()
	rows := make([]history.Health, 2000)
	for i := range 40 {
		l.push(time.Second, history.Batch{Health: rows})
		if i%4 == 3 {
			l.must(`SELECT lock_history.reset()`)
		}
	}
	end := l.push(time.Second, history.Batch{Health: rows[:1]})
	l.flushed(end)
	l.until("all is written", func() bool { return l.queue.Bytes() == 0 })
	for _, text := range l.texts {
		if strings.Contains(text, "deadlock") {
			t.Errorf("the writer said %q", text)
		}
	}
	if st := l.store.Status(); st.State != StateRecording || st.RowsDropped != 0 {
		t.Errorf("status %+v", st)
	}
	// Whatever is not marked empty has been opened, and nothing is where the ring says nothing is.
	for seg := range ring.Segments {
		l.expect("true", fmt.Sprintf(`SELECT r.is_empty = NOT EXISTS (SELECT FROM lock_history.health_minute_%d) FROM lock_history.ring AS r WHERE r.seg = %d`, seg, seg))
	}
}

// reset() beside a reader gives up soon, says who it is, and is not in the way
// of other readers meanwhile.
func TestLiveResetBesideReader(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate}}}))
	reader := connect(t, l.dsn)
	l.mustOn(reader, `SET application_name = 'slow reader'`)
	l.mustOn(reader, `BEGIN; SELECT count(*) FROM lock_history.gaps`)

	done := make(chan error, 1)
	other := connect(t, l.dsn)
	go func() { // ends when reset() does
		_, err := other.Exec(t.Context(), `SELECT lock_history.reset()`)
		done <- err
	}()
	var err error
	for reads := 0; err == nil; reads++ {
		select {
		case err = <-done:
			if err == nil {
				t.Fatal("reset() emptied what a reader reads")
			}
		default:
			// A lock_timeout far below what reset() takes to give up.
			l.must(`SET lock_timeout = '500ms'; SELECT count(*) FROM lock_history.gaps`)
		}
	}
	if sqlState(err) != "55P03" || !strings.Contains(detail(err), "slow reader") {
		t.Errorf("reset() says %v, %s", err, detail(err))
	}
	l.expect("1", `SELECT count(*) FROM lock_history.gap`)
	l.mustOn(reader, `COMMIT`)
	l.must(`SELECT lock_history.reset()`)
	l.expect("0", `SELECT count(*) FROM lock_history.gap`)
}

// detail is what an error of the server tells besides its message.
func detail(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Detail
	}
	return ""
}
