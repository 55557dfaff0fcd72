package history

import (
	"time"

	"pg_lock_history/gosrc/snapshot"
)

// Contention is what waits for one thing in one mode came to in a second.
type Contention struct {
	Time       time.Duration // session time, as in Load
	Waits      int64         // that ended, as far as samples can tell one from the next
	WaitersMax int32         // at one sample

	// What stood ahead, in the session time in which that was seen.
	Ahead     time.Duration // that time
	Exclusive time.Duration // of it, with somebody who held the lock exclusively
	Shared    time.Duration // the number of those who held it shared, times their time
}

// ExclusiveShare returns how much of the time an exclusive holder was ahead;
// false when that is not known.
func (c *Contention) ExclusiveShare() (float64, bool) {
	if c.Ahead <= 0 {
		return 0, false
	}
	return float64(c.Exclusive) / float64(c.Ahead), true
}

// SharedHolders returns the average number of shared holders ahead; false when
// that is not known.
func (c *Contention) SharedHolders() (float64, bool) {
	if c.Ahead <= 0 {
		return 0, false
	}
	return float64(c.Shared) / float64(c.Ahead), true
}

// LWLock is an LWLock that was waited for.
type LWLock struct {
	Tranche  string
	Instance string // which of the tranche's locks; "" = not known
	Mode     snapshot.LWLockMode
	Contention
}

// ManyBlocks stands for the number of a block where several are told as one; it
// is the server's InvalidBlockNumber.
const ManyBlocks = 0xFFFFFFFF

// Page is a page that was waited for, or all those that were not found.
type Page struct {
	Found bool // all below up to Role is zero otherwise
	File  snapshot.File
	Fork  int32
	Block uint32
	Role  snapshot.PageRole
	Mode  snapshot.LWLockMode // NoLWLock: for everybody else to have let go of it
	Contention
}
