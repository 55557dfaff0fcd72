package episode

import (
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/snapshot"
)

// secondCount is what has gone out for one second.
type secondCount struct {
	rows int // ended episodes kept alone
	keys int // kinds of short waits
}

// countedFor is how long a second is remembered; a Drain is not later than that.
const countedFor = 10 * time.Second

// settle decides what becomes of a wait that has ended.
func (t *Tracker) settle(w *wait) {
	w.leaveOutHandover(t.config.HandOver)
	second := secondOf(w.end)
	count := t.seconds[second]
	// Who was handed out as open must be closed on its own; who was not seen
	// by a walk has no lock tag to be told by.
	alone := w.handedOut || w.walk != 0 &&
		w.end.Sub(w.start) >= t.config.MinDuration && count.rows < t.config.MaxRowsPerSecond
	if !alone {
		t.merge(w, second)
		return
	}
	count.rows++
	t.seconds[second] = count
	w.alone = true
	t.closed = append(t.closed, t.episode(w))
}

// merge adds a wait to the sums of its second.
func (t *Tracker) merge(w *wait, second snapshot.Micros) {
	key := w.shortKey(second)
	at, found := t.shortIndex[key]
	if !found && !key.Other {
		count := t.seconds[second]
		if count.keys >= t.config.MaxShortKeys {
			key = history.ShortWaitKey{Second: second, Other: true}
			at, found = t.shortIndex[key]
		} else {
			count.keys++
			t.seconds[second] = count
		}
	}
	if !found {
		at = len(t.short)
		t.shortIndex[key] = at
		t.short = append(t.short, history.ShortWait{ShortWaitKey: key})
	}
	s := &t.short[at]
	duration := w.end.Sub(w.start)
	s.Waits++
	s.Total += duration
	s.Longest = max(s.Longest, duration)
	if w.outcome.IsFailure() {
		s.Failed++
	}
	t.merged++
}

// shortKey returns what a short wait is merged by. Without a walk the wait
// event gives the lock type, and without that the wait is one of the others.
func (w *wait) shortKey(second snapshot.Micros) history.ShortWaitKey {
	key := history.ShortWaitKey{Second: second}
	switch {
	case w.walk != 0:
		key.Database = w.tag.Database()
		key.LockType = uint8(w.tag.Type)
		key.Relation = w.tag.RelationOID()
		key.Mode = w.mode
	case w.waitEvent != 0:
		key.LockType = uint8(w.waitEvent)
	default:
		key.Other = true
		return key
	}
	if w.waiter != nil {
		key.QueryID = w.waiter.QueryID
		if key.QueryID == 0 {
			key.TextHash = querytext.Hash(w.waiter.Query)
		}
	}
	if root := w.firstRoot(); root != nil {
		key.RootPid, key.RootBackendStart = root.Pid, root.BackendStart
	}
	return key
}

func (w *wait) firstRoot() *snapshot.Session {
	for i := range w.past {
		if w.past[i].Kind == history.Root {
			return w.past[i].Blocker
		}
	}
	for i := range w.live {
		if w.live[i].kind == history.Root {
			return w.live[i].blocker
		}
	}
	return nil
}

// Pending reports whether the next Drain will hand out ended waits, or what came of them.
func (t *Tracker) Pending() bool {
	return len(t.closed) > 0 || len(t.short) > 0 || len(t.found) > 0 || len(t.conflicts) > 0
}

// Closed returns what the next Drain will hand out as Closed, so far; not to be
// changed, and valid until then.
func (t *Tracker) Closed() []history.Episode { return t.closed }

// Known reports whether waiter i of the latest Walk is a wait that a sweep has
// found. To be asked before the next Sweep.
func (t *Tracker) Known(i int) bool { return i < len(t.matched) && t.matched[i] != nil }

// Peek makes e what is known so far of that wait, in the room that e has, and
// without a Waiter when the process is not described yet. A start that is not
// final gives a WaitID that is not.
func (t *Tracker) Peek(i int, e *history.Episode) { t.fill(e, t.matched[i]) }

