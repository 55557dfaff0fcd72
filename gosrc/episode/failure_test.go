package episode

import (
	"slices"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

func failure(slot int32, start, at snapshot.Micros, reason snapshot.FailReason) snapshot.Failure {
	return snapshot.Failure{Slot: slot, Pid: 1000 + slot, WaitStart: start, FailedAt: at, Mode: 8, Reason: reason}
}

// TestHowItEnded: process 1 waits for lock 7 from ms 4 on, and is not seen
// waiting for it any more at ms 500.
func TestHowItEnded(t *testing.T) {
	const lock = 7
	first := waiting(1, lock, ms(4))
	over := func(status snapshot.WaitStatus) []snapshot.Wait {
		return []snapshot.Wait{ended(1, lock, ms(4), status)}
	}
	again := append(over(snapshot.EndedLeft), waiting(1, lock, ms(498)))
	fails := func(f ...snapshot.Failure) []snapshot.Failure { return f }
	deadlockOn := func(pid, relation, mode string) snapshot.Failure {
		f := failure(1, 0, ms(496), snapshot.FailDeadlock)
		f.Text = "Process " + pid + " waits for " + mode + " on relation " + relation + " of database 5; blocked by process " + pid + "."
		return f
	}
	// Its start is that of the timer, which no wait has set since.
	withStart := func(f snapshot.Failure) snapshot.Failure { f.WaitStart = ms(4); return f }
	weaker := withStart(deadlockOn("1001", "7", "ExclusiveLock"))
	weaker.Mode = 7
	untold := withStart(failure(1, 0, ms(496), snapshot.FailDeadlock)) // in a language that is not read
	untold.Mode = 7
	other := failure(1, ms(4), ms(496), snapshot.FailCancelled)
	other.Pid = 77
	lost := failure(1, ms(499), ms(499.5), snapshot.FailCancelled)
	lost.Lost = 3

	tests := []struct {
		name   string
		sweeps []Sweep // at 500, 510, ...
		want   history.Outcome
	}{
		{"granted", []Sweep{{Found: over(snapshot.EndedGranted)}}, history.Granted},
		{"lock timeout", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(failure(1, ms(4), ms(496), snapshot.FailLockTimeout))}}, history.LockTimeout},
		{"statement timeout", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(failure(1, ms(4), ms(496), snapshot.FailStatementTimeout))}}, history.StatementTimeout},
		{"cancelled", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(failure(1, ms(4), ms(496), snapshot.FailCancelled))}}, history.Cancelled},
		{"terminated, its slot taken over", []Sweep{{Found: over(snapshot.EndedLeft), Failed: fails(failure(1, ms(4), ms(496), snapshot.FailTerminated))}}, history.Terminated},
		{"server stop", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(failure(1, ms(4), ms(496), snapshot.FailServerStop))}}, history.ServerStop},
		{"recovery conflict", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(failure(1, ms(4), ms(496), snapshot.FailRecoveryConflict))}}, history.RecoveryConflict},
		{"deadlock", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(failure(1, ms(4), ms(496), snapshot.FailDeadlock))}}, history.DeadlockVictim},
		{"failed, nobody knows why", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(failure(1, ms(4), ms(496), snapshot.FailFailed))}}, history.Failed},
		{"the record comes before the sweep sees the end", []Sweep{
			{Found: []snapshot.Wait{first}, Failed: fails(failure(1, ms(4), ms(496), snapshot.FailCancelled))},
			{Found: over(snapshot.EndedFailed)}}, history.Cancelled},
		{"the record comes a tick later", []Sweep{
			{Found: over(snapshot.EndedFailed)}, {Failed: fails(failure(1, ms(4), ms(496), snapshot.FailCancelled))}}, history.Cancelled},
		{"the record never comes", []Sweep{{Found: over(snapshot.EndedFailed)}}, history.Failed},
		{"waits again at once: granted", []Sweep{{Found: again}}, history.Granted},
		{"waits again at once: had failed", []Sweep{{Found: again, Failed: fails(failure(1, ms(4), ms(496), snapshot.FailLockTimeout))}}, history.LockTimeout},
		{"waits again at once: so did one in between", []Sweep{{Found: again, Failed: fails(failure(1, ms(496), ms(497), snapshot.FailLockTimeout))}}, history.Granted},
		{"granted, and failed to get another", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(failure(1, ms(496), ms(499), snapshot.FailLockTimeout))}}, history.Granted},
		{"the same, its record read after the sweep that saw this one last", []Sweep{
			{Found: []snapshot.Wait{first}, Failed: fails(failure(1, ms(496), ms(499), snapshot.FailLockTimeout))},
			{Found: over(snapshot.EndedFailed)}}, history.Granted},
		{"the one before failed, its record read after the sweep that saw this one", []Sweep{
			{Found: []snapshot.Wait{first}, Failed: fails(failure(1, ms(2), ms(3), snapshot.FailLockTimeout))},
			{Found: over(snapshot.EndedFailed)}}, history.Failed},
		{"failed, and got another", []Sweep{{Found: over(snapshot.EndedGranted), Failed: fails(failure(1, ms(4), ms(496), snapshot.FailLockTimeout))}}, history.LockTimeout},
		{"gone", []Sweep{{Found: over(snapshot.EndedLeft)}}, history.Granted},
		{"failure of the process before in the slot", []Sweep{{Found: over(snapshot.EndedLeft), Failed: fails(other)}}, history.Granted},
		{"records lost", []Sweep{{Found: over(snapshot.EndedLeft), Failed: fails(lost)}}, history.Unknown},
		{"records lost, but not its own", []Sweep{{Found: over(snapshot.EndedLeft), Failed: fails(lost, failure(1, ms(4), ms(496), snapshot.FailCancelled))}}, history.Cancelled},
		{"not to be seen, and no record", []Sweep{{Found: over(snapshot.EndedUnknown)}}, history.Unknown},
		{"deadlock without a start, on this lock", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(deadlockOn("1001", "7", "AccessExclusiveLock"))}}, history.DeadlockVictim},
		{"deadlock found at once, on another lock", []Sweep{{Found: over(snapshot.EndedLeft), Failed: fails(deadlockOn("1001", "8", "AccessExclusiveLock"))}}, history.Granted},
		{"deadlock found at once, in a stronger mode", []Sweep{{Found: over(snapshot.EndedGranted), Failed: fails(deadlockOn("1001", "7", "ExclusiveLock"))}}, history.Granted},
		{"deadlock found at once, told by the status", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(deadlockOn("1001", "8", "AccessExclusiveLock"))}}, history.Granted},
		{"deadlock found at once, with the start of the wait before", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(withStart(deadlockOn("1001", "8", "AccessExclusiveLock")))}}, history.Granted},
		{"the same, before the sweep sees the end", []Sweep{
			{Found: []snapshot.Wait{first}, Failed: fails(withStart(deadlockOn("1001", "8", "AccessExclusiveLock")))},
			{Found: over(snapshot.EndedGranted)}}, history.Granted},
		{"deadlock on this lock, with its start", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(withStart(deadlockOn("1001", "7", "AccessExclusiveLock")))}}, history.DeadlockVictim},
		{"deadlock found at once, in another mode, with the start of the wait before", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(weaker)}}, history.Granted},
		{"the same, without a text", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(untold)}}, history.Granted},
		{"deadlock found at once, with a start of its own", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(failure(1, ms(496), ms(496), snapshot.FailDeadlock))}}, history.Granted},
		{"deadlock without a start and lock", []Sweep{{Found: over(snapshot.EndedFailed), Failed: fails(failure(1, 0, ms(496), snapshot.FailDeadlock))}}, history.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(testConfig)
			s.sweep(ms(10), first)
			s.walk(ms(10), queueOf{lock, []int32{2}, []snapshot.Wait{first}})
			s.sweep(ms(490), first)
			at := ms(500)
			for _, sweep := range tt.sweeps {
				sweep.At, sweep.Previous, sweep.Ticks = at, at.Add(-tick), 1
				s.Sweep(sweep)
				at = at.Add(tick)
			}
			// Nobody asked: what may still become clear is not handed out yet.
			closed := s.Drain(at, DrainOptions{}).Closed
			s.Sweep(Sweep{At: at.Add(decideAfter), Previous: at, Ticks: 1, Found: nil})
			closed = append(closed, s.Drain(at.Add(decideAfter), DrainOptions{}).Closed...)
			closed = slices.DeleteFunc(closed, func(e history.Episode) bool { return e.Start != ms(4) })
			if len(closed) != 1 {
				t.Fatalf("%d closed", len(closed))
			}
			if e := closed[0]; e.Outcome != tt.want {
				t.Errorf("got %v, want %v", e.Outcome, tt.want)
			}
		})
	}
}

