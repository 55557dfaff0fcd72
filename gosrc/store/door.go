package store

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"time"
)

// askTimeout bounds the wait for the main thread's answer. It comes within a
// millisecond unless the machine has no time for us.
const askTimeout = time.Second

// errNoSpareSlot: what is free is reserved.
var errNoSpareSlot = errors.New("no client slot is free beyond those reserved")

// errNoAnswer: nobody told us whether a slot is to spare.
var errNoAnswer = errors.New("the main thread of the worker does not answer")

// errCrowd: sessions that we have taken leave of have not ended.
var errCrowd = errors.New("earlier sessions of the worker have not ended")

// door is where our sessions enter this server. As superusers they would be
// given the slots that are reserved for the DBA who comes to end what has taken
// all others, so nobody passes unless more are free, and not while too many
// of our own are stuck. One at a time, up to
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

const (
	// ownSessions is far more than there are at one time.
	ownSessions = 16

	// maxSessions bounds those that live: one of the writer, two for names, and
	// some that are about to end. On a disk that stalls, a server process does not
	// end although we have hung up; if each try made another one, all
	// client slots would be taken by us in the very moment when they are needed.
	maxSessions = 6
)

// remember takes the place of a session that has ended. Called by one goroutine
// at a time, inside the door.
func (d *door) remember(pid uint32) {
	for range ownSessions {
		slot := &d.made[d.next.Add(1)%ownSessions]
		if !isAlive(slot.Load()) {
			slot.Store(pid)
			return
		}
	}
}

// isCrowded reports whether so many of our sessions live that no more may come.
func (d *door) isCrowded() bool {
	n := 0
	for i := range d.made {
		if isAlive(d.made[i].Load()) {
			n++
		}
	}
	return n >= maxSessions
}

// isAlive reports whether there is a process of that number: it runs on this
// machine, and as the same user.
func isAlive(pid uint32) bool { return pid != 0 && syscall.Kill(int(pid), 0) == nil }

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
	if d.isCrowded() {
		leave()
		return nil, errCrowd
	}
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
