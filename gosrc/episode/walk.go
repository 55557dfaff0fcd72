package episode

import (
	"slices"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

// maxEdges bounds the edges kept with one episode, 40 bytes each here and in
// the table. A wait behind thousands of short holders loses its oldest ones.
const maxEdges = 200

// maxPast is the room beside the live ones: hard, one soft, roots.
const maxPast = maxEdges - (2*history.MaxListed + 1)

// liveEdge is a blocker that the latest walk saw.
type liveEdge struct {
	edgeKey
	bare    bool // blocker says no more than the graph does (all there is of a prepared transaction)
	modes   uint32
	from    snapshot.Micros
	blocker *snapshot.Session

	// Details that differ are taken over by settleOn.
	confirmed snapshot.Micros   // when blocker was last true
	candidate *snapshot.Session // what the latest walk saw instead, nil when nothing else
}

// unconfirmed is how long details may be out of date while a blocker changes
// from each walk to the next.
const unconfirmed = time.Second

// settleOn decides which details the edge is told by. A walk may fall into the
// COMMIT that ends it all; of an hour idle in transaction that must not be
// what is kept. So details are replaced when two walks in a row saw the new
// ones, or when the old ones have not been true for a while. Reports whether
// the blocker's state is another one now.
func (e *liveEdge) settleOn(s *snapshot.Session, at snapshot.Micros) bool {
	switch {
	case s == e.blocker:
		e.confirmed, e.candidate = at, nil
		return false
	case s != e.candidate && at.Sub(e.confirmed) < unconfirmed:
		e.candidate = s
		return false
	}
	changed := s.State != e.blocker.State
	e.blocker, e.confirmed, e.candidate = s, at, nil
	return changed
}

type edgeKey struct {
	kind history.EdgeKind
	slot int32
	pid  int32
	xid  uint32
}

// groupSession is the answer for one group of the walk at work.
type groupSession struct {
	looked bool
	found  *snapshot.Session // nil when nothing is known now
	bare   *snapshot.Session // made when found is nil and an edge needs one
}

// Wanted appends to dst the processes whose details Walk should be able to
// look up, at most MaxWanted: the roots first (they may change what they do
// while others wait), then waiters without details, then the other blockers
// without. Prepared transactions are not among them, the graph says it all.
func (t *Tracker) Wanted(g *waitgraph.Graph, dst []Ref) []Ref {
	most := len(dst) + MaxWanted
	t.asked = resized(t.asked, len(g.Groups))
	ask := func(group int32) {
		if r := &g.Groups[group]; !t.asked[group] && !r.IsPrepared && len(dst) < most {
			t.asked[group] = true
			dst = append(dst, Ref{Slot: r.Slot, Pid: r.Pid})
		}
	}
	for i := range g.Waiters {
		for _, root := range g.Waiters[i].Roots {
			ask(root)
		}
	}
	for i := range g.Waiters {
		w := &g.Waiters[i]
		known := t.waitOf(w.Slot, w.Pid)
		if known == nil || known.waiter != nil || len(dst) >= most {
			continue
		}
		if leader := &g.Groups[w.Group]; leader.Slot == w.Slot && leader.Pid == w.Pid {
			ask(w.Group)
		} else {
			dst = append(dst, Ref{Slot: w.Slot, Pid: w.Pid})
		}
	}
	for i := range g.Waiters {
		w := &g.Waiters[i]
		for _, b := range w.Hard {
			if t.ownSession(&g.Groups[b.Group]) == nil {
				ask(b.Group)
			}
		}
		if len(w.Soft) > 0 && t.ownSession(&g.Groups[w.Soft[0].Group]) == nil {
			ask(w.Soft[0].Group)
		}
	}
	return dst
}

// ownSession returns what is known of a group because it waits itself.
func (t *Tracker) ownSession(r *waitgraph.Group) *snapshot.Session {
	if w := t.waitOf(r.Slot, r.Pid); w != nil {
		return w.waiter
	}
	return nil
}

// Walk takes in who blocks whom. It is called after the Sweep that led to the
// walk; waits that no sweep has found yet are left for the next one. lookup
// returns what the caller has read of a process, nil when it could not.
func (t *Tracker) Walk(g *waitgraph.Graph, lookup func(slot, pid int32) *snapshot.Session) {
	t.walks++
	t.matched = resized(t.matched, len(g.Waiters))
	t.sessions = resized(t.sessions, len(g.Groups))
	for i := range g.Waiters {
		seen := &g.Waiters[i]
		w := t.match(g, seen)
		if w == nil {
			continue
		}
		t.matched[i] = w
		if w.waiter == nil {
			if s := lookup(seen.Slot, seen.Pid); s != nil {
				w.describe(s)
			}
		}
		if seen.WaitStart != 0 && seen.WaitStart != w.published {
			t.procs[w.slot].publish(seen.WaitStart, w.seenAt)
		}
	}
	t.noteCycles(g)
	// Only now is every waiter that can be described described, and blockers
	// are mostly waiters.
	for i, w := range t.matched {
		if w != nil {
			t.update(w, g, &g.Waiters[i], lookup)
		}
	}
	for from := 0; from < len(g.Waiters); {
		to := from
		t.run = t.run[:0]
		for ; to < len(g.Waiters) && g.Waiters[to].Lock == g.Waiters[from].Lock; to++ {
			if w := t.matched[to]; w != nil {
				t.run = append(t.run, w)
			}
		}
		assignQueueKeys(t.run)
		from = to
	}
}

// match finds the wait that the walk saw, nil when the process waits for
// something else by now, or is in the graph twice (a torn copy).
func (t *Tracker) match(g *waitgraph.Graph, seen *waitgraph.Waiter) *wait {
	w := t.waitOf(seen.Slot, seen.Pid)
	if w == nil || w.walk == t.walks || w.lock != g.Locks[seen.Lock].Lock {
		return nil
	}
	if seen.WaitStart != 0 && seen.WaitStart != w.published && w.published != 0 && !w.stale {
		return nil
	}
	if w.walk == 0 {
		l := &g.Locks[seen.Lock]
		w.tag = lockmgr.Tag{
			Field1: l.Field1, Field2: l.Field2, Field3: l.Field3, Field4: l.Field4,
			Type: lockmgr.Type(l.Type), Method: l.Method,
		}
		w.mode = seen.Mode
		if w.tag.Type == lockmgr.TransactionID {
			t.rowless = append(t.rowless, w)
		}
	}
	w.walkPrev, w.walk = w.walk, t.walks
	return w
}

// describe attaches the waiter's details. A start from before the process is
// left over from its predecessor in the slot.
func (w *wait) describe(s *snapshot.Session) {
	w.waiter = s
	w.changed = true
	if w.start < s.BackendStart && s.BackendStart <= w.firstSeen {
		w.moveStart(w.firstSeen)
		w.stale = true
	}
}

// update brings the edges and counts of w to what the walk saw.
func (t *Tracker) update(w *wait, g *waitgraph.Graph, seen *waitgraph.Waiter, lookup func(slot, pid int32) *snapshot.Session) {
	at := w.ownTime(g.TakenAt)
	from := max(w.start, at)
	if w.walkPrev == 0 {
		from = w.start
	}
	// Believed when two walks in a row saw the same cycle.
	if seen.Cycle != 0 && seen.Cycle == w.cycle && w.walkPrev == t.walks-1 && !w.inCycle {
		w.inCycle, w.changed = true, true
	}
	w.cycle = seen.Cycle

	if seen.HardCount > w.hardCount || seen.SoftCount > w.softCount {
		if seen.HardCount > w.hardCount && w.walkPrev != 0 {
			w.noteRaise(at, t.config.HandOver)
		}
		w.hardCount = max(w.hardCount, seen.HardCount)
		w.softCount = max(w.softCount, seen.SoftCount)
		w.changed = true
	}
	for _, b := range seen.Soft {
		if len(w.softPids) >= history.MaxListed {
			break
		}
		if pid := g.Groups[b.Group].Pid; !slices.Contains(w.softPids, pid) {
			w.softPids = append(w.softPids, pid)
			w.changed = true
		}
	}

	t.edges = t.edges[:0]
	for _, b := range seen.Hard {
		t.edge(w, g, history.Hard, b, from, lookup)
	}
	if len(seen.Soft) > 0 {
		t.edge(w, g, history.Soft, seen.Soft[0], from, lookup)
	}
	for _, root := range seen.Roots {
		t.edge(w, g, history.Root, waitgraph.Blocker{Group: root}, from, lookup)
	}
	// What is left in w.live was not seen again.
	for i := range w.live {
		if e := &w.live[i]; e.blocker != nil {
			w.pushPast(e, max(at, e.from))
			w.changed = true
		}
	}
	w.live = append(w.live[:0], t.edges...)
}

// edge moves the edge to b from w.live to t.edges, or makes it there.
func (t *Tracker) edge(w *wait, g *waitgraph.Graph, kind history.EdgeKind, b waitgraph.Blocker, from snapshot.Micros, lookup func(slot, pid int32) *snapshot.Session) {
	r := &g.Groups[b.Group]
	at := w.ownTime(g.TakenAt)
	key := edgeKey{kind: kind, slot: r.Slot, pid: r.Pid, xid: r.Xid}
	s := t.session(b.Group, r, lookup)

	// Mostly it is where it was.
	was := len(t.edges)
	if was >= len(w.live) || w.live[was].edgeKey != key || w.live[was].blocker == nil {
		was = slices.IndexFunc(w.live, func(e liveEdge) bool { return e.edgeKey == key && e.blocker != nil })
	}
	e := liveEdge{edgeKey: key, modes: b.Modes, from: from, blocker: s.found, confirmed: at}
	if was >= 0 {
		e = w.live[was]
		w.live[was].blocker = nil // taken
		if e.modes|b.Modes != e.modes {
			e.modes |= b.Modes
			w.changed = true
		}
		switch {
		case s.found == nil:
		case e.bare:
			w.changed = true
			e.blocker, e.bare, e.confirmed = s.found, false, at
		case e.settleOn(s.found, at):
			w.changed = true // with other words for the same state a row can wait
		}
	} else {
		w.changed = true
		if e.blocker == nil {
			if s.bare == nil {
				s.bare = &snapshot.Session{
					Slot: r.Slot, Pid: r.Pid, SeenAt: g.TakenAt,
					Prepared: r.Xid, Database: r.Database, Role: r.Role,
				}
			}
			e.blocker, e.bare = s.bare, true
		}
	}
	t.edges = append(t.edges, e)
}

// session looks a group up, once in each walk.
func (t *Tracker) session(group int32, r *waitgraph.Group, lookup func(slot, pid int32) *snapshot.Session) *groupSession {
	s := &t.sessions[group]
	if !s.looked {
		s.looked = true
		s.found = lookup(r.Slot, r.Pid)
		if s.found != nil && s.found.Prepared != r.Xid {
			s.found = nil // another prepared transaction
		}
		if s.found == nil && !r.IsPrepared {
			s.found = t.ownSession(r)
		}
	}
	return s
}

func (w *wait) pushPast(e *liveEdge, to snapshot.Micros) {
	if len(w.past) >= maxPast {
		w.past = slices.Delete(w.past, 0, len(w.past)-maxPast+1)
	}
	w.past = append(w.past, history.Edge{Kind: e.kind, Modes: e.modes, From: e.from, To: to, Blocker: e.blocker})
}

// resized returns buf with n zero values.
func resized[T any](buf []T, n int) []T {
	buf = slices.Grow(buf[:0], n)[:n]
	clear(buf)
	return buf
}
