package episode

import (
	"math/bits"

	"pg_lock_history/gosrc/deadlock"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

const (
	// maxMembers bounds what is kept of one deadlock, about 200 bytes and a
	// session each.
	maxMembers = 100
	// maxDeadlocks bounds what is kept between two Drains. Each costs the
	// victim its deadlock_timeout, so more is a storm.
	maxDeadlocks = 1000
)

// foundDeadlock is one on its way to the next Drain.
type foundDeadlock struct {
	fact    history.Deadlock
	waits   []*wait // by member, nil where none was seen
	slots   []int32 // by member, -1 when not known
	victim  int     // index of the one that was failed, or of its lock group
	unseen  *wait   // its wait, when no sweep saw it
	settled bool    // members are described
}

// cycleMember is a wait that a walk saw in a circle, and whom it waits for there.
type cycleMember struct {
	wait    *wait
	group   int32 // pid of its lock group's leader
	blocker int32 // likewise, 0 when not known
}

// noteCycles keeps who waits for whom in the circles of a walk.
func (t *Tracker) noteCycles(g *waitgraph.Graph) {
	for i := range g.Waiters {
		seen := &g.Waiters[i]
		w := t.matched[i]
		if seen.Cycle == 0 || w == nil {
			continue
		}
		if t.cycleSeen != t.walks || t.cycles == nil {
			t.cycleSeen, t.cycles = t.walks, make(map[uint64][]cycleMember)
		}
		m := cycleMember{wait: w, group: g.Groups[seen.Group].Pid}
		for _, blockers := range [][]waitgraph.Blocker{seen.Hard, seen.Soft} {
			for _, b := range blockers {
				if m.blocker == 0 && isInCycle(g, b.Group, seen.Cycle) {
					m.blocker = g.Groups[b.Group].Pid
				}
			}
		}
		t.cycles[seen.Cycle] = append(t.cycles[seen.Cycle], m)
	}
}

func isInCycle(g *waitgraph.Graph, group int32, cycle uint64) bool {
	for i := range g.Waiters {
		if g.Waiters[i].Group == group && g.Waiters[i].Cycle == cycle {
			return true
		}
	}
	return false
}

// foundDeadlock puts together what is known of a deadlock from the record of
// its victim, whose wait is w, nil when no sweep saw it. The text of the error
// names all; where it says nothing, the last walk may have seen the circle. Of a
// parallel query it begins with the process that stands in the circle, which need
// not be the one that looked for it and was failed.
func (t *Tracker) foundDeadlock(f *snapshot.Failure, lines []deadlock.Line, w *wait) {
	if len(t.found) >= maxDeadlocks {
		t.lost++
		if w == nil {
			t.settle(t.unseen(f))
		}
		return
	}
	if len(lines) == 0 && w != nil {
		lines = t.circle(w)
	}
	if len(lines) == 0 {
		lines = []deadlock.Line{{Pid: f.Pid, Mode: lockmgr.Mode(f.Mode)}}
	}
	cut := len(lines) > maxMembers
	if cut {
		lines = lines[:maxMembers]
	}

	d := foundDeadlock{
		fact:  history.Deadlock{ID: waitID(t.config.Node+"/deadlock", f.FailedAt, f.Slot, f.Pid), At: f.FailedAt},
		waits: make([]*wait, len(lines)),
		slots: make([]int32, len(lines)),
	}
	for i := range lines {
		l := &lines[i]
		m := history.DeadlockMember{WaitsFor: l.Blocker, HasTag: l.HasTag, Tag: l.Tag, Mode: l.Mode}
		d.slots[i] = -1
		member := t.waitOfPid(l.Pid)
		if l.Pid == f.Pid {
			d.victim, member, d.slots[i] = i, w, f.Slot
		}
		if member != nil && (l.Mode == 0 || member.mode == l.Mode) {
			d.waits[i], d.slots[i] = member, member.slot
			if !m.HasTag && member.walk != 0 {
				m.HasTag, m.Tag = true, member.tag
			}
		}
		if d.slots[i] >= 0 && d.waits[i] != nil {
			m.Session = d.waits[i].waiter
		}
		if m.Session == nil {
			m.Session = &snapshot.Session{Slot: d.slots[i], Pid: l.Pid, SeenAt: f.FailedAt}
		}
		d.fact.Members = append(d.fact.Members, m)
	}
	d.fact.Members[d.victim].IsVictim = true
	d.noteHeld(cut || lines[len(lines)-1].Blocker != lines[0].Pid)

	if w == nil {
		d.unseen = t.unseen(f)
		if v := &d.fact.Members[d.victim]; v.HasTag && v.Session.Pid == f.Pid {
			// As good as seen: the text says what it waited for.
			d.unseen.tag, d.unseen.mode, d.unseen.walk = v.Tag, v.Mode, max(t.walks, 1)
		}
	}
	t.found = append(t.found, d)
}

// noteHeld says what each member held: the lock that the one before waits for,
// unless that one only stood behind it in the queue.
func (d *foundDeadlock) noteHeld(open bool) {
	members := d.fact.Members
	for i := range members {
		before := i - 1
		if i == 0 {
			before = len(members) - 1
			if open {
				continue // who waits for the first is not known
			}
		}
		m := &members[i]
		m.HasHeld, m.HeldTag = members[before].HasTag, members[before].Tag
		if w := d.waits[before]; w != nil {
			hard, soft := w.edgesTo(m.Session.Pid)
			if hard != 0 {
				m.HeldMode = lockmgr.Mode(bits.Len32(hard) - 1)
			} else if soft {
				m.HasHeld, m.HeldTag = false, lockmgr.Tag{}
			}
		}
	}
}

// edgesTo returns the modes that pid holds in the way of w, and whether it
// stands ahead of it.
func (w *wait) edgesTo(pid int32) (hard uint32, soft bool) {
	for i := range w.live {
		if e := &w.live[i]; e.pid == pid {
			switch e.kind {
			case history.Hard:
				hard |= e.modes
			case history.Soft:
				soft = true
			}
		}
	}
	return hard, soft
}

// circle returns the members of the circle that the last walk saw w in, from w on.
func (t *Tracker) circle(w *wait) []deadlock.Line {
	if w.cycle == 0 || w.walk != t.cycleSeen {
		return nil
	}
	members := t.cycles[w.cycle]
	at := -1
	for i := range members {
		if members[i].wait == w {
			at = i
		}
	}
	var lines []deadlock.Line
	for at >= 0 && len(lines) < len(members) {
		m := &members[at]
		line := deadlock.Line{Pid: m.wait.pid, Blocker: m.blocker, Mode: m.wait.mode, Tag: m.wait.tag, HasTag: true}
		at = -1
		for i := range members {
			if next := &members[i]; m.blocker != 0 && next.group == m.blocker {
				at, line.Blocker = i, next.wait.pid
				break
			}
		}
		lines = append(lines, line)
		if line.Blocker == lines[0].Pid {
			return lines
		}
	}
	return nil // it does not close: not one moment
}

// waitOfPid finds the wait of a process by its pid alone: the one that goes on,
// or has just ended.
func (t *Tracker) waitOfPid(pid int32) *wait {
	for _, list := range [][]*wait{t.live, t.held} {
		for i := len(list) - 1; i >= 0; i-- {
			if list[i].pid == pid {
				return list[i]
			}
		}
	}
	return nil
}

// Strangers appends to dst the members of new deadlocks of whom nothing but the
// process is known; slot -1: not even where it is.
func (t *Tracker) Strangers(dst []Ref) []Ref {
	most := len(dst) + MaxWanted
	for i := range t.found {
		d := &t.found[i]
		for j := range d.fact.Members {
			if s := d.fact.Members[j].Session; !d.settled && s.BackendStart == 0 && len(dst) < most {
				dst = append(dst, Ref{Slot: d.slots[j], Pid: s.Pid})
			}
		}
	}
	return dst
}

// Introduce describes them by lookup, as far as they are still there.
func (t *Tracker) Introduce(lookup func(slot, pid int32) *snapshot.Session) {
	for i := range t.found {
		d := &t.found[i]
		if d.settled {
			continue
		}
		d.settled = true
		for j := range d.fact.Members {
			if m := &d.fact.Members[j]; m.Session.BackendStart == 0 {
				if s := lookup(d.slots[j], m.Session.Pid); s != nil {
					m.Session = s
				}
			}
		}
		if w := d.unseen; w != nil {
			if s := d.fact.Members[d.victim].Session; s.Pid == w.pid && s.BackendStart != 0 {
				w.waiter = s
			}
			t.settle(w)
		}
	}
}

// drainDeadlocks makes facts of what was found. It comes after the episodes, which
// have their identity by then.
func (t *Tracker) drainDeadlocks() []history.Deadlock {
	var facts []history.Deadlock
	for i := range t.found {
		d := &t.found[i]
		for j := range d.fact.Members {
			w := d.waits[j]
			if w == nil && d.unseen != nil && d.unseen.pid == d.fact.Members[j].Session.Pid {
				w = d.unseen
			}
			if w == nil {
				continue
			}
			m := &d.fact.Members[j]
			// What was merged has no row that the identity would name.
			if w.handedOut || w.alone {
				m.WaitID = w.waitID
			}
			if m.HasTag && m.Tag == w.tag {
				m.Row = w.row
			}
		}
		facts = append(facts, d.fact)
	}
	clear(t.found)
	t.found = t.found[:0]
	return facts
}