// TestEndOfFailedWait: process 1 waits from ms 4 on and is missed first at ms
// 500. Its own record of the end is better than the middle of two ticks, as
// far as it can be true.
func TestEndOfFailedWait(t *testing.T) {
	cancelled := func(at float64) []snapshot.Failure {
		return []snapshot.Failure{failure(1, ms(4), ms(at), snapshot.FailCancelled)}
	}
	gone := []snapshot.Wait{ended(1, 7, ms(4), snapshot.EndedFailed)}
	tests := []struct {
		name   string
		sweeps []Sweep // after one at 490 that saw it
		want   snapshot.Micros
	}{
		{"as recorded", []Sweep{{At: ms(500), Previous: ms(490), Found: gone, Failed: cancelled(492)}}, ms(492)},
		{"no record", []Sweep{{At: ms(500), Previous: ms(490), Found: gone}}, ms(495)},
		{"the record came late, and was written late", []Sweep{{At: ms(500), Previous: ms(490), Found: gone}, {At: ms(540), Previous: ms(530), Failed: cancelled(535)}}, ms(500)},
		{"recorded before it was last seen", []Sweep{{At: ms(500), Previous: ms(490), Found: gone, Failed: cancelled(300)}}, ms(490)},
		{"the record came first", []Sweep{{At: ms(500), Previous: ms(490), Found: []snapshot.Wait{waiting(1, 7, ms(4))}, Failed: cancelled(500.1)},
			{At: ms(510), Previous: ms(500), Found: gone}}, ms(500.1)},
		{"waits again before the end that was recorded late", []Sweep{{At: ms(500), Previous: ms(490), Failed: cancelled(499),
			Found: []snapshot.Wait{ended(1, 7, ms(4), snapshot.EndedLeft), waiting(1, 8, ms(497))}}}, ms(497)},
		{"nobody looked for a while", []Sweep{{At: ms(60_000), Previous: ms(490), Resumed: true, Found: gone, Failed: cancelled(2500)}}, ms(2500)},
		{"nobody looked, and no record", []Sweep{{At: ms(60_000), Previous: ms(490), Resumed: true, Found: gone}}, ms(490)},
		{"the clock was set forward, then it failed", []Sweep{{At: ms(3_600_500), Previous: ms(3_600_490), Step: time.Hour, Found: gone, Failed: cancelled(3_600_492)}}, ms(492)},
		{"it failed, then the clock was set forward", []Sweep{{At: ms(3_600_500), Previous: ms(3_600_490), Step: time.Hour, Found: gone, Failed: cancelled(492)}}, ms(490)},
		{"the clock was set back, no record", []Sweep{{At: ms(-3_599_500), Previous: ms(-3_599_510), Step: -time.Hour, Found: gone}}, ms(495)},
		{"it failed, then the clock was set back", []Sweep{{At: ms(-3_599_500), Previous: ms(-3_599_510), Step: -time.Hour, Found: gone, Failed: cancelled(492)}}, ms(500)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(testConfig)
			s.sweep(ms(10), waiting(1, 7, ms(4)))
			s.walk(ms(10), queueOf{7, []int32{2}, []snapshot.Wait{waiting(1, 7, ms(4))}})
			s.sweep(ms(490), waiting(1, 7, ms(4)))
			for _, sweep := range tt.sweeps {
				s.Sweep(sweep)
			}
			e := s.closedOnly(t, tt.sweeps[len(tt.sweeps)-1].At)
			if e.End != tt.want {
				t.Errorf("ended at %v, want %v", e.End.Sub(base), tt.want.Sub(base))
			}
			for _, edge := range e.Edges {
				if edge.To != e.End {
					t.Errorf("edge up to %v", edge.To.Sub(base))
				}
			}
		})
	}
}

