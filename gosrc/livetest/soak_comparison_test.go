package livetest

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// What the soak must find, and what it must let pass, without a server. In each row
// process 1 waits from 100 ms to 1 s for an advisory lock of database 5 that process
// 9 has, and the looks saw it until 990 ms.
func TestJudgeSoak(t *testing.T) {
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	end := func(ms int) *time.Time { e := at(ms); return &e }
	seen := func(start, last, gone int) seenWait {
		return seenWait{pid: 1, leader: 1, start: at(start), locktype: "advisory", mode: "ExclusiveLock", lock: "advisory/5/7/1/2", seen: at(last), gone: at(gone)}
	}
	w := seen(100, 990, 1010)
	tuple := w
	tuple.locktype, tuple.lock = "tuple", "tuple/5/7/0/1"
	asked := attempt{scene: 1, pid: 1, holder: 9, advisory: true, sql: "lock", sent: at(90), done: at(1005)}
	failed := func(f failure) attempt { a := asked; a.failure = f; return a }
	lost := asked
	lost.lost = true
	going := asked
	going.done = time.Time{}
	kept := func(id int64, start, ms int, outcome string) keptWait {
		return keptWait{told{id: id, pid: 1, leader: 1, start: at(start), end: end(ms), locktype: "advisory", mode: "ExclusiveLock", outcome: outcome}, begin}
	}
	counted := func(second int) shortSum {
		return shortSum{second: begin.Unix() + int64(second), database: 5, locktype: "advisory", mode: "ExclusiveLock", root: 9, waits: 1}
	}
	gap := func(reason string, from, to int) toldGap {
		return toldGap{began: at(from), ended: at(to), reason: reason, lost: 3}
	}
	few := tempo{from: begin.Add(-time.Hour), period: 10 * time.Millisecond, minDuration: 100 * time.Millisecond, maxRows: 10}
	slow := tempo{from: begin.Add(-time.Hour), period: 10 * time.Millisecond, minDuration: 2 * time.Second, maxRows: manyRows}
	lockTimeout := failure{code: "55P03", message: "canceling statement due to lock timeout"}
	ended := failure{code: "57P01"}
	victim := failure{code: "40P01"}

	tests := []struct {
		name string
		e    soakEvidence
		want string // the difference, "" for none
		is   string // what the wait was found to be
	}{
		{"there", soakEvidence{kept: []keptWait{kept(1, 100, 1000, "granted")}}, "", "found"},
		{"not there", soakEvidence{}, "is not in waits, and no gap says why", ""},
		{"there twice", soakEvidence{kept: []keptWait{kept(1, 100, 1000, "granted"), kept(1, 100, 1000, "granted")}}, "is there twice", "found"},
		{"there twice, with another start", soakEvidence{kept: []keptWait{kept(1, 100, 1000, "granted"), kept(2, 300, 1000, "granted")}}, "waits twice at the same time", "found"},
		{"two of one process, one after the other", soakEvidence{kept: []keptWait{kept(1, 100, 1000, "granted"), kept(2, 1001, 2000, "granted")}}, "", "found"},
		{"another mode", soakEvidence{kept: []keptWait{{told{id: 1, pid: 1, start: at(100), end: end(1000), locktype: "advisory", mode: "ShareLock", outcome: "granted"}, begin}}}, "history has", "found"},
		{"ends too early", soakEvidence{kept: []keptWait{kept(1, 100, 500, "granted")}}, "it ended from", "found"},
		{"ends too late", soakEvidence{kept: []keptWait{kept(1, 100, 1500, "granted")}}, "it ended from", "found"},
		{"ends where a gap began", soakEvidence{kept: []keptWait{kept(1, 100, 500, "granted")}, gaps: []toldGap{gap("late", 500, 1600)}}, "", "found"},
		{"ends late, and health says that nobody looked", soakEvidence{kept: []keptWait{kept(1, 100, 1400, "granted")}, missed: map[int64]time.Duration{begin.Unix() / 60: time.Second}}, "", "found"},
		{"another outcome", soakEvidence{attempts: []attempt{failed(lockTimeout)}, kept: []keptWait{kept(1, 100, 1000, "granted")}}, "one of [lock_timeout]", "found"},
		{"another outcome, but the lock was just given back", soakEvidence{attempts: []attempt{failed(lockTimeout)}, releases: []release{{1, at(1000), at(1002)}}, kept: []keptWait{kept(1, 100, 1000, "granted")}}, "", "found"},
		{"given back in another scene", soakEvidence{attempts: []attempt{failed(lockTimeout)}, releases: []release{{2, at(1000), at(1002)}}, kept: []keptWait{kept(1, 100, 1000, "granted")}}, "one of [lock_timeout]", "found"},
		{"being given back", soakEvidence{attempts: []attempt{failed(lockTimeout)}, releases: []release{{1, at(900), time.Time{}}}, kept: []keptWait{kept(1, 100, 1000, "granted")}}, "", "found"},
		{"a tuple, for which the one ahead may have failed", soakEvidence{seen: []seenWait{tuple}, attempts: []attempt{failed(lockTimeout)}, kept: []keptWait{{told{id: 1, pid: 1, start: at(100), end: end(1000), locktype: "tuple", mode: "ExclusiveLock", outcome: "granted"}, begin}}}, "", "found"},
		{"given back by all, as the server stops", soakEvidence{attempts: []attempt{failed(ended)}, releases: []release{{everyScene, at(980), at(2002)}}, kept: []keptWait{kept(1, 100, 1000, "granted")}}, "", "found"},
		{"the server stopped, as its client was told", soakEvidence{attempts: []attempt{failed(ended)}, kept: []keptWait{kept(1, 100, 1000, "server_stop")}}, "", "found"},
		{"the client has not been told yet", soakEvidence{attempts: []attempt{going}, kept: []keptWait{kept(1, 100, 1000, "statement_timeout")}}, "", "found"},
		{"the client was told nothing", soakEvidence{attempts: []attempt{lost}, kept: []keptWait{kept(1, 100, 1000, "server_stop")}}, "", "found"},
		{"not known, without a reason", soakEvidence{kept: []keptWait{kept(1, 100, 500, "unknown")}}, "nothing says why its end is not known", "found"},
		{"not known, in a gap", soakEvidence{kept: []keptWait{kept(1, 100, 500, "unknown")}, gaps: []toldGap{gap("stopped", 500, 1600)}}, "", "found"},
		{"not known, after a gap", soakEvidence{kept: []keptWait{kept(1, 100, 500, "unknown")}, gaps: []toldGap{gap("stopped", 300, 500)}}, "nothing says why its end is not known", "found"},
		{"dropped", soakEvidence{gaps: []toldGap{gap("writer blocked", 500, 1600)}}, "", "writer blocked"},
		{"dropped, with no number", soakEvidence{gaps: []toldGap{{began: at(500), ended: at(1600), reason: "ring held"}}}, "no gap says why", ""},
		{"stopped all the time", soakEvidence{gaps: []toldGap{gap("stopped", 50, 1600)}}, "", "stopped"},
		{"stopped soon after its begin", soakEvidence{gaps: []toldGap{gap("stopped", 180, 1600)}}, "", "stopped"},
		{"stopped when it was in the tables", soakEvidence{gaps: []toldGap{gap("stopped", 700, 1600)}}, "no gap says why", ""},
		{"stopped long after its begin, but it was off before", soakEvidence{gaps: []toldGap{gap("disabled", 50, 700), gap("stopped", 700, 1600)}}, "", "stopped"},
		{"watched for a moment only, after a gap", soakEvidence{gaps: []toldGap{gap("stopped", 50, 900)}, short: []shortSum{counted(1)}}, "", "counted"},
		{"a gap that was over", soakEvidence{gaps: []toldGap{gap("stopped", 50, 600)}}, "no gap says why", ""},
		{"older than the ring", soakEvidence{oldest: at(2000)}, "", "older than the ring"},
		{"removed by hand", soakEvidence{byHand: []loss{{at(900), at(1200)}}}, "", "removed by hand"},
		{"removed by hand, before", soakEvidence{byHand: []loss{{at(0), at(500)}}}, "no gap says why", ""},
		{"short and counted", soakEvidence{tempi: []tempo{slow}, short: []shortSum{counted(1)}}, "", "counted"},
		{"short, counted in another second", soakEvidence{tempi: []tempo{slow}, short: []shortSum{counted(3)}}, "is neither in waits nor counted", ""},
		{"short, counted for another lock", soakEvidence{tempi: []tempo{slow}, short: []shortSum{{second: begin.Unix() + 1, database: 6, locktype: "advisory", mode: "ExclusiveLock", waits: 1}}}, "is neither in waits nor counted", ""},
		{"short and nowhere", soakEvidence{tempi: []tempo{slow}}, "is neither in waits nor counted", ""},
		{"long and counted", soakEvidence{short: []shortSum{counted(1)}}, "is not in waits, and no gap says why", ""},
		{"long and counted, over the number that is kept", soakEvidence{tempi: []tempo{few}, short: []shortSum{counted(1)}}, "", "counted"},
		{"two short ones, counted once", soakEvidence{tempi: []tempo{slow}, seen: []seenWait{w, seen(1100, 1900, 1910)}, short: []shortSum{counted(1)}}, "is neither in waits nor counted", "counted"},
		{"two short ones, counted in turn", soakEvidence{tempi: []tempo{slow}, seen: []seenWait{w, seen(1100, 2000, 2010)}, short: []shortSum{counted(1), counted(2)}}, "", "counted"},
		{"two short ones, one of which the server's end took away", soakEvidence{tempi: []tempo{slow}, seen: []seenWait{seen(100, 890, 910), seen(920, 1500, 1510)},
			gaps: []toldGap{gap("stopped", 880, 915)}, short: []shortSum{counted(1)}}, "", "stopped counted"},
		{"between two samples", soakEvidence{seen: []seenWait{seen(100, 110, 1010)}}, "", "brief"},
		{"shorter than what health says was missed", soakEvidence{seen: []seenWait{seen(100, 600, 610)}, missed: map[int64]time.Duration{begin.Unix() / 60: 600 * time.Millisecond}}, "", "missed ticks"},
		{"a victim", soakEvidence{attempts: []attempt{failed(victim)}, kept: []keptWait{kept(1, 100, 1000, "deadlock")}, deadlocks: []toldDeadlock{{1, at(1000)}}}, "", "found"},
		{"a victim that the deadlocks lack", soakEvidence{attempts: []attempt{failed(victim)}, kept: []keptWait{kept(1, 100, 1000, "deadlock")}, deadlocks: []toldDeadlock{{2, at(1000)}}}, "the victim of a deadlock", "found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := tt.e
			if e.seen == nil {
				e.seen = []seenWait{w}
			}
			if e.attempts == nil {
				e.attempts = []attempt{asked}
			}
			if e.tempi == nil {
				e.tempi = []tempo{{from: begin.Add(-time.Hour), period: 10 * time.Millisecond, minDuration: 100 * time.Millisecond, maxRows: manyRows}}
			}
			v := judgeSoak(&e)
			found := strings.Join(v.differences, "\n")
			if (tt.want == "") != (found == "") || !strings.Contains(found, tt.want) {
				t.Errorf("got %q, want %q", found, tt.want)
			}
			is := strings.Join(slices.Sorted(maps.Keys(v.lost)), " ")
			for _, kind := range []struct {
				name string
				n    int
			}{{"found", v.found}, {"counted", v.counted}, {"brief", v.brief}} {
				if kind.n > 0 {
					is = strings.TrimSpace(is + " " + kind.name)
				}
			}
			if is != tt.is {
				t.Errorf("it is %q, want %q", is, tt.is)
			}
		})
	}
}

