package sampler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

// statement is one that was first seen so long after the start.
func statement(text string, firstSeen time.Duration) RawStatement {
	return RawStatement{Text: []byte(text), FirstSeen: start.Add(firstSeen), LastSeen: start.Add(firstSeen + time.Millisecond),
		QueryStart: start.Add(firstSeen - time.Millisecond), Samples: 1, State: snapshot.StateActive}
}

// knows has the server know these statements of process 100, which is in the
// transaction that the sessions probe tells of unless xact says another one.
func knows(xact snapshot.Micros, all ...RawStatement) func(*Transaction, []RawStatement) ([]RawStatement, error) {
	return func(t *Transaction, dst []RawStatement) ([]RawStatement, error) {
		if t.Pid != 100 {
			return dst, nil
		}
		t.BackendStart, t.XactStart = start.Add(-time.Hour), xact
		return append(dst, all...), nil
	}
}

func queries(s []snapshot.Statement) string {
	var out []string
	for i := range s {
		out = append(out, s[i].Query)
	}
	return strings.Join(out, ", ")
}

func TestWhatABlockerDidBefore(t *testing.T) {
	update, read, ping := statement("update", 100*time.Millisecond), statement("read", 200*time.Millisecond), statement("ping", 300*time.Millisecond)
	later := statement("later", 2*time.Second)
	type did = func(*Transaction, []RawStatement) ([]RawStatement, error)
	tests := []struct {
		name       string
		first      did
		then       did // from 2.5 s on
		want       string
		wantLogged int
	}{
		{"nothing was seen", nil, nil, "", 0},
		{"oldest first", knows(0, ping, update, read), nil, "update, read, ping", 0},
		{"of another transaction", knows(start, update), nil, "", 0},
		{"what comes later is added", knows(0, update), knows(0, update, later), "update, later", 0},
		{"what the probe has forgotten stays", knows(0, update, ping), knows(0, later), "update, ping, later", 0},
		{"the probe fails", knows(0, update), func(*Transaction, []RawStatement) ([]RawStatement, error) {
			return nil, errors.New("no")
		}, "update", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := &server{did: tt.first, script: []moment{
				{at: 1500 * time.Millisecond, do: alterWaits},
				{at: 2500 * time.Millisecond, do: func(s *server) {
					if tt.then != nil {
						s.did = tt.then
					}
				}},
				{at: 4 * time.Second, do: nobodyWaits},
			}}
			sink := &recorder{}
			play(t, srv, sink, testConfig(), 5*time.Second)
			closed := sink.closedEpisodes()
			if len(closed) != 1 {
				t.Fatalf("%d episodes ended, want 1", len(closed))
			}
			for _, e := range closed[0].Edges {
				if got := queries(e.Blocker.Statements); got != tt.want {
					t.Errorf("%v: %q, want %q", e.Kind, got, tt.want)
				}
			}
			if closed[0].Waiter.Statements != nil {
				t.Error("what the waiter did before was looked for")
			}
			for _, of := range srv.told {
				if of.Pid != 100 {
					t.Errorf("asked what %d did, who blocks nobody", of.Pid)
				}
			}
			if n := len(srv.told); n < 20 || n > 40 {
				t.Errorf("asked %d times in 2.5 s of waiting, want with each walk", n)
			}
			if len(srv.logged) != tt.wantLogged {
				t.Errorf("logged %+v, want %d messages", srv.logged, tt.wantLogged)
			}
		})
	}
}

// A prepared transaction is nobody's any more, but is told of by its xid.
func TestWhatAPreparedTransactionDidBefore(t *testing.T) {
	srv := &server{script: []moment{
		{at: time.Second, do: func(s *server) {
			alterWaits(s)
			s.holders[0] = snapshot.Holder{Slot: 12, LeaderSlot: 12, HoldMask: 1 << 1, Xid: 740, Database: 5, Role: 10, Flags: snapshot.HolderPrepared}
		}},
		{at: 2 * time.Second, do: nobodyWaits},
	}}
	srv.did = func(t *Transaction, dst []RawStatement) ([]RawStatement, error) {
		if t.Xid != 740 {
			return dst, nil
		}
		t.BackendStart, t.XactStart = start, start // of the session that was in it
		return append(dst, statement("update", time.Millisecond)), nil
	}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 3*time.Second)
	closed := sink.closedEpisodes()
	if len(closed) != 1 || len(closed[0].Edges) != 2 {
		t.Fatalf("ended %+v", closed)
	}
	for _, e := range closed[0].Edges {
		if b := e.Blocker; b.Prepared != 740 || b.Database != 5 || b.Role != 10 || queries(b.Statements) != "update" {
			t.Errorf("%v: %+v", e.Kind, b)
		}
	}
}