// An unseen wait over which the clock was set is no hour long.
func TestUnseenFailureWhenTheClockIsSet(t *testing.T) {
	for _, tt := range []struct {
		name        string
		step        time.Duration
		start, fail float64
		want        time.Duration
	}{
		{"forwards in between", time.Hour, 495, 3_600_499, 4 * time.Millisecond},
		{"back in between", -time.Hour, 495, -3_599_501, 4 * time.Millisecond},
		{"forwards before", time.Hour, 3_600_495, 3_600_499, 4 * time.Millisecond},
		{"back afterwards", -time.Hour, 495, 499, 4 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(testConfig)
			s.sweep(ms(490))
			at := ms(500).Add(tt.step)
			s.Sweep(Sweep{At: at, Previous: at.Add(-tick), Ticks: 1, Step: tt.step,
				Failed: []snapshot.Failure{failure(1, ms(tt.start), ms(tt.fail), snapshot.FailLockTimeout)}})
			if d := s.Drain(at, DrainOptions{}); len(d.Short) != 1 || d.Short[0].Total != tt.want {
				t.Errorf("got %+v, want %v", d.Short, tt.want)
			}
		})
	}
}

func TestUnseenFailures(t *testing.T) {
	s := newStage(testConfig)
	s.sweep(ms(10))
	s.Sweep(Sweep{At: ms(1000), Previous: ms(10), Ticks: 1, Failed: []snapshot.Failure{
		failure(1, ms(100), ms(300), snapshot.FailLockTimeout),
		failure(1, ms(400), ms(600), snapshot.FailLockTimeout),
		failure(2, ms(500), ms(550), snapshot.FailCancelled),
		{Slot: 3, Lost: 5},
	}})
	d := s.Drain(ms(1000), DrainOptions{})
	if len(d.Closed) != 0 || len(d.Short) != 1 || d.Merged != 3 {
		t.Fatalf("got %+v", d)
	}
	if r := d.Short[0]; !r.Other || r.Waits != 3 || r.Failed != 3 || r.Total != 450*1e6 || r.Longest != 200*1e6 {
		t.Errorf("got %+v", r)
	}
	if n := s.TakeLost(); n != 5 {
		t.Errorf("%d lost, want 5", n)
	}
	if s.TakeLost() != 0 {
		t.Error("counted twice")
	}
}