// Drain hands out what became known since the previous one. A short wait of
// the same second and key in the next Drain makes another row.
func (t *Tracker) Drain(at snapshot.Micros, o DrainOptions) Drained {
	if o.Final {
		t.mergeLost(at)
	}
	d := Drained{Closed: t.closed, Short: t.short, Merged: t.merged, Conflicts: t.conflicts}
	t.closed, t.short, t.merged, t.conflicts = nil, nil, 0, nil
	clear(t.shortIndex)
	for second := range t.seconds {
		if age := at.Sub(second); age > countedFor || age < -countedFor {
			delete(t.seconds, second)
		}
	}

	if o.RewriteOpen {
		for _, w := range t.live {
			w.changed = true
		}
	}
	first := t.nextOpen
	for n := range t.live {
		i := (first + n) % len(t.live)
		w := t.live[i]
		old := w.ownTime(at).Sub(w.start) >= t.config.MinDuration || o.Final && !t.isLost(w, at)
		due := w.walk != 0 && old && (w.changed || !w.handedOut)
		switch {
		case !due:
		case len(d.Open) >= t.config.MaxRowsPerSecond && !o.Final:
			if !d.Rest {
				d.Rest, t.nextOpen = true, i
			}
		default:
			d.Open = append(d.Open, t.episode(w))
			w.handedOut, w.changed = true, false
		}
	}
	d.Deadlocks = t.drainDeadlocks()
	return d
}

// isLost reports whether w, which goes on, cannot be handed out as open at the
// end: without a walk there is no tag, and a young wait without a published
// start would be another one to whoever samples next.
func (t *Tracker) isLost(w *wait, at snapshot.Micros) bool {
	switch {
	case w.handedOut:
		return false
	case w.walk == 0:
		return true
	}
	return (w.published == 0 || w.stale) && w.ownTime(at).Sub(w.start) < t.config.MinDuration
}

// mergeLost counts the waits that go on and are lost otherwise.
func (t *Tracker) mergeLost(at snapshot.Micros) {
	for _, w := range t.live {
		if t.isLost(w, at) {
			upToNow := *w
			upToNow.end = max(w.ownTime(at), w.start)
			t.merge(&upToNow, secondOf(upToNow.end))
		}
	}
}

// episode returns w as a fact. It shares nothing with w that changes.
func (t *Tracker) episode(w *wait) history.Episode {
	e := history.Episode{Edges: make([]history.Edge, 0, len(w.past)+len(w.live))}
	t.fill(&e, w)
	if e.Waiter == nil {
		e.Waiter = &snapshot.Session{Slot: w.slot, Pid: w.pid, SeenAt: w.seenAt}
	}
	return e
}

// fill makes e the fact that w is by now, in the room that e has. Edges of the
// latest walk come last, in its order.
func (t *Tracker) fill(e *history.Episode, w *wait) {
	if w.waitID == 0 || w.idStart != w.start {
		w.waitID, w.idStart = waitID(t.config.Node, w.start, w.slot, w.pid), w.start
	}
	*e = history.Episode{
		WaitID: w.waitID, Waiter: w.waiter,
		Tag: w.tag, Row: w.row, Mode: w.mode,
		Start: w.start, End: w.end, Outcome: w.outcome,
		Samples: w.samples, QueueKey: w.queueKey, InCycle: w.inCycle,
		Edges:     append(e.Edges[:0], w.past...),
		SoftPids:  append(e.SoftPids[:0], w.softPids...),
		HardCount: w.hardCount, SoftCount: w.softCount,
	}
	for i := range w.live {
		l := &w.live[i]
		e.Edges = append(e.Edges, history.Edge{Kind: l.kind, Modes: l.modes, From: l.from, To: w.end, Blocker: l.blocker})
	}
	if w.end != 0 {
		// The walk may have come after what turned out to be the middle.
		for i := range e.Edges {
			edge := &e.Edges[i]
			edge.To = min(edge.To, w.end)
			edge.From = min(edge.From, edge.To)
		}
	}
}

// secondOf returns the start of the second that m is in.
func secondOf(m snapshot.Micros) snapshot.Micros {
	const second = snapshot.Micros(time.Second / time.Microsecond)
	into := m % second
	if into < 0 {
		into += second
	}
	return m - into
}
