package episode

import (
	"reflect"
	"testing"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// What is seen of a wait before it is handed out is what will be.
func TestPeek(t *testing.T) {
	s := newStage(testConfig)
	s.read[1] = &snapshot.Session{Slot: 1, Pid: 1001, BackendStart: ms(-1000)}
	s.read[2] = &snapshot.Session{Slot: 2, Pid: 1002, BackendStart: ms(-1000)}

	// The server has not published the start yet.
	s.sweep(ms(10), waiting(1, 7, 0))
	s.walk(ms(10), queueOf{7, []int32{2}, []snapshot.Wait{waiting(1, 7, 0)}})
	if !s.Known(0) || s.Known(1) {
		t.Fatalf("waiter 0 known: %v, waiter 1, of whom there is none: %v", s.Known(0), s.Known(1))
	}
	var early, e history.Episode
	s.Peek(0, &early)
	if early.Start != ms(10) || early.End != 0 || early.Waiter != s.read[1] || len(early.Edges) != 2 || early.HardCount != 1 {
		t.Errorf("early %+v", early)
	}

	w := waiting(1, 7, ms(8))
	s.sweep(ms(20), w)
	s.walk(ms(20), queueOf{7, []int32{2}, []snapshot.Wait{w}})
	s.Peek(0, &e)
	if e.Start != ms(8) || e.WaitID == early.WaitID {
		t.Errorf("start %v, id %d: want the server's own start, and its id", e.Start.Sub(base), e.WaitID)
	}
	if n := testing.AllocsPerRun(10, func() { s.Peek(0, &e) }); n != 0 {
		t.Errorf("%v allocations for another look", n)
	}
	d := s.Drain(ms(200), DrainOptions{})
	if len(d.Open) != 1 || !reflect.DeepEqual(d.Open[0], e) {
		t.Errorf("handed out %+v\nseen before %+v", d.Open, e)
	}

	if len(s.Closed()) != 0 {
		t.Error("closed before it has ended")
	}
	s.sweep(ms(300), ended(1, 7, ms(8), snapshot.EndedGranted))
	closed := s.Closed()
	if len(closed) != 1 || closed[0].WaitID != e.WaitID || closed[0].Outcome != history.Granted {
		t.Fatalf("closed %+v, want the wait", closed)
	}
	if d := s.Drain(ms(400), DrainOptions{}); !reflect.DeepEqual(d.Closed, closed) {
		t.Errorf("drained %+v, looked at %+v", d.Closed, closed)
	}
	if len(s.Closed()) != 0 {
		t.Error("closed waits stay after they were handed out")
	}
}

func TestWaiterThatNoSweepHasFound(t *testing.T) {
	s := newStage(testConfig)
	s.sweep(ms(10), waiting(1, 7, ms(9)))
	s.walk(ms(10), queueOf{7, []int32{2}, []snapshot.Wait{waiting(1, 7, ms(9)), waiting(3, 7, ms(10))}})
	if !s.Known(0) || s.Known(1) {
		t.Errorf("known %v, %v; want only the one that a sweep has found", s.Known(0), s.Known(1))
	}
}
