package livetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// late bounds how far the ticks of the worker may be apart on a loaded machine:
// by so much the history may be wrong about when a wait ended.
const late = 100 * time.Millisecond

// statement is one statement of one session, as its client saw it.
type statement struct {
	pid      int32
	sql      string
	idle     time.Time // end of the one before
	sent     time.Time
	done     time.Time // answered; of a session that was ended: it has left the server
	releases bool      // it may give locks back at any time in between
	failure  failure
	isBlock  bool // one transaction more, within: given back when it ends
	// caught: another failure was caught before this one, or may have been
	caught bool
}

// failure is an error, of the statement or caught in it; zero when there was none.
type failure struct {
	code, message, detail string
	context               string
}

// transactionTimeout is the SQLSTATE of the end of a session by that setting.
const transactionTimeout = "25P04"

// outcome is the word of the history for a wait that ended with the error, ""
// when the error does not end waits.
func (f failure) outcome() string {
	switch {
	case f.code == "40P01":
		return "deadlock"
	case f.code == "55P03" && strings.Contains(f.message, "lock timeout"):
		return "lock_timeout"
	case f.code == "57014" && strings.Contains(f.message, "statement timeout"):
		return "statement_timeout"
	case f.code == "57014":
		return "cancelled"
	case f.code == "57P01" || f.code == transactionTimeout:
		return "terminated"
	}
	return ""
}

// victim is the process that failed in a deadlock, and the lock mode it asked for.
func (f failure) victim() (pid int32, mode string) {
	var rest string
	_, _ = fmt.Sscanf(f.detail, "Process %d waits for %s", &pid, &rest)
	return pid, rest
}

// told is a wait as the history has it.
type told struct {
	id             int64
	pid, leader    int32
	start          time.Time
	end            *time.Time // nil while it goes on
	locktype, mode string
	outcome        string
}

// evidence is all that is known of a time after which nobody waits.
type evidence struct {
	minDuration time.Duration
	statements  []statement
	ends        []span // sessions ended by others
	seen        []seenWait
	told        []told
	deadlocks   int // that the history has of these sessions
	counted     int // that the server has counted
	// sums of short_waits, of these sessions and perhaps of others
	shortWaits, shortFailed int
}

// verdict is what came of the comparison.
type verdict struct {
	differences []string
	waits       int            // compared
	outcomes    map[string]int // of these, as history tells them
	either      int            // of these, may have been granted just when they failed
	eitherWon   int            // of these, granted says the history
	short       int            // not kept alone, and not long enough for sure
	mustSum     int            // of these, long enough to be among the short ones
	deadlocks   int
}

// span is a time in which locks may have been given back.
type span struct {
	leader   int32
	from, to time.Time
	// passing: nothing but what is not kept to the end of a transaction, such as
	// the lock of a tuple
	passing bool
}