func TestDeadlocks(t *testing.T) {
	w1, w2, w3, w4 := waiting(1, 7, ms(1)), waiting(2, 8, ms(2)), waiting(3, 9, ms(3)), waiting(4, 6, ms(4))
	names := map[int32]*snapshot.Session{}
	for n := int32(1); n <= 4; n++ {
		names[1000+n] = &snapshot.Session{Slot: n, Pid: 1000 + n, BackendStart: 1, ApplicationName: string('a' + n - 1)}
	}
	const two = "Process 1001 waits for AccessExclusiveLock on relation 7 of database 5; blocked by process 1002.\n" +
		"Process 1002 waits for AccessExclusiveLock on relation 8 of database 5; blocked by process 1001."
	const foreign = "Prozess 1001 wartet auf AccessExclusiveLock-Sperre auf Relation 7 der Datenbank 5; blockiert von Prozess 1002.\n" +
		"Prozess 1002 wartet auf AccessExclusiveLock-Sperre auf Relation 8 der Datenbank 5; blockiert von Prozess 1001."
	const group = "Process 1004 waits for AccessExclusiveLock on relation 6 of database 5; blocked by process 1002.\n" +
		"Process 1002 waits for AccessExclusiveLock on relation 8 of database 5; blocked by process 1004."
	type member struct {
		name     string
		victim   bool
		waitsFor int32
		relation uint32 // waited for, 0 not known
		held     uint32
		heldMode lockmgr.Mode
		wait     bool // names a wait
	}
	tests := []struct {
		name    string
		seen    []queueOf
		start   snapshot.Micros // of the victim's wait
		text    string
		members []member
		closed  int
	}{
		{"two, seen", []queueOf{{7, []int32{2}, []snapshot.Wait{w1}}, {8, []int32{1}, []snapshot.Wait{w2}}}, ms(1), two,
			[]member{{"a", true, 1002, 7, 8, 8, true}, {"b", false, 1001, 8, 7, 8, true}}, 1},
		{"two, seen, in another language", []queueOf{{7, []int32{2}, []snapshot.Wait{w1}}, {8, []int32{1}, []snapshot.Wait{w2}}}, ms(1), foreign,
			[]member{{"a", true, 1002, 7, 8, 8, true}, {"b", false, 1001, 8, 7, 8, true}}, 1},
		{"two, seen, without a text", []queueOf{{7, []int32{2}, []snapshot.Wait{w1}}, {8, []int32{1}, []snapshot.Wait{w2}}}, ms(1), "",
			[]member{{"a", true, 1002, 7, 8, 8, true}, {"b", false, 1001, 8, 7, 8, true}}, 1},
		{"three, seen, without a text", []queueOf{{7, []int32{2}, []snapshot.Wait{w1}}, {8, []int32{3}, []snapshot.Wait{w2}}, {9, []int32{1}, []snapshot.Wait{w3}}}, ms(1), "",
			[]member{{"a", true, 1002, 7, 9, 8, true}, {"b", false, 1003, 8, 7, 8, true}, {"c", false, 1001, 9, 8, 8, true}}, 1},
		{"an outsider is no member", []queueOf{{7, []int32{2}, []snapshot.Wait{w1, waiting(3, 7, ms(3))}}, {8, []int32{1}, []snapshot.Wait{w2}}}, ms(1), "",
			[]member{{"a", true, 1002, 7, 8, 8, true}, {"b", false, 1001, 8, 7, 8, true}}, 1},
		{"never seen", nil, ms(1), two, []member{{"a", true, 1002, 7, 8, 0, true}, {"b", false, 1001, 8, 7, 0, false}}, 1},
		{"never seen, in another language", nil, ms(1), foreign, []member{{"a", true, 1002, 0, 0, 0, false}, {"b", false, 1001, 0, 0, 0, false}}, 0},
		{"never seen, found before the wait began", nil, 0, two, []member{{"a", true, 1002, 7, 8, 0, false}, {"b", false, 1001, 8, 7, 0, false}}, 0},
		{"never seen, without a text", nil, ms(1), "", []member{{"a", true, 0, 0, 0, 0, false}}, 0},
		{"of a parallel query, another process stands in the circle", []queueOf{{7, []int32{2}, []snapshot.Wait{w1}}, {6, []int32{2}, []snapshot.Wait{w4}}, {8, []int32{4}, []snapshot.Wait{w2}}}, ms(1), group,
			[]member{{"d", true, 1002, 6, 8, 8, true}, {"b", false, 1004, 8, 6, 8, true}}, 1},
		{"of a parallel query, never seen", nil, ms(1), group, []member{{"d", true, 1002, 6, 8, 0, false}, {"b", false, 1004, 8, 6, 0, false}}, 0},
		{"a text that contradicts itself", nil, ms(1), two[:len(two)-2] + "9.", []member{{"a", true, 0, 0, 0, 0, false}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(testConfig)
			for pid, p := range names {
				s.read[pid-1000] = p
			}
			var found []snapshot.Wait
			for _, q := range tt.seen {
				found = append(found, q.waiters...)
			}
			if found != nil {
				s.sweep(ms(10), found...)
				s.walk(ms(10), tt.seen...)
				s.sweep(ms(110), found...)
				s.walk(ms(110), tt.seen...)
			}
			row := lockmgr.Tag{Field1: 5, Field2: 70, Field4: 1, Type: lockmgr.Tuple}
			for _, w := range found {
				s.Row(w, row)
			}
			f := failure(1, tt.start, ms(996), snapshot.FailDeadlock)
			f.Text = tt.text
			gone := []snapshot.Wait{ended(1, 7, ms(1), snapshot.EndedFailed)}
			if found == nil {
				gone = nil
			} else {
				gone = append(gone, found[1:]...)
			}
			s.Sweep(Sweep{At: ms(1000), Previous: ms(990), Ticks: 1, Found: gone, Failed: []snapshot.Failure{f}})
			strangers := s.Strangers(nil)
			if found == nil && len(strangers) != len(tt.members) || found != nil && len(strangers) != 0 {
				t.Errorf("strangers %v", strangers)
			}
			s.Introduce(func(_, pid int32) *snapshot.Session { return names[pid] })
			d := s.Drain(ms(1000), DrainOptions{})
			if len(d.Deadlocks) != 1 || len(d.Closed) != tt.closed || int64(1-tt.closed) != d.Merged {
				t.Fatalf("got %d deadlocks, %d closed, %d merged", len(d.Deadlocks), len(d.Closed), d.Merged)
			}
			for i := range d.Closed {
				if d.Closed[i].Outcome != history.DeadlockVictim {
					t.Errorf("outcome %v", d.Closed[i].Outcome)
				}
			}
			dl := d.Deadlocks[0]
			if dl.At != ms(996) || dl.ID <= 0 || len(dl.Members) != len(tt.members) {
				t.Fatalf("got %+v", dl)
			}
			for i, m := range dl.Members {
				got := member{m.Session.ApplicationName, m.IsVictim, m.WaitsFor, m.Tag.RelationOID(), m.HeldTag.RelationOID(), m.HeldMode, m.WaitID != 0}
				if got != tt.members[i] {
					t.Errorf("member %d: got %+v, want %+v", i, got, tt.members[i])
				}
				if m.Mode != 8 {
					t.Errorf("member %d: mode %v", i, m.Mode)
				}
				if (m.Row == row) != (m.HasTag && m.WaitID != 0 && found != nil) {
					t.Errorf("member %d: row %+v", i, m.Row)
				}
			}
			if s.Drain(ms(1010), DrainOptions{}).Deadlocks != nil {
				t.Error("handed out twice")
			}
		})
	}
}

