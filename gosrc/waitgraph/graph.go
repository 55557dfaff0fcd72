package waitgraph

import (
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

// Graph is what Build made of one walk; valid until the next Build.
type Graph struct {
	TakenAt snapshot.Micros
	Locks   []snapshot.Lock // those of the walk
	Waiters []Waiter        // lock by lock, in queue order
	Groups  []Group         // everybody who holds or waits; Blocker.Group and Roots index it
}

// Group is a lock group, known by its leader, or a prepared transaction. A
// process alone is a group of one.
type Group struct {
	Slot       int32
	Pid        int32 // 0 for a prepared transaction
	IsPrepared bool
	Waits      bool    // a member of it stands in a queue
	Members    []int32 // pids beside the leader's that hold or wait in this walk, at most history.MaxListed
	Xid        uint32  // prepared transactions only, like the two below
	Database   uint32
	Role       uint32
}

// Waiter is one entry of a wait queue.
type Waiter struct {
	Lock      int32 // index in Graph.Locks
	Position  int32 // place in the queue, from 1
	Slot      int32
	Pid       int32
	Group     int32 // its own group, index in Graph.Groups
	Mode      lockmgr.Mode
	WaitStart snapshot.Micros

	Hard      []Blocker // at most history.MaxListed, in the order of the lock's holders
	Soft      []Blocker // at most history.MaxListed, nearest first
	HardCount int32     // how many there are
	SoftCount int32
	Roots     []int32 // groups at the end of the chain, at most history.MaxListed

	// Cycle is 0, or the identity of the deadlock that the waiter's group is
	// part of: equal in two walks when the same processes are in it with the
	// same wait starts.
	Cycle uint64
}

// InCycle reports whether the waiter's group is part of a deadlock.
func (w *Waiter) InCycle() bool { return w.Cycle != 0 }

// Blocker is a group in a waiter's way, with the modes it holds (hard) or the
// mode that its nearest member asks for (soft), as bits (1 << mode).
type Blocker struct {
	Group int32
	Modes uint32
}