// Who stands in the middle of a chain holds what another one waits for, too.
func TestWhatAWaitingBlockerDidBefore(t *testing.T) {
	srv := &server{did: knows(0, statement("update", time.Millisecond)), script: []moment{
		{at: time.Second, do: alterWaits},
		{at: 1500 * time.Millisecond, do: func(s *server) { // 100 waits in turn, for 102
			since := s.wall()
			s.waits = append([]snapshot.Wait{{Lock: 2, WaitStart: since, Slot: 0, Pid: 100}}, s.waits...)
			s.locks = append(s.locks, snapshot.Lock{Lock: 2, Field1: 5, Field2: 16385, Method: 1, FirstHolder: 1, NHolders: 1, FirstQueued: 1, NQueued: 1})
			s.holders = append(s.holders, snapshot.Holder{Slot: 2, Pid: 102, LeaderSlot: 2, LeaderPid: 102, HoldMask: 1 << 8})
			s.queue = append(s.queue, snapshot.Queued{WaitStart: since, Slot: 0, Pid: 100, LeaderSlot: 0, LeaderPid: 100, Mode: 8})
		}},
		{at: 3 * time.Second, do: nobodyWaits},
	}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 4*time.Second)
	found := false
	for _, e := range sink.closedEpisodes() {
		for _, edge := range e.Edges {
			if edge.Kind == history.Hard && edge.Blocker.Pid == 100 {
				found = true
				if got := queries(edge.Blocker.Statements); got != "update" {
					t.Errorf("%q, want what it did before it waited", got)
				}
			}
		}
	}
	if !found {
		t.Fatal("nobody waited for 100")
	}
}

// What was there when the blocking began is never pushed out, nor grows the
// list without bound.
func TestStatementsAreBounded(t *testing.T) {
	c := newSessionCache()
	c.update(&RawSession{Status: snapshot.SessionFound, Slot: 1, Pid: 101, BackendStart: 1, XactStart: 2}, start)
	tx := Transaction{Slot: 1, Pid: 101, BackendStart: 1, XactStart: 2}
	var all []RawStatement
	for i := range 100 {
		all = append(all, statement(fmt.Sprintf("s%d", i), time.Duration(i+1)*time.Second))
	}
	for to := MaxStatements; to <= len(all); to++ { // as the probe forgets, one after the other
		tx.LeftOut = int64(to - MaxStatements)
		c.setStatements(&tx, all[to-MaxStatements:to])
	}
	s := c.lookup(1, 101)
	want := slices.Concat(all[:MaxStatements], all[len(all)-MaxStatements:])
	if len(s.Statements) != len(want) || s.StatementsLeftOut != int64(len(all)-len(want)) {
		t.Fatalf("%d kept, %d left out of %d", len(s.Statements), s.StatementsLeftOut, len(all))
	}
	for i := range want {
		if s.Statements[i].Query != string(want[i].Text) {
			t.Errorf("%d: %s, want %s", i, s.Statements[i].Query, want[i].Text)
		}
	}
}

// Sessions are shared with facts that were handed out: the same statements
// make no other session, and others another one.
func TestStatementsOfASession(t *testing.T) {
	c := newSessionCache()
	read := func(xact snapshot.Micros) *snapshot.Session {
		c.update(&RawSession{Status: snapshot.SessionFound, Slot: 1, Pid: 101, BackendStart: 1, XactStart: xact}, start)
		return c.lookup(1, 101)
	}
	set := func(found ...RawStatement) *snapshot.Session {
		c.setStatements(&Transaction{Slot: 1, Pid: 101, BackendStart: 1, XactStart: 2}, found)
		return c.lookup(1, 101)
	}
	bare := read(2)
	one := statement("one", time.Second)
	with := set(one)
	if bare.Statements != nil || queries(with.Statements) != "one" {
		t.Fatalf("%v before, %v after", bare.Statements, with.Statements)
	}
	longer := one
	longer.LastSeen, longer.Samples = one.LastSeen+1000, 2
	if set(longer) != with {
		t.Error("another session because a statement goes on")
	}
	ended := longer
	ended.State = snapshot.StateIdleInTransaction
	if next := set(ended); next == with || next.Statements[0].State != ended.State || next.Statements[0].Samples != 2 || with.Statements[0].State != one.State {
		t.Errorf("%+v after it ended, %+v before", next.Statements, with.Statements)
	}
	if got := queries(set(statement("one", 2*time.Second)).Statements); got != "one, one" {
		t.Errorf("%q, want it twice: forgotten in between, it came again", got)
	}
	if n := testing.AllocsPerRun(10, func() { set(ended) }); n != 0 {
		t.Errorf("nothing new costs %v allocations", n)
	}
	if next := read(3); next.Statements != nil {
		t.Errorf("the next transaction has statements %+v", next.Statements)
	}
	if next := set(one); next.Statements != nil {
		t.Errorf("the next transaction was given what came before: %+v", next.Statements)
	}
}

func TestPreparedIsNotTakenForAnother(t *testing.T) {
	c := newSessionCache()
	first := &waitgraph.Group{Slot: 20, IsPrepared: true, Xid: 700}
	c.meetPrepared(first, start)
	c.setStatements(&Transaction{Slot: 20, Xid: 700}, []RawStatement{statement("one", time.Second)})
	known := c.lookup(20, 0)
	if queries(known.Statements) != "one" {
		t.Fatalf("got %+v", known)
	}
	c.meetPrepared(first, start)
	if c.lookup(20, 0) != known {
		t.Error("met again, it is another one")
	}
	c.meetPrepared(&waitgraph.Group{Slot: 20, IsPrepared: true, Xid: 701}, start)
	if s := c.lookup(20, 0); s.Prepared != 701 || s.Statements != nil {
		t.Errorf("the next one in that slot is %+v", s)
	}
}
