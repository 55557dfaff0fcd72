package episode

import (
	"time"

	"pg_lock_history/gosrc/deadlock"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// decideAfter is how long a wait that has failed waits for its record: the
// process writes it some microseconds later, unless it has lost its CPU. Longer
// delays what a reader sees, shorter says "failed" where a reason was to come.
const decideAfter = 100 * time.Millisecond

// lastFailure is the last record of a slot that was about no wait we knew.
type lastFailure struct {
	pid   int32
	start snapshot.Micros
	sweep uint64 // by which it was read
}

// fail takes in one record.
func (t *Tracker) fail(f *snapshot.Failure) {
	p := t.process(f.Slot)
	if p == nil {
		return
	}
	if f.Lost > 0 {
		t.lost += int64(f.Lost)
		for _, w := range p.undecided {
			w.blurred = true
		}
	}
	if f.Pid == 0 {
		return
	}
	if f.Reason == snapshot.FailConflict {
		t.conflicts = append(t.conflicts, conflictOf(f))
		return
	}
	var lines []deadlock.Line
	var line deadlock.Line
	if f.Reason == snapshot.FailDeadlock {
		lines = deadlock.Parse(f.Text, f.TextCut)
		if len(lines) > 0 && lines[0].Pid == f.Pid {
			line = lines[0]
		}
	}
	w := p.failedWait(f, &line)
	if f.Reason == snapshot.FailDeadlock && p.foundEarly(f, &line, w) {
		early := *f
		early.WaitStart = f.FailedAt
		f, w = &early, nil
	}
	if w != nil {
		w.failed, w.failedAt = outcomeOf(f.Reason), f.FailedAt
	} else {
		p.failure = lastFailure{pid: f.Pid, start: f.WaitStart, sweep: t.sweeps}
		if f.WaitStart != 0 && f.WaitStart == p.lastStart {
			return // the record came after the wait had to be decided
		}
	}
	if f.Reason == snapshot.FailDeadlock {
		t.foundDeadlock(f, lines, w)
	} else if w == nil {
		t.settle(t.unseen(f))
	}
}

// foundEarly reports whether a deadlock is known to have been found before its wait
// began, although its record has the start of the wait before, or none. That one,
// w where its end is not decided, was for something else or has been granted.
func (p *process) foundEarly(f *snapshot.Failure, line *deadlock.Line, w *wait) bool {
	if n := len(p.undecided); w == nil && f.WaitStart == 0 && n > 0 {
		w = p.undecided[n-1]
	}
	if w == nil {
		return p.lastGranted && f.WaitStart == p.lastStart
	}
	return w.isOther(f, line)
}

// isOther reports whether w is known not to be for what the victim of a deadlock
// asked for.
func (w *wait) isOther(f *snapshot.Failure, line *deadlock.Line) bool {
	return w.walk != 0 && (f.Mode != 0 && f.Mode != int32(w.mode) || line.HasTag && line.Tag != w.tag)
}

// failedWait finds the wait that a record is about, nil when no sweep saw it.
func (p *process) failedWait(f *snapshot.Failure, line *deadlock.Line) *wait {
	for _, w := range p.undecided {
		if w.isFailed(f, line) {
			return w
		}
	}
	if p.wait != nil && p.wait.isFailed(f, line) {
		return p.wait
	}
	return nil
}

func (w *wait) isFailed(f *snapshot.Failure, line *deadlock.Line) bool {
	switch {
	case w.pid != f.Pid || w.failed != history.StillWaiting:
		return false
	case f.WaitStart == 0:
		// A deadlock found before its wait began, as it seems: then it is no
		// wait of ours. Nobody asks again for what he was granted, so the same
		// lock in the same mode can only be this one.
		return w.walk != 0 && line.HasTag && line.Tag == w.tag && line.Mode == w.mode
	case w.published != 0 && !w.stale:
		return w.published == f.WaitStart
	case f.Reason == snapshot.FailRecoveryConflict && f.WaitStart == f.FailedAt:
		return true // it was failed between joining the queue and publishing a start
	default: // its start was not seen: it waited when first seen, so it began before
		return f.WaitStart <= w.firstSeen && w.ownTime(f.FailedAt) >= w.firstSeen
	}
}

// unseen makes a wait of the record of one that no sweep saw.
func (t *Tracker) unseen(f *snapshot.Failure) *wait {
	end := max(f.FailedAt, 1)
	w := &wait{slot: f.Slot, pid: f.Pid, start: end, end: end, firstSeen: end, seenAt: end, outcome: outcomeOf(f.Reason)}
	if f.WaitStart != 0 {
		start := f.WaitStart
		if long := end.Sub(start); t.step < 0 && long < 0 || t.step > 0 && long >= t.step {
			start = start.Add(t.step) // the clock was set while it waited
		}
		w.start = min(start, end)
	}
	return w
}

// decide settles the waits that have ended as far as it is known how; with
// force all of them.
func (t *Tracker) decide(now snapshot.Micros, force bool) {
	still := t.held[:0]
	for _, w := range t.held {
		p := t.procs[w.slot]
		outcome := t.howEnded(p, w, force || now >= w.decideBy || now < w.decideBy.Add(-2*decideAfter))
		if outcome == history.StillWaiting {
			still = append(still, w)
			continue
		}
		w.outcome = outcome
		if w.published == p.lastStart {
			p.lastGranted = outcome == history.Granted
		}
		if w.failedAt != 0 { // its process knows better than two ticks
			w.end = min(max(w.ownTime(w.failedAt), w.endFrom), w.endTo)
		}
		for i := range p.undecided {
			if p.undecided[i] == w {
				p.undecided = append(p.undecided[:i], p.undecided[i+1:]...)
				break
			}
		}
		t.settle(w)
	}
	clear(t.held[len(still):])
	t.held = still
}

// Decide settles what has ended and could still be told better: somebody waits
// for all there is.
func (t *Tracker) Decide(at snapshot.Micros) { t.decide(at, true) }

// howEnded tells how a wait ended, StillWaiting when that may become known
// better and late is off. A record decides. Without one the lock was granted, by
// the time the process waits again, has left, or got another lock since; unless
// records were lost.
func (t *Tracker) howEnded(p *process, w *wait, late bool) history.Outcome {
	switch {
	case w.failed != history.StillWaiting:
		return w.failed
	case w.blurred:
		return history.Unknown
	case w.status == snapshot.EndedGranted || w.status == snapshot.EndedLeft:
		return history.Granted
	}
	if f := &p.failure; w.status == snapshot.EndedFailed && f.pid == w.pid && f.sweep >= w.sweep {
		// The process's status is that of another wait since. It may have begun and
		// failed between the sweep that saw this one last and the look at records.
		if f.start > w.start {
			return history.Granted
		}
		if f.start == 0 {
			return history.Unknown // or it was this one after all
		}
	}
	switch {
	case !late:
		return history.StillWaiting
	case w.status == snapshot.EndedFailed:
		return history.Failed
	default:
		return history.Unknown
	}
}

// Undecided reports whether it will soon be known better how a wait ended.
func (t *Tracker) Undecided() bool { return len(t.held) > 0 }

// TakeLost returns how many records were lost since the last call.
func (t *Tracker) TakeLost() int64 {
	n := t.lost
	t.lost = 0
	return n
}

func outcomeOf(r snapshot.FailReason) history.Outcome {
	switch r {
	case snapshot.FailLockTimeout:
		return history.LockTimeout
	case snapshot.FailStatementTimeout:
		return history.StatementTimeout
	case snapshot.FailCancelled:
		return history.Cancelled
	case snapshot.FailTerminated:
		return history.Terminated
	case snapshot.FailDeadlock:
		return history.DeadlockVictim
	case snapshot.FailServerStop:
		return history.ServerStop
	case snapshot.FailRecoveryConflict:
		return history.RecoveryConflict
	default:
		return history.Failed
	}
}
