package store

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/queue"
)

func (l *lab) anomaly(kind string) history.Anomaly {
	return history.Anomaly{WaitEventType: kind, StartedAt: l.now.Add(-20 * time.Second), DetectedAt: l.now, Observed: 34.24, Expected: 3, Band: 6.5,
		LeadingEvent: "Lock:tuple", RootPid: 77, Told: true, Notify: true}
}

func ended(a history.Anomaly, after time.Duration) history.Anomaly {
	a.EndedAt, a.End, a.Observed = a.DetectedAt.Add(after), history.EndNormal, 50
	return a
}

// listener collects what a session that LISTENs gets.
func (l *lab) listener() func() *pgconn.Notification {
	l.t.Helper()
	conn := connect(l.t, l.dsn)
	l.mustOn(conn, `LISTEN pg_lock_history`)
	got := make(chan *pgconn.Notification, 100)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with the test
		defer close(done)
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return
			}
			got <- n
		}
	}()
	l.t.Cleanup(func() { cancel(); <-done })
	return func() *pgconn.Notification {
		l.t.Helper()
		select {
		case n := <-got:
			return n
		case <-time.After(patience):
			l.t.Fatalf("no notification; messages %q, status %+v", l.texts, l.store.Status())
			return nil
		}
	}
}

func TestLiveAnomaly(t *testing.T) {
	l := newLab(t, true)
	next := l.listener()
	l.start()
	l.push(time.Second, history.Batch{})
	a, total := l.anomaly("Lock"), l.anomaly("")
	total.Notify, total.Told = false, false
	l.flushed(l.push(time.Second, history.Batch{Waiting: true, Anomalies: []history.Anomaly{a, total}}))
	l.expect("2", `SELECT count(*) FROM lock_history.anomalies WHERE ended_at IS NULL`)
	l.expect("34.24 3 6.5 Lock:tuple 77", `SELECT concat_ws(' ', observed, expected, band, leading_event, root_pid) FROM lock_history.anomalies WHERE wait_event_type = 'Lock'`)
	n := next()
	var got map[string]any
	if err := json.Unmarshal([]byte(n.Payload), &got); err != nil || n.Channel != "pg_lock_history" {
		t.Fatalf("%+v: %v", n, err)
	}
	for key, want := range map[string]any{"event": "started", "node": "lab:1", "ended_at": nil, "ended_as": nil, "wait_event_type": "Lock",
		"observed": 34.24, "expected": 3.0, "band": 6.5, "leading_event": "Lock:tuple", "root_pid": 77.0} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	l.expect("true", `SELECT started_at = date_trunc('ms', started_at) OR $1::timestamptz = date_trunc('ms', started_at) FROM lock_history.anomalies WHERE wait_event_type = 'Lock'`, got["started_at"])
	// Again while it lasts: a row, and no notification; the next one is the end.
	again := a
	again.Notify, again.Observed = false, 40
	l.flushed(l.push(time.Minute, history.Batch{Waiting: true, Anomalies: []history.Anomaly{again}}))
	l.expect("40", `SELECT observed FROM lock_history.anomalies WHERE wait_event_type = 'Lock'`)
	end, endTotal := ended(a, 2*time.Minute), ended(total, 2*time.Minute)
	l.flushed(l.push(time.Minute, history.Batch{Anomalies: []history.Anomaly{end, endTotal}}))
	l.expect("50 normal", `SELECT concat_ws(' ', observed, ended_as) FROM lock_history.anomalies WHERE wait_event_type = 'Lock'`)
	if n := next(); !strings.Contains(n.Payload, `"event":"ended"`) || !strings.Contains(n.Payload, `"ended_as":"normal"`) {
		t.Errorf("got %s, want the end", n.Payload)
	}
	if st := l.store.Status(); st.NoticesDropped != 0 || st.Errors != 0 {
		t.Errorf("status %+v", st)
	}
}

// Open ones must not be truncated away while they last: they are asked for as
// open waits are.
func TestLiveAnomalyOutlivesItsSegment(t *testing.T) {
	l := newLab(t, true)
	l.cfg.Retention = 70 * time.Second
	l.start()
	a := l.anomaly("IO")
	a.Notify = false
	l.flushed(l.push(time.Second, history.Batch{Waiting: true, Anomalies: []history.Anomaly{a}}))
	for range 20 {
		l.flushed(l.push(5*time.Second, history.Batch{Waiting: true, Gaps: []history.Gap{{Began: l.now, Ended: l.now, Reason: history.GapLate}}}))
		if l.store.RewriteOpen() {
			l.flushed(l.push(time.Second, history.Batch{Waiting: true, Anomalies: []history.Anomaly{a}}))
		}
	}
	l.expect("true", `SELECT count(*) > 3 FROM lock_history.ring WHERE opened_at IS NOT NULL`)
	l.expect("1", `SELECT count(*) FROM lock_history.anomalies WHERE wait_event_type = 'IO'`)
}

