package load

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// names knows one custom event not.
type names struct{ asked int }

const unknownEvent = 0x07000063

func (n *names) Name(kind snapshot.NameKind, number uint32) (string, error) {
	n.asked++
	switch {
	case number == unknownEvent && kind == snapshot.NameEvent:
		return "", errors.New("could not find custom wait event name")
	case kind == snapshot.NameBackendType:
		return fmt.Sprintf("type %d", number), nil
	case kind == snapshot.NameEventType:
		return fmt.Sprintf("class %d", number>>24), nil
	default:
		return fmt.Sprintf("event %d", number&0xffff), nil
	}
}

const second = snapshot.Micros(800_000_000_000_000)

func run(event uint32, queryID int64, us int64) *snapshot.Run {
	return &snapshot.Run{Second: second, WaitEvent: event, LWLockMode: snapshot.NoLWLock, BackendType: 4, Database: 5, Role: 10, QueryID: queryID, TimeUs: us}
}

func sums(us, clients, active int64) *snapshot.Second {
	return &snapshot.Second{Second: second, SampledUs: us, ClientsUs: clients, ActiveUs: active, Samples: 100}
}

func total(s *history.Second) (t time.Duration) {
	for i := range s.Loads {
		t += s.Loads[i].Time
	}
	return t
}

func TestWhatIsAlikeIsAddedUp(t *testing.T) {
	m := New(new(names))
	m.Add(run(0, 1, 300_000))
	m.Add(run(0, 1, 400_000))
	lw := run(0x01000043, 1, 800_000)
	lw.LWLockMode = snapshot.LWExclusive
	m.Add(lw)
	worker := run(0, 1, 100_000)
	worker.BackendType = snapshot.TypeUnknown
	m.Add(worker)
	m.AddOwn(run(0, 0, 50_000))
	s, ok := m.Close(sums(1_000_000, 3_000_000, 1_650_000))
	if !ok || s.At != second || s.Sampled != time.Second || s.Clients != 3*time.Second || s.Active != 1600*time.Millisecond {
		t.Fatalf("%t, %+v", ok, s)
	}
	want := []history.Load{
		{EventType: "class 1", Event: "event 67", Mode: snapshot.LWExclusive, BackendType: "type 4", Database: 5, Role: 10, QueryID: 1, Time: 800 * time.Millisecond},
		{EventType: history.CPU, Event: history.CPU, Mode: snapshot.NoLWLock, BackendType: "type 4", Database: 5, Role: 10, QueryID: 1, Time: 700 * time.Millisecond},
		{EventType: history.CPU, Event: history.CPU, Mode: snapshot.NoLWLock, Database: 5, Role: 10, QueryID: 1, Time: 100 * time.Millisecond},
	}
	if len(s.Loads) != len(want) {
		t.Fatalf("loads %+v", s.Loads)
	}
	for i := range want {
		if s.Loads[i] != want[i] {
			t.Errorf("load %d is %+v, want %+v", i, s.Loads[i], want[i])
		}
	}
}

func TestASecondIsToldWhenThereIsSomethingToTell(t *testing.T) {
	m := New(new(names))
	for _, step := range []struct {
		name    string
		active  bool
		clients int64
		want    bool
	}{
		{"the first sessions", false, 5_000_000, true},
		{"nothing new", false, 5_000_000, false},
		{"as many, seen at other moments", false, 4_700_000, false},
		{"one is gone", false, 4_000_000, true},
		{"somebody is active", true, 4_000_000, true},
		{"and is not any more", false, 4_000_000, false},
	} {
		if step.active {
			m.Add(run(0, 1, 10_000))
		}
		if _, ok := m.Close(sums(1_000_000, step.clients, 0)); ok != step.want {
			t.Errorf("%s: told %t", step.name, ok)
		}
	}
	m.Add(run(0, 1, 10_000))
	if s, ok := m.Close(sums(0, 0, 0)); ok {
		t.Errorf("a second without samples: %+v", s)
	}
	if s, ok := m.Close(sums(1_000_000, 4_000_000, 0)); ok {
		t.Errorf("what it had got into the next one: %+v", s)
	}
}

func TestTooManyLoseTheirStatementsAndTheSumStays(t *testing.T) {
	for _, c := range []struct {
		name             string
		queries, roles   int
		most, statements int
	}{
		{"what fits", maxLoads, 1, maxLoads, maxLoads},
		{"too many statements", 3000, 1, maxLoads, maxLoads / 2},
		{"more than are told apart at all", 20_000, 1, maxLoads, maxLoads/2 - 1}, // what is over has none, and is one of the largest
		{"too many roles", 1, 3000, maxLoads, maxLoads / 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(new(names))
			var want time.Duration
			for q := range c.queries {
				for role := range c.roles {
					r := run(0, int64(q+1), int64(1000+q+role))
					r.Role = uint32(role + 1)
					m.Add(r)
					want += time.Duration(r.TimeUs) * time.Microsecond
				}
			}
			s, _ := m.Close(sums(1_000_000, 0, 0))
			if got := total(&s); got != want {
				t.Errorf("%v in all, want %v", got, want)
			}
			statements := 0
			for i := range s.Loads {
				if s.Loads[i].QueryID != 0 {
					statements++
				}
			}
			if len(s.Loads) > c.most || statements < c.statements {
				t.Errorf("%d rows with %d statements, want at most %d and at least %d", len(s.Loads), statements, c.most, c.statements)
			}
		})
	}
}

// Whatever comes, the sum is right and memory is bounded.
func TestBounded(t *testing.T) {
	m := New(new(names))
	const events, each = 10, 3000
	for e := range events {
		for i := range each {
			r := run(uint32(e+1)<<24, int64(e*each+i+1), 1000)
			r.Database, r.Role = uint32(i+1), uint32(e*each+i+1)
			m.Add(r)
		}
		if got := len(m.sums); got > 2*maxKeys+events {
			t.Fatalf("%d kinds told apart, want at most %d", got, 2*maxKeys+events)
		}
	}
	s, _ := m.Close(sums(1_000_000, 0, 0))
	if got := total(&s); got != events*each*time.Millisecond || len(s.Loads) > maxLoads {
		t.Errorf("%v in all in %d rows", got, len(s.Loads))
	}
	if len(m.sums) != 0 {
		t.Errorf("%d left of the second before", len(m.sums))
	}
	for number := range uint32(3 * maxNames) {
		m.name(snapshot.NameEvent, number)
	}
	if len(m.known) > maxNames {
		t.Errorf("%d names kept, want at most %d", len(m.known), maxNames)
	}
}

func TestNamesAreAskedForOnce(t *testing.T) {
	n := new(names)
	m := New(n)
	for range 10 {
		m.Add(run(0x0300_0000, 1, 1000))
		m.Add(run(unknownEvent, 1, 500))
		s, _ := m.Close(sums(1_000_000, 0, 0))
		if len(s.Loads) != 2 || s.Loads[1].Event != "???" || s.Loads[1].EventType != "class 7" {
			t.Fatalf("loads %+v", s.Loads)
		}
	}
	if n.asked != 5 || m.Failed() != 1 {
		t.Errorf("asked %d times, %d failed", n.asked, m.Failed())
	}
}

func TestAQuietSecondAllocatesNothing(t *testing.T) {
	m := New(new(names))
	s := sums(1_000_000, 5_000_000, 0)
	m.Close(s)
	if n := testing.AllocsPerRun(100, func() { m.Close(s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
