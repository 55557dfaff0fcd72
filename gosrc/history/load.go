package history

import (
	"time"

	"pg_lock_history/gosrc/snapshot"
)

// CPU stands for type and name of the wait event of a process that does not wait.
const CPU = "CPU"

// Load is what some processes had in common, and how long they did it in one second.
type Load struct {
	EventType   string // CPU, or as in pg_stat_activity
	Event       string
	Mode        snapshot.LWLockMode // when it is an LWLock, or a page
	BackendType string              // "" = not known
	Database    uint32
	Role        uint32
	QueryID     int64         // 0 = none, or one of many that were added up
	Time        time.Duration // session time: two processes for half a second are a second
}

// Second is what was sampled in one second of the clock.
type Second struct {
	At      snapshot.Micros // its begin
	Sampled time.Duration   // real time that its samples stand for, about a second or a sampling period

	// Session time, as in Load; divided by Sampled the average number.
	Clients           time.Duration // client backends
	Active            time.Duration // of these, active
	IdleInTransaction time.Duration
	Waiting           time.Duration // processes that wait for a heavyweight lock

	Loads []Load // largest first

	Slots    Slots      // zero where FastPath is empty
	FastPath []FastPath // of the databases where sessions held relation locks

	Pages   []Page   // likewise
	LWLocks []LWLock // that were waited for, longest waits first; empty when not tracked
}

// WaitLengths is a histogram of the waits that ended in one minute. Of a minute
// there may be several, which add up.
type WaitLengths struct {
	Minute snapshot.Micros // its begin
	Bars   []LengthBar
}

// LengthBar counts the waits for one event whose estimated length is at least
// 2^(Bucket-1) ms and below 2^Bucket ms; bucket 0 begins with 0.
type LengthBar struct {
	EventType string
	Event     string
	Bucket    int32
	Waits     int64
	Time      time.Duration // all of them together
}