// A deadlock that is found before its wait begins may carry the start of the wait
// before, which was granted long ago: it is another one, and counts.
func TestDeadlockAfterGrantedWait(t *testing.T) {
	const text = "Process 1001 waits for AccessExclusiveLock on relation 8 of database 5; blocked by process 1002.\n" +
		"Process 1002 waits for AccessExclusiveLock on relation 8 of database 5; blocked by process 1001."
	for _, tt := range []struct {
		name, text string
	}{{"on another lock", text}, {"without a text", ""}} {
		t.Run(tt.name, func(t *testing.T) {
			w := waiting(1, 7, ms(4))
			s := newStage(testConfig)
			s.sweep(ms(10), w)
			s.walk(ms(10), queueOf{7, []int32{2}, []snapshot.Wait{w}})
			s.sweep(ms(500), ended(1, 7, ms(4), snapshot.EndedGranted))
			if d := s.Drain(ms(500), DrainOptions{}); len(d.Closed) != 1 || d.Closed[0].Outcome != history.Granted {
				t.Fatalf("got %+v", d.Closed)
			}
			f := failure(1, ms(4), ms(996), snapshot.FailDeadlock)
			f.Text = tt.text
			s.Sweep(Sweep{At: ms(1000), Previous: ms(990), Ticks: 1, Failed: []snapshot.Failure{f}})
			s.Introduce(func(_, _ int32) *snapshot.Session { return nil })
			d := s.Drain(ms(1000), DrainOptions{})
			if len(d.Deadlocks) != 1 || d.Deadlocks[0].At != ms(996) || len(d.Closed) != 0 || d.Merged != 1 || len(d.Short) != 1 || d.Short[0].Total != 0 {
				t.Errorf("got %+v", d)
			}
		})
	}
}

