package sampler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr/lockmgrtest"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
)

// watcher is a sampler that is given seconds of load, and flushed after each.
type watcher struct {
	*Sampler
	t    *testing.T
	sink *recorder
	log  []report.Message
	now  time.Duration
	root int32
}

func newWatcher(t *testing.T, sink *recorder) *watcher {
	cfg := testConfig()
	cfg.AnomalyBand = 3
	sink.status.State = stateRecording
	return &watcher{t: t, sink: sink, root: 4711,
		Sampler: New(Options{Probes: &server{t: t}, Sink: sink, Log: report.New(func() {}), Conflicts: lockmgrtest.Conflicts(),
			Config: cfg, MaxProcesses: 16, LiveRoom: testRoom, Names: noNames{}})}
}

// waiting lets sessions wait for locks until to.
func (w *watcher) waiting(sessions int, to time.Duration) {
	for ; w.now < to; w.now += time.Second {
		w.wake.Now, w.wake.NowNs = start.Add(w.now+time.Second), Monotonic(w.now+time.Second)
		sec := history.Second{At: start.Add(w.now), Sampled: time.Second}
		if sessions > 0 {
			sec.Loads = []history.Load{{EventType: "Lock", Event: "transactionid", Time: time.Duration(sessions) * time.Second}}
		}
		w.observe(&sec, w.root)
		w.flush(false, false)
		w.log = append(w.log, w.o.Log.Take()...)
	}
}

func (w *watcher) since(n int) (all []history.Anomaly) {
	for _, b := range w.sink.batches[n:] {
		all = append(all, b.Anomalies...)
	}
	return all
}

func notified(list []history.Anomaly) []history.Anomaly {
	return slices.DeleteFunc(slices.Clone(list), func(a history.Anomaly) bool { return !a.Notify })
}

const learnt = 2 * time.Hour

func TestAnomalyIsWrittenAndTold(t *testing.T) {
	w := newWatcher(t, &recorder{})
	w.waiting(0, learnt)
	if n := len(w.since(0)); n != 0 || len(w.log) != 0 {
		t.Fatalf("%d anomalies of an idle server, log %+v", n, w.log)
	}
	from := len(w.sink.batches)
	w.waiting(30, learnt+30*time.Second)
	rows := w.since(from)
	if len(rows) != 2 || len(notified(rows)) != 1 {
		t.Fatalf("rows %+v, want locks and total, and one of them for listeners", rows)
	}
	a := notified(rows)[0]
	if a.WaitEventType != "Lock" || a.EndedAt != 0 || a.LeadingEvent != "Lock:transactionid" || a.RootPid != 4711 || !a.Told {
		t.Errorf("%+v", a)
	}
	if len(w.log) != 1 || w.log[0].Level != report.Warning || !strings.Contains(w.log[0].Text, "sessions waiting for Lock, since "+clock(start.Add(learnt))) ||
		!strings.Contains(w.log[0].Detail, "process 4711") || !strings.Contains(w.log[0].Hint, "lock_history.blocking_now") {
		t.Errorf("log %+v", w.log)
	}
	b := w.sink.batches[len(w.sink.batches)-1]
	if !b.Waiting {
		t.Error("no heartbeat while it lasts: the view would take it for dead")
	}
	for _, b := range w.sink.batches[from:] {
		if len(notified(b.Anomalies)) > 0 && len(b.Detector) == 0 {
			t.Error("its start came without the state: after a crash it would be told again")
		}
	}
	// While it lasts the rows are written again when they have changed, at most once a minute.
	from = len(w.sink.batches)
	w.waiting(30, learnt+5*time.Minute)
	if n := len(w.since(from)); n > 2 {
		t.Errorf("%d rows of what did not change", n)
	}
	from = len(w.sink.batches)
	for k := 31; k <= 35; k++ {
		w.waiting(k, w.now+time.Minute)
	}
	if n := len(w.since(from)); n < 8 || n > 12 || len(notified(w.since(from))) != 0 {
		t.Errorf("%d rows in 5 minutes in which it got worse", n)
	}
	for _, b := range w.sink.batches[from:] {
		if len(b.Anomalies) > 0 != (len(b.Detector) > 0) {
			t.Errorf("%d rows with a state of %d bytes: after a crash they would go back", len(b.Anomalies), len(b.Detector))
		}
	}
	// For a new segment at once, also when nothing has changed.
	w.waiting(35, w.now+2*time.Minute)
	from = len(w.sink.batches)
	w.sink.rewrite = true
	w.waiting(35, w.now+time.Second)
	if rows := w.since(from); len(rows) != 2 || len(notified(rows)) != 0 {
		t.Errorf("a new segment: %+v", rows)
	}
	from, w.log = len(w.sink.batches), nil
	w.waiting(0, w.now+2*time.Minute)
	ends := slices.DeleteFunc(w.since(from), func(a history.Anomaly) bool { return a.EndedAt == 0 })
	if len(ends) != 2 || len(notified(ends)) != 1 || ends[0].Observed != 35 || ends[0].End != history.EndNormal {
		t.Errorf("ends %+v", ends)
	}
	if len(w.log) != 1 || w.log[0].Level != report.Info || !strings.Contains(w.log[0].Text, "is over: waiting for Lock, up to 35.0 sessions") {
		t.Errorf("log %+v", w.log)
	}
	for _, b := range w.sink.batches[from:] {
		if len(notified(b.Anomalies)) > 0 && len(b.Detector) == 0 {
			t.Error("its end came without the state: after a crash it would go on")
		}
	}
	if last := w.sink.batches[len(w.sink.batches)-1]; last.Waiting {
		t.Error("the heartbeat goes on after it")
	}
}

