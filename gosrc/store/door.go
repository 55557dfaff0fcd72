package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// askTimeout bounds the wait for the main thread's answer. It comes within a
// millisecond unless the machine has no time for us.
const askTimeout = time.Second

// errNoSpareSlot: what is free is reserved.
var errNoSpareSlot = errors.New("no client slot is free beyond those reserved")

// errNoAnswer: nobody told us whether a slot is to spare.
var errNoAnswer = errors.New("the main thread of the worker does not answer")

// door is where our sessions enter this server. As superusers they would be
// given the slots that are reserved for the DBA who comes to end what has taken
// all others, so nobody passes unless more are free. One at a time, up to
// the moment at which its slot is taken: two could be told of the same one.
type door struct {
	ask      func() <-chan bool // nil: nobody to ask, always open
	stopping <-chan struct{}
	inside   chan struct{} // capacity 1

	// The last sessions made, by pid: they are no load of this server's users.
	// Old ones are forgotten long before their pids are used again.
	made [ownSessions]atomic.Uint32
	next atomic.Uint32
}

// ownSessions is far more than there are at one time.
const ownSessions = 16

func (d *door) remember(pid uint32) { d.made[d.next.Add(1)%ownSessions].Store(pid) }

// isOurs reports whether the process is, or was of late, a session of ours.
func (d *door) isOurs(pid uint32) bool {
	for i := range d.made {
		if d.made[i].Load() == pid {
			return true
		}
	}
	return false
}

// ours appends the pids of those.
func (d *door) ours(pids []int32) []int32 {
	for i := range d.made {
		if pid := d.made[i].Load(); pid != 0 {
			pids = append(pids, int32(pid))
		}
	}
	return pids
}

func newDoor(ask func() <-chan bool, stopping <-chan struct{}) *door {
	return &door{ask: ask, stopping: stopping, inside: make(chan struct{}, 1)}
}

// enter returns when the caller may connect; it calls leave when it has, or has
// failed to.
func (d *door) enter(ctx context.Context) (leave func(), err error) {
	if d.ask == nil {
		return func() {}, nil
	}
	select {
	case d.inside <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	leave = func() { <-d.inside }
	timer := time.NewTimer(askTimeout)
	defer timer.Stop()
	select {
	case spare := <-d.ask():
		if spare {
			return leave, nil
		}
		err = errNoSpareSlot
	case <-timer.C:
		err = errNoAnswer
	case <-d.stopping: // no one is there to answer, and nothing to be entered for
		err = context.Canceled
	case <-ctx.Done():
		err = ctx.Err()
	}
	leave()
	return nil, err
}
