package waitgraph

import (
	"slices"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

// The reference is the obvious program: every pair is looked at. It names
// groups by leader, so that it shares no numbering with Build.

type name struct{ slot, pid int32 }

type refBlocker struct {
	name
	modes uint32
}

type refWaiter struct {
	lock, position int32
	slot, pid      int32
	hard, soft     []refBlocker // complete
	roots          []name       // complete, in order of first appearance
	inCycle        bool
}

type refLock struct {
	held  []snapshot.Holder
	queue []snapshot.Queued
}

func reference(g *snapshot.Graph, conflicts lockmgr.Conflicts) []refWaiter {
	locks := refLocks(g)
	var order []name // groups in order of first appearance
	waits := map[name]bool{}
	seen := func(n name) {
		if !slices.Contains(order, n) {
			order = append(order, n)
		}
	}
	for _, l := range locks {
		for _, h := range l.held {
			seen(name{h.LeaderSlot, h.LeaderPid})
		}
		for _, q := range l.queue {
			seen(name{q.LeaderSlot, q.LeaderPid})
			waits[name{q.LeaderSlot, q.LeaderPid}] = true
		}
	}

	var waiters []refWaiter
	var groups []name // of the waiters
	edges := map[[2]name]bool{}
	for li, l := range locks {
		for k, q := range l.queue {
			w := refWaiter{lock: int32(li), position: int32(k) + 1, slot: q.Slot, pid: q.Pid}
			own := name{q.LeaderSlot, q.LeaderPid}
			var conflict uint32
			if q.Mode >= 1 && q.Mode <= 8 {
				conflict = conflicts[q.Mode]
			}
			for _, h := range l.held {
				n := name{h.LeaderSlot, h.LeaderPid}
				if n == own || slices.ContainsFunc(w.hard, func(b refBlocker) bool { return b.name == n }) {
					continue
				}
				var held uint32
				for _, other := range l.held {
					if (name{other.LeaderSlot, other.LeaderPid}) == n {
						held |= other.HoldMask
					}
				}
				if held&conflict != 0 {
					w.hard = append(w.hard, refBlocker{n, held})
				}
			}
			for j := k - 1; j >= 0; j-- {
				a := l.queue[j]
				n := name{a.LeaderSlot, a.LeaderPid}
				is := func(b refBlocker) bool { return b.name == n }
				if a.Mode < 1 || a.Mode > 8 || conflict&(1<<uint32(a.Mode)) == 0 ||
					n == own || slices.ContainsFunc(w.hard, is) || slices.ContainsFunc(w.soft, is) {
					continue
				}
				w.soft = append(w.soft, refBlocker{n, 1 << uint32(a.Mode)})
			}
			for _, b := range slices.Concat(w.hard, w.soft) {
				edges[[2]name{own, b.name}] = true
			}
			waiters = append(waiters, w)
			groups = append(groups, own)
		}
	}

	// Who reaches whom (Floyd and Warshall).
	for _, via := range order {
		for _, from := range order {
			for _, to := range order {
				if edges[[2]name{from, via}] && edges[[2]name{via, to}] {
					edges[[2]name{from, to}] = true
				}
			}
		}
	}
	for i := range waiters {
		for _, n := range order {
			if edges[[2]name{groups[i], n}] && !waits[n] {
				waiters[i].roots = append(waiters[i].roots, n)
			}
		}
		waiters[i].inCycle = edges[[2]name{groups[i], groups[i]}]
	}
	return waiters
}

// refLocks applies the rule for nonsense ranges entry by entry.
func refLocks(g *snapshot.Graph) []refLock {
	locks := make([]refLock, len(g.Locks))
	holders, queue := 0, 0
	for i, l := range g.Locks {
		for k := uint64(l.FirstHolder); k < uint64(l.FirstHolder)+uint64(l.NHolders) && k < uint64(len(g.Holders)) && holders < len(g.Holders); k++ {
			locks[i].held = append(locks[i].held, g.Holders[k])
			holders++
		}
		for k := uint64(l.FirstQueued); k < uint64(l.FirstQueued)+uint64(l.NQueued) && k < uint64(len(g.Queue)) && queue < len(g.Queue); k++ {
			locks[i].queue = append(locks[i].queue, g.Queue[k])
			queue++
		}
	}
	return locks
}

// difference tells in words where Build and the reference differ, "" if nowhere.
func difference(got *Graph, want []refWaiter) string {
	if len(got.Waiters) != len(want) {
		return sprintf("%d waiters, want %d", len(got.Waiters), len(want))
	}
	nameOf := func(group int32) name { return name{got.Groups[group].Slot, got.Groups[group].Pid} }
	for i := range want {
		g, w := &got.Waiters[i], &want[i]
		listed := func(list []Blocker) []refBlocker {
			var named []refBlocker
			for _, b := range list {
				named = append(named, refBlocker{nameOf(b.Group), b.Modes})
			}
			return named
		}
		var roots []name
		for _, r := range g.Roots {
			roots = append(roots, nameOf(r))
		}
		switch {
		case g.Lock != w.lock || g.Position != w.position || g.Slot != w.slot || g.Pid != w.pid:
			return sprintf("waiter %d is %+v, want %+v", i, *g, *w)
		case int(g.HardCount) != len(w.hard) || !slices.Equal(listed(g.Hard), most(w.hard)):
			return sprintf("waiter %d: %d hard blockers %v, want %v", i, g.HardCount, listed(g.Hard), w.hard)
		case int(g.SoftCount) != len(w.soft) || !slices.Equal(listed(g.Soft), most(w.soft)):
			return sprintf("waiter %d: %d soft blockers %v, want %v", i, g.SoftCount, listed(g.Soft), w.soft)
		case !slices.Equal(roots, most(w.roots)):
			return sprintf("waiter %d: roots %v, want %v", i, roots, w.roots)
		case g.InCycle() != w.inCycle:
			return sprintf("waiter %d: in cycle %t, want %t", i, g.InCycle(), w.inCycle)
		}
	}
	return ""
}

func most[T any](list []T) []T { return list[:min(len(list), history.MaxListed)] }
