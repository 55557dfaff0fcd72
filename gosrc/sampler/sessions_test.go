package sampler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

// Another process with the number of one that has gone, in its slot: what is known
// of the first is not told of the second.
func TestPidUsedAgain(t *testing.T) {
	c := newSessionCache()
	read := func(began snapshot.Micros, text string) *snapshot.Session {
		c.update(&RawSession{Status: snapshot.SessionFound, Slot: 1, Pid: 101, BackendStart: began, Text: []byte(text)}, start)
		return c.lookup(1, 101)
	}
	first := read(start, "of the first")
	c.setMembers([]waitgraph.Group{{Slot: 1, Pid: 101, Members: []int32{103}}})
	second := read(start+1, "of the second")
	if second == first || second.BackendStart != start+1 || second.Query != "of the second" || second.Members != nil {
		t.Errorf("second %+v", second)
	}
	if first.BackendStart != start || first.Query != "of the first" {
		t.Errorf("the first has become %+v", first)
	}
}

// Sessions are shared with facts that were handed out: what is added later
// must make another one.
func TestMembersOfASession(t *testing.T) {
	c := newSessionCache()
	read := func(state snapshot.State, statement snapshot.Micros) *snapshot.Session {
		c.update(&RawSession{Status: snapshot.SessionFound, Slot: 1, Pid: 101, State: state, QueryStart: statement}, start)
		return c.lookup(1, 101)
	}
	group := func(members ...int32) *snapshot.Session {
		c.setMembers([]waitgraph.Group{{Slot: 1, Pid: 101, Members: members}, {Slot: 2, Pid: 102, Members: members}})
		return c.lookup(1, 101)
	}
	alone := read(snapshot.StateActive, 1)
	with := group(103, 104)
	if alone.Members != nil || !slices.Equal(with.Members, []int32{103, 104}) {
		t.Fatalf("members %v before, %v after", alone.Members, with.Members)
	}
	if group(103, 104) != with || group(104) != with || group() != with || read(snapshot.StateActive, 1) != with {
		t.Error("another session for the same members")
	}
	if more := group(102); !slices.Equal(more.Members, []int32{102, 103, 104}) || len(with.Members) != 2 {
		t.Errorf("members %v after one has come, %v before", more.Members, with.Members)
	}
	if next := read(snapshot.StateIdleInTransaction, 1); len(next.Members) != 3 {
		t.Errorf("members %v in another state", next.Members)
	}
	if next := read(snapshot.StateActive, 2); next.Members != nil {
		t.Errorf("the next statement has members %v", next.Members)
	}
}

// Ten thousand applications, and as many statements, come by on fifty slots: what
// has been is forgotten.
func TestSessionsAreBounded(t *testing.T) {
	c := newSessionCache()
	for i := range int32(10_000) {
		name := []byte(fmt.Sprintf("application %d", i))
		c.update(&RawSession{Status: snapshot.SessionFound, Slot: i % 50, Pid: 100 + i, BackendStart: start.Add(time.Duration(i)), ApplicationName: name, Text: name, QueryID: int64(i)}, start)
	}
	if len(c.bySlot) != 50 {
		t.Errorf("%d sessions known of 50 processes", len(c.bySlot))
	}
	if s := c.lookup(49, 100+9999); s == nil || s.ApplicationName != "application 9999" {
		t.Errorf("the last is %+v", s)
	}
	if c.clear(); len(c.bySlot) != 0 {
		t.Error("something is left when nobody waits")
	}
}
