package snapshot

import "time"

// Micros is a wall-clock time as the server keeps it: microseconds since
// 2000-01-01 00:00 UTC. Zero means "not known".
type Micros int64

// epoch is the server's zero (POSTGRES_EPOCH_JDATE) in Unix microseconds.
const epoch = 946_684_800_000_000

// Time converts m; the zero Micros becomes the zero time.Time.
func (m Micros) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(m) + epoch).UTC()
}

// FromTime converts t; the zero time.Time becomes the zero Micros.
func FromTime(t time.Time) Micros {
	if t.IsZero() {
		return 0
	}
	return Micros(t.UnixMicro() - epoch)
}

// Sub returns the time from o to m.
func (m Micros) Sub(o Micros) time.Duration { return time.Duration(m-o) * time.Microsecond }

// Add returns m moved by d.
func (m Micros) Add(d time.Duration) Micros { return m + Micros(d/time.Microsecond) }

// WaitStatus says whether a process that was seen waiting still is.
type WaitStatus int32

// The values are those of PlhWaitStatus in probe.h.
const (
	Waiting      WaitStatus = 0
	EndedGranted WaitStatus = 1
	EndedFailed  WaitStatus = 2
	EndedUnknown WaitStatus = 3 // not to be seen yet
	EndedLeft    WaitStatus = 4 // the process waits again already or is gone: granted, unless there is a Failure
)

// FailReason says why a wait failed.
type FailReason int32

// The values are those of PlhFailReason in probe.h.
const (
	FailFailed           FailReason = 0 // not known why
	FailLockTimeout      FailReason = 1
	FailStatementTimeout FailReason = 2
	FailCancelled        FailReason = 3
	FailTerminated       FailReason = 4
	FailDeadlock         FailReason = 5
	FailServerStop       FailReason = 6
	FailRecoveryConflict FailReason = 7

	// FailConflict is no failed wait: the replay of a standby has cancelled a
	// statement, or ended a session. Mode has the Conflict.
	FailConflict FailReason = 8
)

// Conflict is what stood in the way of the replay.
type Conflict int32

// The values are those of PlhConflict in probe.h.
const (
	ConflictOther      Conflict = 0
	ConflictLock       Conflict = 1
	ConflictSnapshot   Conflict = 2
	ConflictBufferPin  Conflict = 3
	ConflictTablespace Conflict = 4
	ConflictDatabase   Conflict = 5
	ConflictDeadlock   Conflict = 6
	ConflictSlot       Conflict = 7

	// ConflictEnded stands beside it: the session was ended.
	ConflictEnded = 0x100
)

// String returns the word that is stored.
func (c Conflict) String() string {
	switch c {
	case ConflictLock:
		return "lock"
	case ConflictSnapshot:
		return "snapshot"
	case ConflictBufferPin:
		return "buffer pin"
	case ConflictTablespace:
		return "tablespace"
	case ConflictDatabase:
		return "database"
	case ConflictDeadlock:
		return "deadlock"
	case ConflictSlot:
		return "logical slot"
	default:
		return "other"
	}
}

// Failure is what a process left behind of a wait of its own that failed.
type Failure struct {
	BackendStart Micros
	WaitStart    Micros // 0: a deadlock that was found before the wait began, as it seems; for certain: FailedAt
	FailedAt     Micros
	Slot         int32
	Pid          int32 // 0: no record, only Lost counts
	Mode         int32 // asked for; of a conflict what it was about
	Reason       FailReason
	Lost         uint32 // records of this slot that were lost before this one
	Text         string // deadlocks: the detail of the error; conflicts: the session, as it describes itself
	TextCut      bool
}

// Wait is a process that waits for a heavyweight lock, or has just stopped to.
type Wait struct {
	Lock      uint64 // identity of the lock while anybody waits for it
	WaitStart Micros // the server's own; 0 = not yet published
	Slot      int32
	Pid       int32
	Status    WaitStatus
	WaitEvent uint32
}

// Lock flags, as in probe.h.
const (
	LockTruncated = 0x01 // holders or queue did not fit
	LockApart     = 0x02 // taken at another moment than its neighbours
)

// Lock is one contended lock with its range of holders and waiters.
type Lock struct {
	Lock         uint64
	Field1       uint32
	Field2       uint32
	Field3       uint32
	Field4       uint16
	Type         uint8
	Method       uint8
	FirstHolder  uint32
	NHolders     uint32
	FirstQueued  uint32
	NQueued      uint32
	TotalGranted uint32
	Flags        uint32
}

