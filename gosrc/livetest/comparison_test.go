package livetest

import (
	"strings"
	"testing"
	"time"
)

// The comparison itself, without a server: what it must find, and what it must
// let pass.
func TestJudge(t *testing.T) {
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	end := func(ms int) *time.Time { e := at(ms); return &e }
	lockTimeout := failure{code: "55P03", message: "canceling statement due to lock timeout"}
	cancelled := failure{code: "57014", message: "canceling statement due to user request"}
	fromWorker := failure{code: "40P01", detail: "Process 9 waits for ShareLock on relation 1 of database 2; blocked by process 8.", context: "parallel worker"}
	victim := failure{code: "40P01", detail: "Process 1 waits for ShareLock on relation 1 of database 2; blocked by process 8."}

	// Process 1 waits from 100 to 600 in a statement from 90 to 605.
	statementOf := func(f failure) statement { return statement{pid: 1, sent: at(90), done: at(605), failure: f} }
	seen := seenWait{pid: 1, leader: 1, start: at(100), locktype: "relation", mode: "ShareLock", lock: "relation/1", seen: at(598), gone: at(603)}
	ended := func(outcome string) told {
		return told{id: 1, pid: 1, leader: 1, start: at(100), end: end(600), locktype: "relation", mode: "ShareLock", outcome: outcome}
	}
	released := statement{pid: 2, sent: at(599), done: at(601), releases: true}
	early := statement{pid: 2, sent: at(300), done: at(400), releases: true}

	tests := []struct {
		name   string
		e      evidence
		want   string // the difference, "" for none
		either int
	}{
		{"granted", evidence{statements: []statement{statementOf(failure{})}, seen: []seenWait{seen}, told: []told{ended("granted")}}, "", 0},
		{"granted, but history says it failed", evidence{statements: []statement{statementOf(failure{})}, seen: []seenWait{seen}, told: []told{ended("lock_timeout")}}, "one of [granted]", 0},
		{"failed", evidence{statements: []statement{statementOf(lockTimeout)}, seen: []seenWait{seen}, told: []told{ended("lock_timeout")}}, "", 0},
		{"failed, but history says granted", evidence{statements: []statement{statementOf(lockTimeout), early}, seen: []seenWait{seen}, told: []told{ended("granted")}}, "one of [lock_timeout]", 0},
		{"failed while another one ended", evidence{statements: []statement{statementOf(lockTimeout), released}, seen: []seenWait{seen}, told: []told{ended("granted")}}, "", 1},
		{"failed while another one was ended", evidence{statements: []statement{statementOf(lockTimeout)}, ends: []span{{leader: 2, from: at(500), to: at(700)}}, seen: []seenWait{seen}, told: []told{ended("granted")}}, "", 1},
		{"failed while another one ended, history has another failure", evidence{statements: []statement{statementOf(lockTimeout), released}, seen: []seenWait{seen}, told: []told{ended("cancelled")}}, "one of [lock_timeout granted]", 1},
		{"a failure confused with another", evidence{statements: []statement{statementOf(cancelled)}, seen: []seenWait{seen}, told: []told{ended("statement_timeout")}}, "one of [cancelled]", 0},
		{"history does not know", evidence{statements: []statement{statementOf(lockTimeout), released}, seen: []seenWait{seen}, told: []told{ended("unknown")}}, "one of", 1},
		{"another error came later", evidence{statements: []statement{statementOf(failure{code: "23505"})}, seen: []seenWait{seen}, told: []told{ended("granted")}}, "", 0},
		{"not in waits", evidence{statements: []statement{statementOf(failure{})}, seen: []seenWait{seen}}, "is not in waits", 0},
		{"another start", evidence{statements: []statement{statementOf(failure{})}, seen: []seenWait{seen}, told: []told{{id: 1, pid: 1, leader: 1, start: at(101), end: end(600), outcome: "granted"}}}, "is not in waits", 0},
		{"ends too early", evidence{statements: []statement{statementOf(failure{})}, seen: []seenWait{seen}, told: []told{{id: 1, pid: 1, leader: 1, start: at(100), end: end(400), locktype: "relation", mode: "ShareLock", outcome: "granted"}}}, "it ended from", 0},
		{"never ends", evidence{statements: []statement{statementOf(failure{})}, seen: []seenWait{seen}, told: []told{{id: 1, pid: 1, leader: 1, start: at(100), locktype: "relation", mode: "ShareLock", outcome: "granted"}}}, "it ended from", 0},
		{"another lock mode", evidence{statements: []statement{statementOf(failure{})}, seen: []seenWait{seen}, told: []told{{id: 1, pid: 1, leader: 1, start: at(100), end: end(600), locktype: "relation", mode: "ExclusiveLock", outcome: "granted"}}}, "history has", 0},
		{"short and kept", evidence{minDuration: 700 * time.Millisecond, statements: []statement{statementOf(failure{})}, seen: []seenWait{seen}, told: []told{ended("granted")}}, "at most, and is in waits", 0},
		{"short and counted", evidence{minDuration: 700 * time.Millisecond, shortWaits: 1, statements: []statement{statementOf(failure{})}, seen: []seenWait{seen}}, "", 0},
		{"short and not counted", evidence{minDuration: 700 * time.Millisecond, statements: []statement{statementOf(failure{})}, seen: []seenWait{seen}}, "short_waits has 0", 0},
		{"the first of two waits", evidence{statements: []statement{statementOf(lockTimeout)}, seen: []seenWait{seen}, told: []told{ended("lock_timeout"),
			{id: 2, pid: 1, leader: 1, start: at(603), end: end(605), outcome: "lock_timeout"}}}, "one of [granted]", 0},
		{"a wait of nobody", evidence{told: []told{ended("granted")}}, "in none of the statements", 0},
		{"seen by history alone, with an outcome that does not fit", evidence{statements: []statement{statementOf(failure{})}, told: []told{ended("cancelled")}}, "one of [granted]", 0},
		{"a victim", evidence{counted: 1, deadlocks: 1, statements: []statement{statementOf(victim), released}, seen: []seenWait{seen}, told: []told{ended("deadlock")}}, "", 0},
		{"a victim, but history says granted", evidence{counted: 1, deadlocks: 1, statements: []statement{statementOf(victim), released}, seen: []seenWait{seen}, told: []told{ended("granted")}}, "one of [deadlock]", 0},
		{"a deadlock that history lacks", evidence{counted: 1, statements: []statement{statementOf(victim)}, seen: []seenWait{seen}, told: []told{ended("deadlock")}}, "history has 0", 0},
		{"a leader beside a victim", evidence{counted: 1, deadlocks: 1, statements: []statement{statementOf(fromWorker)},
			seen: []seenWait{seen, {pid: 9, leader: 1, start: at(110), locktype: "relation", mode: "ShareLock", seen: at(598), gone: at(603)}},
			told: []told{ended("failed"), {id: 2, pid: 9, leader: 1, start: at(110), end: end(600), locktype: "relation", mode: "ShareLock", outcome: "deadlock"}}}, "", 1},
		{"a failure that history does not count", evidence{minDuration: 700 * time.Millisecond, shortWaits: 1, statements: []statement{statementOf(lockTimeout)}, seen: []seenWait{seen}}, "has 0 failures", 0},
		{"a short failure", evidence{minDuration: 700 * time.Millisecond, shortWaits: 1, shortFailed: 1, statements: []statement{statementOf(lockTimeout)}, seen: []seenWait{seen}}, "", 0},
		{"another failure was caught before", evidence{statements: []statement{{pid: 1, sent: at(90), done: at(605), failure: cancelled, caught: true}}, seen: []seenWait{seen}, told: []told{ended("statement_timeout")}}, "", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := judge(&tt.e)
			found := strings.Join(v.differences, "\n")
			if (tt.want == "") != (found == "") || !strings.Contains(found, tt.want) {
				t.Errorf("got %q, want %q", found, tt.want)
			}
			if v.either != tt.either {
				t.Errorf("%d either way, want %d", v.either, tt.either)
			}
		})
	}
}

