package history

import (
	"time"

	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

// EdgeKind tells how one process is in another's way.
type EdgeKind int16

// The numbers are stored.
const (
	Hard EdgeKind = 1 // holds a conflicting mode
	Soft EdgeKind = 2 // stands nearest ahead in the queue with a conflicting request
	Root EdgeKind = 3 // at the end of the chain: blocks and does not wait
)

// MaxListed bounds the blockers listed with one episode; the true numbers
// stand beside them. Raising it costs rows of about 40 bytes an entry.
const MaxListed = 20

// Edge is one blocker of one wait, from when to when.
type Edge struct {
	Kind    EdgeKind
	Modes   uint32 // bits (1 << mode): held (hard), asked for (soft), 0 (root)
	From    snapshot.Micros
	To      snapshot.Micros // 0 while it lasts
	Blocker *snapshot.Session
}

// Outcome is how a wait ended.
type Outcome int16

// The numbers are internal; the words of String are stored.
const (
	StillWaiting Outcome = iota
	Granted
	Failed  // known that it was not granted, not why
	Unknown // nobody can say
	LockTimeout
	StatementTimeout
	Cancelled
	Terminated
	DeadlockVictim
	ServerStop
	RecoveryConflict // on a standby: in the way of the replay
)

// String returns the word that is stored; "" while waiting.
func (o Outcome) String() string {
	switch o {
	case Granted:
		return "granted"
	case Failed:
		return "failed"
	case Unknown:
		return "unknown"
	case LockTimeout:
		return "lock_timeout"
	case StatementTimeout:
		return "statement_timeout"
	case Cancelled:
		return "cancelled"
	case Terminated:
		return "terminated"
	case DeadlockVictim:
		return "deadlock"
	case ServerStop:
		return "server_stop"
	case RecoveryConflict:
		return "recovery_conflict"
	default:
		return ""
	}
}

// IsFailure reports whether the lock is known not to have been granted.
func (o Outcome) IsFailure() bool { return o == Failed || o > Unknown }

// Granted reports whether the lock was granted, as far as that is known.
func (o Outcome) Granted() (granted, known bool) {
	return o == Granted, o == Granted || o.IsFailure()
}

// Episode is one wait of one process for one lock in one mode.
type Episode struct {
	WaitID    int64 // fixed once the episode has been written
	Waiter    *snapshot.Session
	Tag       lockmgr.Tag
	Row       lockmgr.Tag // the tuple that a wait for a transaction is about; zero = none, or not known
	Mode      lockmgr.Mode
	Start     snapshot.Micros
	End       snapshot.Micros // 0 while waiting
	Outcome   Outcome
	Samples   int64
	QueueKey  int64 // ascending in queue order among the waiters of one lock
	InCycle   bool  // was part of a cycle in two successive walks
	Edges     []Edge
	SoftPids  []int32 // conflicting requests ahead, nearest first, at most MaxListed
	HardCount int32   // the most hard blockers at one moment
	SoftCount int32   // the most soft blockers at one moment
}

// ShortWaitKey is what waits too short, or too many, to be kept alone are
// merged by, within one second.
type ShortWaitKey struct {
	Second           snapshot.Micros // start of the second
	Database         uint32          // of the lock, 0 when shared or none
	LockType         uint8
	Other            bool   // the row for keys over the cap; all else is zero
	Relation         uint32 // 0 when none
	Mode             lockmgr.Mode
	QueryID          int64
	TextHash         uint64
	RootPid          int32
	RootBackendStart snapshot.Micros
}

// ShortWait is the sum over the waits of one key.
type ShortWait struct {
	ShortWaitKey
	Waits   int64
	Total   time.Duration
	Longest time.Duration
	Failed  int64 // of Waits, known not to have been granted
}

// Deadlock is a circle of waits that the server broke by failing one of them.
type Deadlock struct {
	ID      int64
	At      snapshot.Micros
	Members []DeadlockMember // each waits for the next, the last one for the first
}

// DeadlockMember is one process of a deadlock.
type DeadlockMember struct {
	Session  *snapshot.Session // never nil; says the pid alone when that is all there is
	IsVictim bool              // the one that was failed
	WaitsFor int32             // pid, 0 when not known
	WaitID   int64             // its wait, 0 when none was seen
	HasTag   bool              // Tag is known
	Tag      lockmgr.Tag       // waited for
	Row      lockmgr.Tag       // as in Episode
	Mode     lockmgr.Mode      // asked for, 0 when not known
	HasHeld  bool              // HeldTag is known
	HeldTag  lockmgr.Tag       // that the member before waits for
	HeldMode lockmgr.Mode      // strongest mode held of it, 0 when not known
}

// Conflict is a statement that the replay of a standby has cancelled, or a
// session that it has ended, for being in its way.
type Conflict struct {
	At      snapshot.Micros
	Kind    snapshot.Conflict
	Ended   bool              // the session, not only its statement
	Session *snapshot.Session // never nil; says the pid alone when that is all there is
}

// GapReason says why nothing was sampled, or why facts were lost.
type GapReason string

// The words are stored.
const (
	GapStopped       GapReason = "stopped"        // the worker was not there
	GapDisabled      GapReason = "disabled"       // pg_lock_history.enabled was off
	GapLate          GapReason = "late"           // the worker did not get to run
	GapWriterBlocked GapReason = "writer blocked" // no way to the tables, and no room or time to keep the facts
	GapRingHeld      GapReason = "ring held"      // a reader kept the next segment
	GapClock         GapReason = "clock set"      // the clock of the server was set forward: times that never were
	GapElsewhere     GapReason = "elsewhere"      // the settings named another history, or it had no tables
)

// Gap is a time about which the history is silent for lack of samples or space.
type Gap struct {
	Began  snapshot.Micros
	Ended  snapshot.Micros
	Reason GapReason
	Lost   int64  // rows lost, where that is known
	Detail string // one sentence, may be empty
	Part   Part   // what is missing
}

// Part is what may be sampled alone.
type Part string

// The words are stored.
const (
	PartAll   Part = ""
	PartWaits Part = "waits"
	PartLoad  Part = "load"
)

// Health is what watching cost and missed in one minute.
type Health struct {
	Minute          snapshot.Micros
	TicksDue        int64
	TicksDone       int64
	TicksLate       int64
	TicksMissed     int64
	Period          time.Duration
	ProbeP50        time.Duration
	ProbeP99        time.Duration
	ProbeMax        time.Duration
	HoldP99         time.Duration
	HoldMax         time.Duration
	PartitionsTaken int64
	PartitionsBusy  int64
	CPU             time.Duration
	RowsWritten     int64
	RowsMerged      int64
	RowsDropped     int64
	Errors          int64
}

// Run is one life of the worker.
type Run struct {
	ID         int64           // when it began, in the server's microseconds
	CompleteTo snapshot.Micros // its history is complete up to then; 0: not known
}

// Batch is everything that became known between two flushes. It belongs to
// the receiver once handed over.
type Batch struct {
	Run        int64           // the life of the worker that it belongs to; 0: this one
	Number     int64           // ascending within one run, from 1
	CompleteTo snapshot.Micros // the history is complete up to here with this batch
	Waiting    bool            // somebody was waiting: the heartbeat must be written
	OldestOpen snapshot.Micros // no wait that is open in the tables began earlier; 0 = not known
	Closed     []Episode       // ended, final
	Open       []Episode       // still waiting, new or changed since last written
	OpenAsOf   snapshot.Micros // when that was seen, where waits are not sampled any more; 0: CompleteTo
	Short      []ShortWait
	Deadlocks  []Deadlock
	Conflicts  []Conflict
	Seconds    []Second
	Hungry     []LockHungry
	Anomalies  []Anomaly // started, ended, or open and changed since last written
	Lengths    []WaitLengths
	Texts      []*snapshot.Session // each ran a statement whose text the tables may lack
	Gaps       []Gap
	Health     []Health
	Detector   []byte // what the next life has to know of the usual load; nil: nothing new
	Ticket     uint64 // highest flush() ticket answered by this batch, 0 for none
}

// Empty reports whether there is nothing in b that has to be written.
func (b *Batch) Empty() bool {
	return !b.Waiting && len(b.Closed) == 0 && len(b.Open) == 0 &&
		len(b.Short) == 0 && len(b.Deadlocks) == 0 && len(b.Seconds) == 0 && len(b.Hungry) == 0 && len(b.Lengths) == 0 && len(b.Texts) == 0 && len(b.Gaps) == 0 && len(b.Health) == 0 &&
		len(b.Anomalies) == 0 && len(b.Detector) == 0 && len(b.Conflicts) == 0
}

// Rows returns the number of rows that b becomes.
func (b *Batch) Rows() int {
	n := len(b.Closed) + len(b.Open) + len(b.Short) + len(b.Conflicts) + len(b.Seconds) + len(b.Hungry) + len(b.Lengths) + len(b.Texts) + len(b.Anomalies) + len(b.Gaps) + len(b.Health)
	for i := range b.Deadlocks {
		n += len(b.Deadlocks[i].Members)
	}
	return n
}
