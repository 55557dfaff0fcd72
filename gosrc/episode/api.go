package episode

import (
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// Config is what the tracker needs to know of the settings.
type Config struct {
	Node             string        // name of the watched server, goes into WaitID
	MinDuration      time.Duration // shorter waits are merged
	MaxRowsPerSecond int           // ended episodes kept alone in one second; also open ones in one Drain
	MaxShortKeys     int           // kinds of short waits told apart in one second
	HandOver         time.Duration // blockers of only the last so long of a wait are left out, see handover.go; 0 keeps all
}

// Sweep is the answer of the wait probe, as far as it is about waits.
type Sweep struct {
	At snapshot.Micros // wall clock of the sweep that found Found

	// Previous is the last tick before At: everybody known was still waiting
	// then. The wait probe comes back on the first tick with a change, so it
	// is one period before At, or the beginning of the hole when there was one.
	Previous snapshot.Micros

	// Step is how far the clock was set since the Sweep before, 0 for not at
	// all: forwards when it is positive. At and Previous are by the clock as it
	// is now.
	Step time.Duration

	Ticks int64           // ticks since the previous Sweep, this one included when it was a tick
	Found []snapshot.Wait // all waiters, and the known ones that ended

	// Failed are the waits that failed as their own processes recorded it, read
	// after Found was: the record of a failed wait is there before its process
	// waits again or leaves.
	Failed []snapshot.Failure

	// Resumed says that sampling was paused before this sweep (disabled, or a
	// gap): waits that vanished meanwhile end at the last tick that saw them.
	// Those still there, with the same wait start, go on.
	Resumed bool
}

// Ref names a process whose session details are asked for.
type Ref struct {
	Slot int32
	Pid  int32
}

// MaxWanted bounds the sessions asked for before one walk is digested: each
// costs a read of its status entry, about 2 µs.
const MaxWanted = 256

// DrainOptions says what is special about one Drain.
type DrainOptions struct {
	// RewriteOpen hands out every open episode again: the segment has changed,
	// or a new writer does not have them.
	RewriteOpen bool

	// Final: nothing is sampled after this Drain. Every wait that goes on is
	// handed out now: as open, whatever its length and however many they are,
	// for nobody will know how long it would have been, and whoever samples next
	// goes on with the same WaitID; as a short one up to now when no walk has
	// seen it, or when the server has not published its start, without which the
	// next one could not tell it as the same.
	Final bool
}

// Drained is what became known since the previous Drain. It belongs to the
// receiver.
type Drained struct {
	Closed    []history.Episode // ended, final
	Open      []history.Episode // waiting for at least MinDuration, new or changed
	Short     []history.ShortWait
	Deadlocks []history.Deadlock
	Conflicts []history.Conflict // on a standby: whom the replay has cancelled
	Merged    int64              // waits that went into Short
	Rest      bool               // more Open are due, over the bound: they come with the next Drain
}