// judge compares the history with what clients and the list of waits know.
func judge(e *evidence) verdict {
	v := verdict{outcomes: make(map[string]int)}
	differ := func(format string, args ...any) { v.differences = append(v.differences, fmt.Sprintf(format, args...)) }

	byLeader := make(map[int32][]*statement)
	for i := range e.statements {
		s := &e.statements[i]
		byLeader[s.pid] = append(byLeader[s.pid], s)
	}
	// PostgreSQL's time has whole microseconds.
	of := func(leader int32, start time.Time) *statement {
		for _, s := range byLeader[leader] {
			if !start.Before(s.sent.Truncate(time.Microsecond)) && !start.After(s.done) {
				return s
			}
		}
		return nil
	}
	spans := e.spans()

	known := make(map[waitName]*told, len(e.told))
	for i := range e.told {
		t := &e.told[i]
		known[waitName{t.pid, t.start.UnixMicro()}] = t
	}
	last := make(map[waitName]time.Time) // of a process in a statement, by the latter's begin
	groups := make(map[*statement]bool)  // in which workers waited
	note := func(pid int32, s *statement, start time.Time) {
		if pid != s.pid {
			groups[s] = true
		}
		name := waitName{pid, s.sent.UnixNano()}
		if start.After(last[name]) {
			last[name] = start
		}
	}
	for i := range e.seen {
		if s := of(e.seen[i].leader, e.seen[i].start); s != nil {
			note(e.seen[i].pid, s, e.seen[i].start)
		}
	}
	for i := range e.told {
		if s := of(e.told[i].leader, e.told[i].start); s != nil {
			note(e.told[i].pid, s, e.told[i].start)
		}
	}

	judged := make(map[int64]bool)
	for i := range e.seen {
		w := &e.seen[i]
		s := of(w.leader, w.start)
		if s == nil {
			continue // not one of ours
		}
		t := known[waitName{w.pid, w.start.UnixMicro()}]
		switch {
		case t == nil && w.seen.Sub(w.start) > e.minDuration+late:
			differ("%s: lasted %s at least, and is not in waits", w.describe(s), w.seen.Sub(w.start))
			continue
		case t == nil:
			v.short++
			if w.seen.Sub(w.start) > late { // a tick has seen it
				v.mustSum++
			}
			continue
		case w.gone.Sub(w.start) < e.minDuration-late:
			differ("%s: lasted %s at most, and is in waits with %s", w.describe(s), w.gone.Sub(w.start), t.describe())
		}
		judged[t.id] = true
		v.waits++
		v.outcomes[t.outcome]++
		if t.locktype != w.locktype || t.mode != w.mode {
			differ("%s: history has %s", w.describe(s), t.describe())
		}
		if t.end == nil || t.end.Before(w.seen.Add(-late)) || t.end.After(w.gone.Add(late)) {
			differ("%s: it ended from %s to %s, history has %s", w.describe(s), w.seen, w.gone, t.describe())
		}
		isLast := last[waitName{w.pid, s.sent.UnixNano()}].Equal(w.start)
		may, either := allowed(s, w.pid, w.mode, isLast, groups[s], func() bool { return moved(spans, w, s) })
		if !slices.Contains(may, t.outcome) {
			differ("%s: it ended as one of %v, history has %s", w.describe(s), may, t.describe())
		}
		if either {
			v.either++
			if t.outcome == "granted" {
				v.eitherWon++
			}
		}
	}

	// What no look at pg_locks saw, history may still tell.
	for i := range e.told {
		t := &e.told[i]
		if judged[t.id] {
			continue
		}
		s := of(t.leader, t.start)
		if s == nil {
			differ("in none of the statements of %d: %s", t.leader, t.describe())
			continue
		}
		isLast := last[waitName{t.pid, s.sent.UnixNano()}].Equal(t.start)
		may, _ := allowed(s, t.pid, t.mode, isLast, groups[s], func() bool { return true })
		if !slices.Contains(may, t.outcome) {
			differ("%d, %q, failed by %v: it ended as one of %v, history has %s", s.pid, s.sql, s.failure, may, t.describe())
		}
	}

	// Whoever is told of a lock timeout or a deadlock has failed in a wait, however
	// short, kept or not, unless it was granted when the timer had just gone off.
	failed := 0
	for i := range e.statements {
		s := &e.statements[i]
		switch outcome := s.failure.outcome(); {
		case outcome == "deadlock":
			v.deadlocks++
			failed++
		case outcome == "lock_timeout" && !s.caught && !moved(spans, &seenWait{leader: s.pid, seen: s.sent}, s):
			failed++
		}
	}
	failures := e.shortFailed
	for i := range e.told {
		if e.told[i].outcome != "granted" && e.told[i].outcome != "" {
			failures++
		}
	}
	if failures < failed {
		differ("%d clients failed in a wait for sure, history has %d failures", failed, failures)
	}
	if v.mustSum > e.shortWaits {
		differ("%d waits are not kept and long enough to be counted, short_waits has %d", v.mustSum, e.shortWaits)
	}
	// Of a parallel query, more than one process may have been failed for one circle.
	if e.counted != e.deadlocks || v.deadlocks > e.counted {
		differ("%d clients were victims of deadlocks, the server counted %d, history has %d", v.deadlocks, e.counted, e.deadlocks)
	}
	return v
}