func TestAnomalyGoesOnInTheNextLife(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := newWatcher(t, &recorder{})
		w.waiting(0, learnt)
		w.waiting(30, learnt+time.Minute)
		before := notified(w.since(0))[0]
		w.flush(false, true)
		state := w.sink.batches[len(w.sink.batches)-1].Detector
		if len(state) == 0 {
			t.Fatal("nothing is left for the next life")
		}
		now := w.now
		w = newWatcher(t, &recorder{detector: state, detectorLate: late})
		w.now = now
		w.gaps = append(w.gaps, history.Gap{Began: start, Ended: start + 1}) // something else to write
		w.waiting(30, w.now+20*time.Second)
		if late {
			for _, b := range w.sink.batches {
				if len(b.Detector) > 0 {
					t.Error("the state in the tables is written over before it was read")
				}
			}
			w.sink.detectorLate = false
		}
		w.waiting(30, w.now+5*time.Second)
		rows := w.since(0)
		if len(rows) != 2 || len(notified(rows)) != 0 || rows[1].StartedAt != before.StartedAt || len(w.log) != 0 {
			t.Errorf("late %t: rows %+v, log %+v; want both written for this life, and nothing told", late, rows, w.log)
		}
		w.waiting(0, w.now+2*time.Minute)
		if ends := notified(w.since(0)); len(ends) != 1 || ends[0].StartedAt != before.StartedAt || ends[0].EndedAt == 0 || len(w.log) != 1 {
			t.Errorf("late %t: ends %+v, log %+v", late, ends, w.log)
		}
	}
}

func TestStateDoesNotWakeAnIdleServer(t *testing.T) {
	w := newWatcher(t, &recorder{})
	w.waiting(0, 4*time.Hour)
	states := 0
	for _, b := range w.sink.batches {
		if len(b.Detector) > 0 {
			states++
			if other := *b; len(other.Health) == 0 {
				t.Error("a batch for the state alone")
			}
		}
	}
	if states > 0 { // nothing is accounted here, so there is no health either
		t.Errorf("%d states", states)
	}
	// With something else, every few minutes.
	for range 60 {
		w.gaps = append(w.gaps, history.Gap{Began: start, Ended: start + 1})
		w.waiting(0, w.now+10*time.Second)
	}
	for _, b := range w.sink.batches {
		if len(b.Detector) > 0 {
			states++
		}
	}
	if states != 2 && states != 3 {
		t.Errorf("%d states in 10 minutes in which something was written all the time", states)
	}
	n := len(w.sink.batches)
	w.flush(false, true)
	if w.flush(false, true); len(w.sink.batches) < n+1 || len(w.sink.batches[n].Detector) == 0 {
		t.Error("the end came without the state")
	}
}