// Locks that pass from hand to hand within statements, and those that do not.
func TestMoved(t *testing.T) {
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	s := statement{pid: 1, sent: at(0), done: at(605)}
	tests := []struct {
		name     string
		locktype string
		span     span
		want     bool
	}{
		{"a transaction ends", "relation", span{leader: 2, from: at(600), to: at(602)}, true},
		{"it ended before", "relation", span{leader: 2, from: at(500), to: at(590)}, false},
		{"it ends later", "relation", span{leader: 2, from: at(606), to: at(610)}, false},
		{"its own", "relation", span{leader: 1, from: at(600), to: at(602)}, false},
		{"a statement goes on, of a relation", "relation", span{leader: 2, from: at(600), to: at(602), passing: true}, false},
		{"a statement goes on, of a tuple", "tuple", span{leader: 2, from: at(600), to: at(602), passing: true}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := seenWait{pid: 1, leader: 1, locktype: tt.locktype, seen: at(598), gone: at(603)}
			if got := moved([]span{tt.span}, &w, &s); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestDifferences(t *testing.T) {
	waiter := waitName{1, 1000}
	server := func() *serverView {
		return &serverView{
			waiting:  map[waitName]int32{waiter: 1},
			leaders:  map[int32]bool{1: true},
			hard:     map[waitName]nameSet{waiter: {"2": true, "plh_1": true}},
			blockers: map[int32]blockers{1: {pids: []int32{2, 3}, prepared: 1}},
		}
	}
	good := toldWait{leader: 1, hard: nameSet{"2": true, "plh_1": true}, soft: nameSet{"3": true}}
	inTree := tree{1: {"2": true, "plh_1": true}}
	tests := []struct {
		name      string
		tables    map[waitName]toldWait
		now, then tree
		want      string
	}{
		{"the same", map[waitName]toldWait{waiter: good}, inTree, inTree, ""},
		{"not in the tables", nil, inTree, inTree, "is not in the tables"},
		{"no soft blocker", map[waitName]toldWait{waiter: {1, good.hard, nil}}, inTree, inTree, "pg_blocking_pids() says"},
		{"one hard blocker is missing", map[waitName]toldWait{waiter: {1, nameSet{"2": true}, good.soft}}, inTree, inTree, "pg_locks says"},
		{"hard as soft", map[waitName]toldWait{waiter: {1, nameSet{"2": true}, nameSet{"3": true, "plh_1": true}}}, inTree, inTree, "pg_locks says"},
		{"another prepared transaction", map[waitName]toldWait{waiter: {1, nameSet{"2": true, "plh_2": true}, good.soft}}, inTree, inTree, "pg_locks says"},
		{"one too many", map[waitName]toldWait{waiter: good, {5, 1}: {5, good.hard, nil}}, inTree, inTree, "5 does not wait"},
		{"not in the live tree", map[waitName]toldWait{waiter: good}, tree{}, inTree, "not in blocking_now"},
		{"a soft blocker in the tree", map[waitName]toldWait{waiter: good}, inTree, tree{1: {"2": true, "plh_1": true, "3": true}}, "blocking_tree_at() says"},
		{"a hard blocker not in the tree", map[waitName]toldWait{waiter: good}, tree{1: {"2": true}}, inTree, "blocking_now says"},
		{"in the tree without waiting", map[waitName]toldWait{waiter: good}, tree{1: inTree[1], 7: {}}, inTree, "7 does not wait"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found := strings.Join(differences(server(), tt.tables, tt.now, tt.then), "\n")
			if (tt.want == "") != (found == "") || !strings.Contains(found, tt.want) {
				t.Errorf("got %q, want %q", found, tt.want)
			}
		})
	}
}