// A commit with notifications takes a lock that all of a server share; one that
// waits for a standby holds it.
func TestLiveNotificationIsDropped(t *testing.T) {
	l := newLab(t, true)
	next := l.listener()
	l.start()
	l.flushed(l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: l.now, Ended: l.now, Reason: history.GapLate}}}))
	holder := connect(t, l.dsn)
	pid := holder.PgConn().PID()
	reset := func() {
		l.must(`ALTER SYSTEM RESET synchronous_standby_names`)
		l.must(`SELECT pg_reload_conf()`)
	}
	l.must(`SET synchronous_commit = local`)
	l.must(`ALTER SYSTEM SET synchronous_standby_names = 'nobody'`)
	t.Cleanup(func() {
		c := context.Background()
		for _, sql := range []string{`ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`} {
			if _, err := l.db.Exec(c, sql); err != nil {
				t.Error(err)
			}
		}
	})
	l.must(`SELECT pg_reload_conf()`)
	l.until("the standby is asked for", func() bool {
		return l.queryOn(holder, `SELECT current_setting('synchronous_standby_names')`) == "nobody"
	})
	held, enough := make(chan error, 1), make(chan struct{})
	go func() { // until one waits: the checkpointer has to know, too
		for {
			_, err := holder.Exec(context.Background(), `NOTIFY something`)
			select {
			case <-enough:
				held <- err
				return
			default:
			}
		}
	}()
	l.until("it waits for the standby", func() bool {
		return l.query(`SELECT coalesce((SELECT wait_event FROM pg_stat_activity WHERE pid = $1::int), '')`, int32(pid)) == "SyncRep"
	})

	began := time.Now()
	l.flushed(l.push(time.Second, history.Batch{Anomalies: []history.Anomaly{l.anomaly("Lock")}}))
	l.until("it is counted", func() bool { return l.store.Status().NoticesDropped == 1 })
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the writer waited %v for the lock", took)
	}
	l.expect("1", `SELECT count(*) FROM lock_history.anomalies`)
	l.until("it is told", func() bool {
		return strings.Contains(strings.Join(l.texts, "\n"), "could not notify listeners on pg_lock_history")
	})
	if st := l.store.Status(); st.State != StateRecording || st.Errors != 1 {
		t.Errorf("status %+v", st)
	}
	// and rows go on meanwhile
	l.flushed(l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: l.now, Ended: l.now, Reason: history.GapLate}}}))
	close(enough)
	reset()
	if err := <-held; err != nil {
		t.Error(err)
	}
	end := ended(l.anomaly("Lock"), time.Minute)
	l.flushed(l.push(time.Second, history.Batch{Anomalies: []history.Anomaly{end}}))
	if n := next(); !strings.Contains(n.Payload, `"event":"ended"`) {
		t.Errorf("got %s: what was dropped is not sent later", n.Payload)
	}
}

func TestLiveNotificationFitsEveryEncoding(t *testing.T) {
	l := newLab(t, true)
	l.cfg.NodeName = "Zürich 𝄞 \"<" + strings.Repeat("ü", 50)
	next := l.listener()
	l.start()
	l.push(time.Second, history.Batch{Anomalies: []history.Anomaly{l.anomaly("Lock")}})
	n := next()
	var got struct{ Node string }
	if err := json.Unmarshal([]byte(n.Payload), &got); err != nil || got.Node != l.cfg.NodeName {
		t.Errorf("node %q (%v), want %q", got.Node, err, l.cfg.NodeName)
	}
	if i := strings.IndexFunc(n.Payload, func(r rune) bool { return r > 126 || r < 32 }); i >= 0 {
		t.Errorf("not ASCII alone: %s", n.Payload)
	}
}

func TestLiveDetectorState(t *testing.T) {
	l := newLab(t, true)
	l.start()
	known := func() (state []byte) {
		t.Helper()
		l.until("the state is known", func() bool {
			s, ok := l.store.DetectorState()
			state = s
			return ok
		})
		if _, again := l.store.DetectorState(); again {
			t.Error("it is handed out twice")
		}
		return state
	}
	if state := known(); state != nil {
		t.Errorf("a new history has a state of %d bytes", len(state))
	}
	big := bytes.Repeat([]byte{0, 1, 2, 255}, 2000)
	l.flushed(l.push(time.Second, history.Batch{Detector: []byte("first")}))
	l.flushed(l.push(time.Second, history.Batch{Detector: big}))
	l.expect("1", `SELECT count(*) FROM lock_history.detector`)
	// Another session of the same life reads nothing.
	l.must(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	l.flushed(l.push(time.Second, history.Batch{Gaps: []history.Gap{{Began: l.now, Ended: l.now, Reason: history.GapLate}}}))
	if _, ok := l.store.DetectorState(); ok {
		t.Error("this life is given its own state")
	}
	l.stop()
	l.cfg.Server.WorkerStart = l.now.Add(time.Second)
	l.start()
	if state := known(); !bytes.Equal(state, big) {
		t.Errorf("%d bytes came back, want %d", len(state), len(big))
	}
	l.stop()
	// What an earlier life could not write is newer.
	run := int64(l.cfg.Server.WorkerStart)
	l.cfg.Server.WorkerStart = l.now.Add(time.Minute)
	l.restore = []queue.Item{{Batch: &history.Batch{Run: run, Number: 9, CompleteTo: l.now.Add(2 * time.Second), Detector: []byte("left")}, From: l.now}}
	l.start()
	l.until("it is written", func() bool {
		return l.query(`SELECT convert_from(state, 'UTF8') FROM lock_history.detector WHERE length(state) < 10`) == "left"
	})
	// Another node has its own.
	l.stop()
	l.restore = nil
	l.cfg.NodeName = "other:1"
	l.start()
	if state := known(); state != nil {
		t.Errorf("another node is given %d bytes", len(state))
	}
}