// Lines of the server log that are our doing, and those that are not.
func TestSoakLog(t *testing.T) {
	const prefix = "2026-12-01 04:00:00.123 UTC [42] "
	tests := []struct {
		name, line string
		isWrong    bool
	}{
		{"a session was ended", "client backend {scene 1} FATAL:  terminating connection due to administrator command", false},
		{"it starts", "client backend {} FATAL:  the database system is starting up", false},
		{"ended while it logs in", "client backend {[unknown]} FATAL:  canceling authentication due to timeout", false},
		{"its client ended in the middle of a message", "client backend {pg_lock_history writer} FATAL:  terminating connection because protocol synchronization was lost", false},
		{"another end", "client backend {x} FATAL:  out of memory", true},
		{"panic", "checkpointer {} PANIC:  could not write", true},
		{"an error of a client", "client backend {x} ERROR:  deadlock detected", false},
		{"an error of ours", "client backend {pg_lock_history writer} ERROR:  syntax error", true},
		{"a message that is meant", "pg_lock_history {} WARNING:  pg_lock_history: history tables are locked by somebody, waiting for them", false},
		{"one that is not", "pg_lock_history {} WARNING:  pg_lock_history: internal error while writing history: x", true},
		{"killed by us", "postmaster {} LOG:  server process (PID 7) was terminated by signal 9: Killed", false},
		{"killed by others", "postmaster {} LOG:  server process (PID 8) was terminated by signal 9: Killed", true},
		{"crashed", "postmaster {} LOG:  server process (PID 7) was terminated by signal 11: Segmentation fault", true},
		{"the worker ended", `postmaster {} LOG:  background worker "pg_lock_history" (PID 9) exited with exit code 1`, false},
		{"the worker crashed", `postmaster {} LOG:  background worker "pg_lock_history" (PID 9) exited with exit code 2`, true},
		{"a line that goes on", "\tDETAIL of it", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &serverLog{server: &soakServer{killed: map[int]bool{7: true}}, told: make(map[string]int)}
			if got := l.judge(prefix + tt.line); (got != "") != tt.isWrong {
				t.Errorf("got %q", got)
			}
		})
	}
}