// HolderPrepared marks a prepared transaction: no process stands behind it.
const HolderPrepared = 0x01

// Holder is a process, or a prepared transaction, that was granted a lock.
type Holder struct {
	Slot       int32
	Pid        int32 // 0 for a prepared transaction
	LeaderSlot int32 // of its lock group, itself when alone
	LeaderPid  int32
	HoldMask   uint32 // bit (1 << mode) for each mode held
	Xid        uint32 // prepared transactions only, like the two below
	Database   uint32
	Role       uint32
	Flags      uint32
	_          uint32
}

// Queued is a process in the wait queue of a lock.
type Queued struct {
	WaitStart  Micros
	Slot       int32
	Pid        int32
	LeaderSlot int32
	LeaderPid  int32
	Mode       int32
	_          uint32
}

// SessionStatus says whether a session could be read.
type SessionStatus int32

// The values are those of PlhSessionStatus in probe.h.
const (
	SessionFound SessionStatus = 1
	SessionGone  SessionStatus = 2
	SessionTorn  SessionStatus = 3
)

// State is what a session was doing.
type State int32

// The values are those of PlhState in probe.h.
const (
	StateUnknown                  State = 0
	StateIdle                     State = 1
	StateActive                   State = 2
	StateIdleInTransaction        State = 3
	StateFastpath                 State = 4
	StateIdleInTransactionAborted State = 5
	StateDisabled                 State = 6
	StateStarting                 State = 7
)

// String returns the word pg_stat_activity uses, or "" when not known.
func (s State) String() string {
	switch s {
	case StateIdle:
		return "idle"
	case StateActive:
		return "active"
	case StateIdleInTransaction:
		return "idle in transaction"
	case StateFastpath:
		return "fastpath function call"
	case StateIdleInTransactionAborted:
		return "idle in transaction (aborted)"
	case StateDisabled:
		return "disabled"
	case StateStarting:
		return "starting"
	default:
		return ""
	}
}

// Graph is what one walk over the contended locks saw. It is not changed
// after it was taken; its slices belong to whoever asked for the walk and are
// valid until that one asks again.
type Graph struct {
	TakenAt Micros
	Apart   bool // not taken at one moment
	Cut     bool // something did not fit
	Locks   []Lock
	Holders []Holder
	Queue   []Queued
}

// Session is what is known of one process at one moment; immutable once made.
type Session struct {
	Slot            int32
	Pid             int32
	LeaderPid       int32 // lock group leader, 0 when alone
	State           State
	Database        uint32
	Role            uint32
	Prepared        uint32 // xid of a prepared transaction; then there is no process
	Wraparound      bool   // autovacuum that prevents wraparound
	QueryCut        bool   // Query may go on
	BackendStart    Micros
	XactStart       Micros
	QueryStart      Micros
	StateChange     Micros
	SeenAt          Micros
	QueryID         int64
	BackendType     string
	ApplicationName string // bytes as the server had them
	ClientAddr      string
	Query           string  // bytes as the server had them
	Members         []int32 // of its lock group beside itself that were seen to hold or wait during this statement; ascending

	// Of a blocker: what samples saw it run in its transaction, oldest first,
	// and how many statements more they saw.
	Statements        []Statement
	StatementsLeftOut int64
}

// Statement is what samples saw of one statement, which is told by its text:
// what is run again is the same.
type Statement struct {
	FirstSeen     Micros
	LastSeen      Micros
	QueryStart    Micros // of the latest run that was seen
	QueryID       int64
	Samples       int64
	State         State // of the session when last seen
	WaitEventType string
	WaitEvent     string // what it was last seen to wait for, "" when it was not
	Query         string // bytes as the server had them, may be cut
}

// Type returns the kind of process, as pg_stat_activity has it.
func (s *Session) Type() string {
	if s.Prepared != 0 && s.BackendType == "" {
		return "prepared transaction"
	}
	return s.BackendType
}

// Doing returns what it was doing, in the words of pg_stat_activity.
func (s *Session) Doing() string {
	if s.Prepared != 0 {
		return "prepared"
	}
	return s.State.String()
}

// Leader returns the leader of its lock group; a leader has none, as in
// pg_stat_activity.
func (s *Session) Leader() int32 {
	if s.LeaderPid == s.Pid {
		return 0
	}
	return s.LeaderPid
}