func TestDamagedStateIsTold(t *testing.T) {
	w := newWatcher(t, &recorder{detector: []byte("nonsense")})
	w.waiting(0, learnt)
	if len(w.log) != 1 || !strings.Contains(w.log[0].Text, "learnt anew") || w.errors != 1 {
		t.Errorf("log %+v", w.log)
	}
	w.waiting(30, learnt+time.Minute)
	if len(notified(w.since(0))) != 1 {
		t.Error("nothing is detected after it")
	}
}

func TestUnseenAnomalyDoesNotBeat(t *testing.T) {
	w := newWatcher(t, &recorder{})
	w.waiting(0, learnt)
	w.waiting(30, learnt+time.Minute)
	if !w.mustBeat() {
		t.Error("no heartbeat while it is open")
	}
	w.wake.Now = w.wake.Now.Add(2 * unseenAfter)
	if w.mustBeat() {
		t.Error("the heartbeat keeps alive what nobody looks at")
	}
}

func TestAnomalyMessages(t *testing.T) {
	at := snapshot.FromTime(time.Date(2026, 3, 4, 14, 32, 5, 0, time.UTC))
	a := history.Anomaly{WaitEventType: "LWLock", StartedAt: at, DetectedAt: at.Add(20 * time.Second), Observed: 34.24, Expected: 3.1, Band: 6.4,
		LeadingEvent: "LWLock:BufferContent"}
	ended := func(why history.AnomalyEnd) history.Anomaly {
		e := a
		e.EndedAt, e.End = at.Add(5*time.Minute), why
		return e
	}
	total := a
	total.WaitEventType, total.LeadingEvent = "", ""
	locks := ended(history.EndNormal)
	locks.WaitEventType, locks.LeadingEvent, locks.RootPid = "Lock", "Lock:tuple", 77
	tests := []struct {
		name, want string
		a          history.Anomaly
	}{
		{"start", "unusual load: 34.2 sessions waiting for LWLock, since 2026-03-04 14:32:05+00|Usual were 3.1, up to 6.4. Most of the time went into LWLock:BufferContent.|" +
			"What it is made of: SELECT * FROM lock_history.load_by('2026-03-04 14:32:05+00', now());", a},
		{"total", "unusual load: 34.2 sessions not on CPU, since 2026-03-04 14:32:05+00|Usual were 3.1, up to 6.4.|" +
			"What it is made of: SELECT * FROM lock_history.load_by('2026-03-04 14:32:05+00', now());", total},
		{"end of locks", "unusual load is over: waiting for Lock, up to 34.2 sessions, from 2026-03-04 14:32:05+00 to 2026-03-04 14:37:05+00|" +
			"Usual were 3.1, up to 6.4. Most of the time went into Lock:tuple. Root blocker: process 77.|" +
			"Who blocked whom: SELECT * FROM lock_history.worst_moments('2026-03-04 14:32:05+00', '2026-03-04 14:37:05+00');", locks},
		{"new level", "unusual load is taken for usual from now on: waiting for LWLock, up to 34.2 sessions, since 2026-03-04 14:32:05+00", ended(history.EndNewLevel)},
		{"unknown", "to 2026-03-04 14:37:05+00; what came then nobody has seen", ended(history.EndUnknown)},
		{"switched off", "unusual load is not looked for any more", ended(history.EndSwitchedOff)},
	}
	for _, tt := range tests {
		m := anomalyMessage(&tt.a)
		if got := m.Text + "|" + m.Detail + "|" + m.Hint; !strings.Contains(got, tt.want) {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	w := newWatcher(t, &recorder{})
	w.waiting(0, time.Minute)
	sec := history.Second{Sampled: time.Second}
	if n := testing.AllocsPerRun(1000, func() {
		sec.At = start.Add(w.now)
		w.now += time.Second
		w.observe(&sec, 0)
	}); n != 0 {
		t.Errorf("%.1f allocations in a quiet second", n)
	}
}