// A circle that the server resolves by reordering the queue, or that somebody leaves, is no deadlock.
func TestNoDeadlock(t *testing.T) {
	w1, w2 := waiting(1, 7, ms(1)), waiting(2, 8, ms(2))
	circle := []queueOf{{7, []int32{2}, []snapshot.Wait{w1}}, {8, []int32{1}, []snapshot.Wait{w2}}}
	for name, f := range map[string][]snapshot.Failure{
		"resolved by granting":   nil,
		"resolved by cancelling": {failure(1, ms(1), ms(996), snapshot.FailCancelled)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(testConfig)
			s.sweep(ms(10), w1, w2)
			s.walk(ms(10), circle...)
			s.sweep(ms(110), w1, w2)
			s.walk(ms(110), circle...)
			s.Sweep(Sweep{At: ms(1000), Previous: ms(990), Ticks: 1, Failed: f, Found: []snapshot.Wait{
				ended(1, 7, ms(1), snapshot.EndedGranted), ended(2, 8, ms(2), snapshot.EndedGranted)}})
			d := s.Drain(ms(1000), DrainOptions{})
			if len(d.Closed) != 2 || !d.Closed[0].InCycle || d.Deadlocks != nil {
				t.Errorf("got %d closed, %d deadlocks", len(d.Closed), len(d.Deadlocks))
			}
		})
	}
}

