package waitgraph

import (
	"slices"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

// maxSoftScan bounds how far back in the queue the listed soft blockers are
// looked for. Only members of one and the same group can make the search
// longer than MaxListed; SoftCount is exact in any case.
const maxSoftScan = 256

// none is "no node", "no edge", "no component yet".
const none = int32(-1)

// Builder turns walks into graphs and keeps its memory from one to the next.
type Builder struct {
	conflicts lockmgr.Conflicts
	out       Graph

	groupOf     map[groupKey]int32
	holderGroup []int32 // group of each holder, all locks one after the other
	blockers    []Blocker
	ahead       [lockmgr.MaxMode + 1][]int32 // per lock and mode: waiters so far in the way of that mode

	// onLock is about one lock at a time; an entry is valid while its lock
	// equals the current one.
	onLock     []groupOnLock
	lockGroups []int32 // groups that hold the current lock, in holder order

	search search
}

type groupKey struct {
	slot, pid int32
}

// groupOnLock is what one group does with the current lock.
type groupOnLock struct {
	lock   int32  // index of the lock, plus one
	waiter int32  // the waiter, plus one, whose soft list has the group already
	held   uint32 // modes held by any member
	soft   uint32 // modes for which the group has been counted as soft blocker
}

// NewBuilder returns a Builder that uses the server's table of conflicts.
func NewBuilder(conflicts lockmgr.Conflicts) *Builder {
	return &Builder{conflicts: conflicts, groupOf: make(map[groupKey]int32)}
}

// Build finds out who blocks whom in g. The result refers to g, and is valid
// until the next Build.
func (b *Builder) Build(g *snapshot.Graph) *Graph {
	out := &b.out
	out.TakenAt, out.Locks = g.TakenAt, g.Locks
	out.Waiters, out.Groups = out.Waiters[:0], out.Groups[:0]
	clear(b.groupOf)
	b.holderGroup, b.blockers, b.onLock = b.holderGroup[:0], b.blockers[:0], b.onLock[:0]

	b.collect(g)
	b.search.begin(len(out.Groups))
	waiters, holders := out.Waiters, b.holderGroup
	forEachLock(g, func(lock int32, held []snapshot.Holder, queue []snapshot.Queued) {
		b.buildLock(lock, held, holders[:len(held)], waiters[:len(queue)])
		holders, waiters = holders[len(held):], waiters[len(queue):]
	})
	b.search.run(out.Groups)
	b.finish()
	return out
}

// forEachLock calls visit with the holders and the queue of each lock. Ranges
// are cut to what is there, and since an entry belongs to one lock, all ranges
// together to as many entries as there are: nonsense costs no more than sense.
func forEachLock(g *snapshot.Graph, visit func(lock int32, held []snapshot.Holder, queue []snapshot.Queued)) {
	holdersLeft, queueLeft := len(g.Holders), len(g.Queue)
	for i := range g.Locks {
		l := &g.Locks[i]
		held := cut(g.Holders, l.FirstHolder, l.NHolders, holdersLeft)
		queue := cut(g.Queue, l.FirstQueued, l.NQueued, queueLeft)
		holdersLeft -= len(held)
		queueLeft -= len(queue)
		visit(int32(i), held, queue)
	}
}

// cut returns all[first : first+n], as much of it as exists, and at most most.
func cut[T any](all []T, first, n uint32, most int) []T {
	if uint64(first) >= uint64(len(all)) {
		return nil
	}
	all = all[first:]
	return all[:min(uint64(n), uint64(len(all)), uint64(most))]
}

// collect numbers the groups and lists the waiters.
func (b *Builder) collect(g *snapshot.Graph) {
	forEachLock(g, func(lock int32, held []snapshot.Holder, queue []snapshot.Queued) {
		for i := range held {
			h := &held[i]
			group := b.group(h.LeaderSlot, h.LeaderPid)
			b.holderGroup = append(b.holderGroup, group)
			b.member(group, h.Slot, h.Pid)
			if h.Flags&snapshot.HolderPrepared != 0 {
				p := &b.out.Groups[group]
				p.IsPrepared, p.Xid, p.Database, p.Role = true, h.Xid, h.Database, h.Role
			}
		}
		for i := range queue {
			q := &queue[i]
			group := b.group(q.LeaderSlot, q.LeaderPid)
			b.out.Groups[group].Waits = true
			b.member(group, q.Slot, q.Pid)
			b.out.Waiters = append(b.out.Waiters, Waiter{
				Lock: lock, Position: int32(i) + 1,
				Slot: q.Slot, Pid: q.Pid, Group: group,
				Mode: lockmgr.Mode(q.Mode), WaitStart: q.WaitStart,
			})
		}
	})
}

// member notes a process of the group beside its leader.
func (b *Builder) member(group, slot, pid int32) {
	g := &b.out.Groups[group]
	if slot == g.Slot || len(g.Members) >= history.MaxListed {
		return
	}
	if at, found := slices.BinarySearch(g.Members, pid); !found {
		g.Members = slices.Insert(g.Members, at, pid)
	}
}

// group returns the number of the group with that leader.
func (b *Builder) group(slot, pid int32) int32 {
	key := groupKey{slot, pid}
	n, found := b.groupOf[key]
	if !found {
		n = int32(len(b.out.Groups))
		b.groupOf[key] = n
		b.out.Groups = append(b.out.Groups, Group{Slot: slot, Pid: pid})
		b.onLock = append(b.onLock, groupOnLock{})
	}
	return n
}

// state returns what group does with the current lock.
func (b *Builder) state(group, lock int32) *groupOnLock {
	s := &b.onLock[group]
	if s.lock != lock+1 {
		*s = groupOnLock{lock: lock + 1}
	}
	return s
}

// hardSet is everybody who holds a mode that conflicts with one asked for.
type hardSet struct {
	node  int32 // none when nobody does
	count int32
	list  []Blocker // the first MaxListed+1: a waiter among them is left out for itself
}

// buildLock fills in the blockers of the waiters of one lock and adds the lock
// to the graph that is searched.
func (b *Builder) buildLock(lock int32, held []snapshot.Holder, holders []int32, waiters []Waiter) {
	if len(waiters) == 0 {
		return
	}
	b.lockGroups = b.lockGroups[:0]
	for i, group := range holders {
		if b.onLock[group].lock != lock+1 {
			b.lockGroups = append(b.lockGroups, group)
		}
		b.state(group, lock).held |= held[i].HoldMask
	}

	var asked uint32 // modes that somebody waits for
	for i := range waiters {
		if m := waiters[i].Mode; valid(m) {
			asked |= m.Bit()
		}
	}
	var hard [lockmgr.MaxMode + 1]hardSet
	for m := lockmgr.Mode(1); m <= lockmgr.MaxMode; m++ {
		b.ahead[m] = b.ahead[m][:0]
		if asked&m.Bit() != 0 {
			hard[m] = b.hardSet(lock, m)
		}
	}

	var softCount [lockmgr.MaxMode + 1]int32
	var last [lockmgr.MaxMode + 1]int32 // last node of the chain of each mode
	for m := range last {
		last[m] = none
	}
	for i := range waiters {
		w := &waiters[i]
		m := w.Mode
		if !valid(m) {
			continue
		}
		own := b.state(w.Group, lock)
		b.fillHard(w, own, &hard[m])
		w.SoftCount = softCount[m]
		if own.soft&m.Bit() != 0 {
			w.SoftCount--
		}
		if w.SoftCount > 0 {
			w.Soft = b.softList(waiters, int32(i), lock)
		}

		// What is in the way of w, seen as nodes.
		if hard[m].node != none {
			b.search.edge(w.Group, hard[m].node)
		}
		for q := lockmgr.Mode(1); q <= lockmgr.MaxMode; q++ {
			if b.conflicts[m]&q.Bit() != 0 && last[q] != none {
				b.search.edge(w.Group, last[q])
			}
		}

		// From here on w is in the way of those behind it.
		node := b.search.node()
		b.search.edge(node, w.Group)
		if last[m] != none {
			b.search.edge(node, last[m])
		}
		last[m] = node
		for behind := lockmgr.Mode(1); behind <= lockmgr.MaxMode; behind++ {
			if asked&behind.Bit() == 0 || b.conflicts[behind]&m.Bit() == 0 || own.held&b.conflicts[behind] != 0 {
				continue // hard wins over soft
			}
			b.ahead[behind] = append(b.ahead[behind], int32(i))
			if own.soft&behind.Bit() == 0 {
				own.soft |= behind.Bit()
				softCount[behind]++
			}
		}
	}
}

// hardSet collects the groups that hold what m conflicts with, under one node.
func (b *Builder) hardSet(lock int32, m lockmgr.Mode) hardSet {
	set := hardSet{node: none}
	first := len(b.blockers)
	for _, group := range b.lockGroups {
		held := b.state(group, lock).held
		if held&b.conflicts[m] == 0 {
			continue
		}
		if set.count == 0 {
			set.node = b.search.node()
		}
		b.search.edge(set.node, group)
		if set.count <= history.MaxListed {
			b.blockers = append(b.blockers, Blocker{Group: group, Modes: held})
		}
		set.count++
	}
	set.list = b.blockers[first:len(b.blockers):len(b.blockers)]
	return set
}

// fillHard gives w the hard blockers of its mode, less its own group.
func (b *Builder) fillHard(w *Waiter, own *groupOnLock, set *hardSet) {
	w.HardCount = set.count
	w.Hard = set.list[:min(len(set.list), history.MaxListed)]
	if own.held&b.conflicts[w.Mode] == 0 {
		return
	}
	w.HardCount--
	at := slices.IndexFunc(set.list, func(h Blocker) bool { return h.Group == w.Group })
	if at < 0 || at >= history.MaxListed {
		return
	}
	first := len(b.blockers)
	b.blockers = append(b.blockers, set.list[:at]...)
	b.blockers = append(b.blockers, set.list[at+1:]...)
	w.Hard = b.blockers[first:len(b.blockers):len(b.blockers)]
}

// softList lists the nearest soft blockers of waiters[at].
func (b *Builder) softList(waiters []Waiter, at, lock int32) []Blocker {
	w := &waiters[at]
	first := len(b.blockers)
	ahead := b.ahead[w.Mode]
	ahead = ahead[max(0, len(ahead)-maxSoftScan):]
	for _, k := range slices.Backward(ahead) {
		group := waiters[k].Group
		s := b.state(group, lock)
		if group == w.Group || s.waiter == at+1 {
			continue
		}
		s.waiter = at + 1
		b.blockers = append(b.blockers, Blocker{Group: group, Modes: waiters[k].Mode.Bit()})
		if len(b.blockers)-first == history.MaxListed {
			break
		}
	}
	return b.blockers[first:len(b.blockers):len(b.blockers)]
}

// finish gives each waiter the roots and the cycle of its group.
func (b *Builder) finish() {
	s := &b.search
	for i := range b.out.Waiters {
		w := &b.out.Waiters[i]
		c := &s.components[s.of[w.Group]]
		w.Roots = c.roots
		if c.groups > 1 {
			// A sum does not depend on the order in which the members come.
			c.members += mix(uint64(uint32(w.Slot))<<32|uint64(uint32(w.Pid))) ^ mix(uint64(w.WaitStart)+1)
		}
	}
	for i := range b.out.Waiters {
		w := &b.out.Waiters[i]
		if c := &s.components[s.of[w.Group]]; c.groups > 1 {
			w.Cycle = max(c.members, 1)
		}
	}
}

// mix spreads the bits of x (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

func valid(m lockmgr.Mode) bool { return m >= 1 && m <= lockmgr.MaxMode }