// allowed is how a wait of process pid in statement s may have ended; either
// when that is not one thing. isLast: the process did not wait again in s;
// isGroup: several processes waited in s. moved is asked whether anything else
// happened when the wait ended.
func allowed(s *statement, pid int32, mode string, isLast, isGroup bool, moved func() bool) (may []string, either bool) {
	outcome := s.failure.outcome()
	if outcome == "" || !isLast {
		return []string{"granted"}, false
	}
	if s.caught {
		return []string{"granted", "lock_timeout", "statement_timeout", "cancelled", "deadlock"}, true
	}
	// Of a parallel query each process has a lock timer, and looks for deadlocks of
	// the whole group, by itself. The first to fail ends the workers; the leader,
	// if it waits itself, fails with the first one's error, of which it is no victim.
	may = []string{outcome}
	byWorker := strings.Contains(s.failure.context, "parallel worker")
	switch victim, victimMode := s.failure.victim(); {
	case !isGroup && outcome == "deadlock" && (victim != pid || victimMode != mode):
		return []string{"granted"}, false // and then it was found to be in a deadlock at once
	case !isGroup && outcome == "deadlock":
		return may, false
	case pid != s.pid && (byWorker || outcome == "lock_timeout"):
		may = append(may, "terminated")
	case pid != s.pid:
		may = []string{"terminated"}
	case pid == s.pid && byWorker && (outcome == "deadlock" || outcome == "terminated"):
		may = []string{"failed"}
	}
	if moved() {
		may = append(may, "granted")
	}
	return may, len(may) > 1
}

// spans lists when locks may have been given back, sorted by begin. What is
// granted to one session may be seen by others, too, but takes no lock from
// them; only the lock of a tuple is given back by who goes on.
func (e *evidence) spans() []span {
	all := slices.Clone(e.ends)
	lastSeen := make(map[waitName]time.Time) // when a statement was last seen to wait
	for i := range e.seen {
		w := &e.seen[i]
		all = append(all, span{w.leader, w.seen, w.gone, true})
		for j := range e.statements {
			s := &e.statements[j]
			if s.pid == w.leader && !w.start.Before(s.sent.Truncate(time.Microsecond)) && !w.start.After(s.done) {
				name := waitName{s.pid, s.sent.UnixNano()}
				if w.seen.After(lastSeen[name]) {
					lastSeen[name] = w.seen
				}
			}
		}
	}
	for i := range e.statements {
		s := &e.statements[i]
		from, waited := lastSeen[waitName{s.pid, s.sent.UnixNano()}]
		switch {
		case s.failure.code == transactionTimeout && !waited:
			from = s.idle // may have ended in between
		case s.releases || !waited:
			from = s.sent
		}
		all = append(all, span{s.pid, from, s.done, !s.releases && !s.isBlock && s.failure.code == ""})
	}
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	return all
}

// isKept reports whether locks of this kind are held to the end of a (sub)transaction,
// or until the client says otherwise.
func isKept(locktype string) bool {
	return locktype == "relation" || locktype == "transactionid" || locktype == "advisory"
}

// moved reports whether another session may have given back what w waited for
// between the last look that saw it and the answer to s.
func moved(spans []span, w *seenWait, s *statement) bool {
	for i := range spans {
		switch {
		case spans[i].from.After(s.done):
			return false
		case spans[i].leader == w.leader || spans[i].passing && isKept(w.locktype):
		case spans[i].to.After(w.seen):
			return true
		}
	}
	return false
}

func (w *seenWait) describe(s *statement) string {
	return fmt.Sprintf("%d waited for %s on %s from %s in %q of %d, which ended at %s by %s",
		w.pid, w.mode, w.lock, w.start.Format(clock), s.sql, s.pid, s.done.Format(clock), s.failure)
}

const clock = "15:04:05.000000"

func (t *told) describe() string {
	end := "-"
	if t.end != nil {
		end = t.end.Format(clock)
	}
	return fmt.Sprintf("%d %s %s from %s to %s: %s", t.pid, t.locktype, t.mode, t.start.Format(clock), end, strconv.Quote(t.outcome))
}

func (f failure) String() string {
	if f.code == "" {
		return "nothing"
	}
	return strings.Join([]string{f.code, f.message, f.detail, f.context}, " | ")
}
