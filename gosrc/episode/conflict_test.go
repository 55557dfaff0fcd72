package episode

import (
	"reflect"
	"testing"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// TestConflictOf reads what describe_self() in extension/errhook.c writes.
func TestConflictOf(t *testing.T) {
	const text = "5\n10\n2\n0\n-77\n100\n200\n300\n10.0.0.7\nclient backend\nreports\nSELECT 1,\n\n2"
	whole := snapshot.Session{Database: 5, Role: 10, State: 2, QueryID: -77, XactStart: 100, QueryStart: 200, StateChange: 300,
		ClientAddr: "10.0.0.7", BackendType: "client backend", ApplicationName: "reports", Query: "SELECT 1,\n\n2"}
	cut := whole
	cut.QueryCut = true
	idle := whole
	idle.Query = ""
	tests := []struct {
		name  string
		mode  int32
		text  string
		kind  snapshot.Conflict
		ended bool
		who   snapshot.Session
	}{
		{"a statement of several lines", 2, text, snapshot.ConflictSnapshot, false, whole},
		{"a session", 5 | snapshot.ConflictEnded, text, snapshot.ConflictDatabase, true, whole},
		{"a statement that goes on", 1, "5\n10\n2\n1" + text[len("5\n10\n2\n0"):], snapshot.ConflictLock, false, cut},
		{"no statement", 0, text[:len(text)-len(whole.Query)], snapshot.ConflictOther, false, idle},
		{"no text: another was being written in its place", 3, "", snapshot.ConflictBufferPin, false, snapshot.Session{}},
		{"too few lines", 3, "5\n10\n2\n0\n-77", snapshot.ConflictBufferPin, false, snapshot.Session{}},
		{"no numbers", 3, "a" + text, snapshot.ConflictBufferPin, false, snapshot.Session{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(testConfig)
			f := failure(1, 0, ms(496), snapshot.FailConflict)
			f.Mode, f.Text, f.BackendStart = tt.mode, tt.text, ms(1)
			s.Sweep(Sweep{At: ms(500), Previous: ms(490), Ticks: 1, Failed: []snapshot.Failure{f}})
			if !s.Pending() {
				t.Error("nothing to drain")
			}
			d := s.Drain(ms(500), DrainOptions{})
			who := tt.who
			who.Slot, who.Pid, who.BackendStart, who.SeenAt = 1, 1001, ms(1), ms(496)
			want := []history.Conflict{{At: ms(496), Kind: tt.kind, Ended: tt.ended, Session: &who}}
			if !reflect.DeepEqual(d.Conflicts, want) {
				t.Errorf("got %+v of %+v\nwant %+v of %+v", d.Conflicts, d.Conflicts[0].Session, want, who)
			}
			if len(d.Closed) != 0 || len(d.Short) != 0 || s.Pending() || len(s.Drain(ms(510), DrainOptions{}).Conflicts) != 0 {
				t.Error("it is no wait, and is handed out once")
			}
		})
	}
}

// A session that waits for what the replay has locked, and has a pin that the replay
// waits for, is failed before the start of its wait is published.
func TestRecoveryConflictBeforeTheTimer(t *testing.T) {
	tests := []struct {
		name  string
		start snapshot.Micros // of the wait that was seen last
		want  history.Outcome
	}{
		{"its own wait", 0, history.RecoveryConflict},
		{"another wait, before", ms(4), history.Granted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(testConfig)
			first := waiting(1, 7, tt.start)
			s.sweep(ms(10), first)
			s.walk(ms(10), queueOf{7, []int32{2}, []snapshot.Wait{first}})
			s.sweep(ms(490), first)
			s.Sweep(Sweep{At: ms(500), Previous: ms(490), Ticks: 1, Found: []snapshot.Wait{ended(1, 7, tt.start, snapshot.EndedFailed)},
				Failed: []snapshot.Failure{failure(1, ms(490.5), ms(490.5), snapshot.FailRecoveryConflict)}})
			var got []history.Outcome
			for _, e := range s.Drain(ms(500), DrainOptions{Final: true}).Closed {
				got = append(got, e.Outcome)
			}
			if len(got) == 0 || got[0] != tt.want {
				t.Errorf("got %v, want %v first", got, tt.want)
			}
		})
	}
}