// Waits that were merged have no row: the deadlock does not name them, though
// the live area has given them an identity.
func TestDeadlockOfShortWaits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		least time.Duration
		named bool
	}{{"kept", 500 * time.Millisecond, true}, {"too short to be kept", 2 * time.Second, false}} {
		t.Run(tt.name, func(t *testing.T) {
			c := testConfig
			c.MinDuration = tt.least
			s := newStage(c)
			w1, w2 := waiting(1, 7, ms(1)), waiting(2, 8, ms(2))
			s.sweep(ms(10), w1, w2)
			s.walk(ms(10), queueOf{7, []int32{2}, []snapshot.Wait{w1}}, queueOf{8, []int32{1}, []snapshot.Wait{w2}})
			for i := range 2 {
				var e history.Episode
				if s.Peek(i, &e); e.WaitID == 0 {
					t.Fatalf("wait %d is not known", i)
				}
			}
			f := failure(1, ms(1), ms(996), snapshot.FailDeadlock)
			s.Sweep(Sweep{At: ms(1000), Previous: ms(990), Ticks: 1,
				Found: []snapshot.Wait{ended(1, 7, ms(1), snapshot.EndedFailed), w2}, Failed: []snapshot.Failure{f}})
			d := s.Drain(ms(1000), DrainOptions{})
			if len(d.Deadlocks) != 1 || len(d.Deadlocks[0].Members) != 2 {
				t.Fatalf("got %+v", d.Deadlocks)
			}
			for i, m := range d.Deadlocks[0].Members {
				if got := m.WaitID != 0; got != tt.named {
					t.Errorf("member %d names a wait: %t, want %t", i, got, tt.named)
				}
			}
		})
	}
}
