package history

import "pg_lock_history/gosrc/snapshot"

// NotLooked stands for a number of locks that nobody has counted.
const NotLooked int32 = -1

// Slots is how large the fast path of each process is.
type Slots struct {
	Each     int32
	MaxLocks int32 // max_locks_per_transaction
}

// FastPath is how the processes of one database used theirs in one second.
type FastPath struct {
	Database uint32
	Sessions int32 // processes that held relation locks in it
	SlotsMax int32 // the most that one had in use
	Full     int32 // of Sessions, seen with no slot left
	Spilled  int32 // the most relation locks of one that found no slot, at least; or NotLooked
}

// LockHungry are the statements with most relation locks of one minute, or of
// the part of it in which there were any.
type LockHungry struct {
	At         snapshot.Micros // begin of the first second
	Last       snapshot.Micros // and of the last
	Slots      Slots
	Statements []HungryStatement // most locks first
}

// HungryStatement is one that was seen with half of the slots in use, or more.
type HungryStatement struct {
	Database  uint32
	Role      uint32
	QueryID   int64 // 0 = not known
	Locks     int32 // the most relation locks of one process: slots and what found none
	SlotsMax  int32 // the most slots of one process
	Spilled   int32 // as in FastPath
	Looks     int32 // how often a process was seen so
	LooksFull int32 // of these, with no slot left
	Sessions  int32 // the most processes in one second
}
