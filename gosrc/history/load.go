package history

import (
	"time"

	"pg_lock_history/gosrc/snapshot"
)

// Second is the load of one second that was sampled. Nobody active: no Loads.
type Second struct {
	At      snapshot.Micros // its begin
	Sampled time.Duration   // real time that its samples stand for
	Loads   []Load
}

// Load is the time that the sessions of one key spent in one second. Divided
// by Sampled it is the average number of active sessions (aas).
type Load struct {
	EventType   string // "" together with Event: on CPU
	Event       string
	Mode        string // of an LWLock, "" otherwise
	Database    uint32
	Role        uint32
	BackendType string
	QueryID     int64
	Time        time.Duration // of all sessions together
}
