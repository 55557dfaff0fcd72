package sampler

import (
	"errors"
	"time"

	"pg_lock_history/gosrc/episode"
	"pg_lock_history/gosrc/live"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
)

// Monotonic is a time of CLOCK_MONOTONIC in nanoseconds.
type Monotonic int64

// Reasons tells why Wait came back; the values are those of PLH_WAKE_* in probe.h.
type Reasons uint32

// Several may be set.
const (
	WokeChanged  Reasons = 0x01 // a heavyweight waiter came, changed or went
	WokeDeadline Reasons = 0x02
	WokeStop     Reasons = 0x04  // SIGTERM
	WokeReload   Reasons = 0x08  // the configuration files were read again
	WokeFlush    Reasons = 0x10  // a session asked for flush()
	WokeNotify   Reasons = 0x20  // a goroutine of ours wants attention
	WokeStopping Reasons = 0x40  // the server is stopping, clients are still there
	WokePoked    Reasons = 0x80  // the extension was created
	WokeFailed   Reasons = 0x100 // there are records of failed waits
	WokeActivity Reasons = 0x200 // there is load to be fetched
)

// Track says what Wait looks at; the values are those of PLH_TRACK_* in probe.h.
type Track uint32

// Several may be set.
const (
	TrackLocks Track = 0x01 // who waits for a heavyweight lock
	TrackLoad  Track = 0x02 // what every process is doing

	TrackLWLocks Track = 0x04 // and which LWLock it waits for
	TrackPages   Track = 0x08 // and which page
)

// Activity is what every process was doing since it was last asked for. The
// slices belong to the caller and are made larger when something does not fit.
type Activity struct {
	Ours    []int32 // in: pids of our own sessions
	Runs    []snapshot.Run
	Seconds []snapshot.Second
	Lost    int // rows that had no room
}

// ErrBusy is returned when a lock was not free: nothing was read, ask again.
var ErrBusy = errors.New("a lock of the server was busy")

// Wake is the answer of Wait beside the waiters found.
type Wake struct {
	Now          snapshot.Micros // wall clock of the last sweep
	NowNs        Monotonic       // monotonic clock of the same
	Previous     snapshot.Micros // wall clock of the sweep before it, 0 = none
	GapBegan     snapshot.Micros // longest hole between two sweeps of this call,
	GapEnded     snapshot.Micros // 0 when none was over 1 s and 3 periods
	FlushRequest uint64
	Reasons      Reasons
	Waiting      int // waiters among the rows found
	Lost         int // rows that had no room
	TicksDone    int64
	TicksLate    int64
	TicksMissed  int64

	// Partition locks taken to count locks beyond the fast path.
	PartitionsTaken int64
	PartitionsBusy  int64
	Holds           Histogram // time that each was held

	LastSweep   time.Duration
	LastWasTick bool
	Sweeps      Histogram // the sweeps before the last one
}

// at returns a moment of the clock that nobody sets by the server's as it is now.
func (w *Wake) at(ns Monotonic) snapshot.Micros { return w.Now.Add(-time.Duration(w.NowNs - ns)) }

// Walk is the answer of Locks beside the locks copied.
type Walk struct {
	TakenAt         snapshot.Micros
	Apart           bool // not taken at one moment
	Overflow        bool // a buffer was too small
	Locks           int
	Holders         int
	Queued          int
	Moved           int // waiters whose lock went away before we got there
	PartitionsTaken int64
	PartitionsBusy  int64
	Took            time.Duration
	Holds           Histogram // time that each partition was held
}

// Ref names a process.
type Ref = episode.Ref

// RawSession is what the probe knows of one session; its byte slices are
// valid during the call that hands it over.
type RawSession struct {
	Status          snapshot.SessionStatus
	Slot            int32
	Pid             int32
	LeaderPid       int32
	State           snapshot.State
	Database        uint32
	Role            uint32
	Wraparound      bool
	TextCut         bool
	BackendStart    snapshot.Micros
	XactStart       snapshot.Micros
	QueryStart      snapshot.Micros
	StateChange     snapshot.Micros
	QueryID         int64
	BackendType     []byte
	ApplicationName []byte
	ClientAddr      []byte
	Text            []byte
}

// Transaction asks for what was seen of one transaction, and is the answer
// beside its statements.
type Transaction struct {
	Slot int32 // a process
	Pid  int32
	Xid  uint32 // or, when not 0, a prepared transaction

	BackendStart snapshot.Micros // whose statements they are
	XactStart    snapshot.Micros
	LeftOut      int64 // statements seen that had to make room
}

// MaxStatements is how many statements of a transaction the probe hands out at
// most, PLH_STATEMENTS_KEPT of statements.h.
const MaxStatements = 8

// RawStatement is what the probe knows of one statement; its byte slices are
// valid until the next call of a probe.
type RawStatement struct {
	FirstSeen     snapshot.Micros
	LastSeen      snapshot.Micros
	QueryStart    snapshot.Micros
	QueryID       int64
	Samples       int64
	State         snapshot.State
	WaitEventType []byte
	WaitEvent     []byte
	Text          []byte
}

// RowStatus says what was found of the row behind a wait for a transaction.
type RowStatus int32

// The values are those of PlhRowStatus in probe.h.
const (
	RowFound RowStatus = 1
	RowNone  RowStatus = 2 // the wait is for no row: a duplicate key, say
	RowGone  RowStatus = 3 // the wait is over
)

// Row is the answer of Probes.Row.
type Row struct {
	Status          RowStatus
	Tuple           lockmgr.Tag // when found
	PartitionsTaken int64
	PartitionsBusy  int64
}

// Status is what sessions see of the worker in status().
type Status struct {
	Node           string // name of this server in the history
	Target         string // where history is written, empty when not connected
	State          string
	LastFlush      snapshot.Micros
	RecordingSince snapshot.Micros
	LastError      string
	LastErrorAt    snapshot.Micros
	Hint           string
	Errors         uint64
	RowsWritten    uint64
	RowsMerged     uint64
	RowsDropped    uint64
	QueueBytes     uint64
}

// Message is an entry for the server log.
type Message = report.Message

// Probes is the server as the sampler sees it; package probe implements it in
// C, tests by a scripted server on virtual time. Main thread only.
type Probes interface {
	// Wait sleeps and sweeps every period until there is a reason to come
	// back, at deadline at the latest. known are the waiters of the previous
	// answer in slot order; found is filled, the number of rows returned. A
	// period of 0 means no sweeps.
	Wait(period time.Duration, deadline Monotonic, track Track, known, found []snapshot.Wait, wake *Wake) (int, error)
	// Locks copies the locks that waits are about; ErrBusy when a partition
	// was not free and insist is off.
	Locks(waits []snapshot.Wait, insist bool, locks []snapshot.Lock, holders []snapshot.Holder, queue []snapshot.Queued, walk *Walk) error
	// Row finds the tuple that a waiting process has locked; ErrBusy when a
	// partition was not free. row is filled in any case.
	Row(wait snapshot.Wait, row *Row) error
	// Sessions reads the given sessions and calls each for every one of them. A
	// slot of -1 means wherever the pid is.
	Sessions(refs []Ref, textEach int, each func(i int, s *RawSession)) error
	// Statements appends to dst what samples saw of the transaction t, in no
	// order; nothing when nothing is known.
	Statements(t *Transaction, dst []RawStatement) ([]RawStatement, error)
	// Failures appends to dst the records of failed waits that are new since the
	// last call. Called after Wait, it knows all that happened before what Wait saw.
	Failures(dst []snapshot.Failure) ([]snapshot.Failure, error)
	Settings() ([]byte, error)
	Log(Message) error
	Publish(*Status) error
	// Activity fetches the load of the seconds that are complete, and the runs
	// that had no room; finish ends the one that goes on.
	Activity(finish bool, a *Activity) error
	// FastPath fetches how the fast path was used in those seconds.
	FastPath(finish bool, f *FastPath) error
	// Name returns the server's name for a number, "" when it has none.
	Name(kind snapshot.NameKind, number uint32) (string, error)
	// LiveGraph, LiveWaits and LiveLoad bring records into the live area; ErrBusy when a
	// session was reading it.
	LiveGraph(*live.Graph) error
	LiveWaits(records []byte, skipped int) error
	LiveLoad(records []byte, skipped int) error
	Flushed(ticket uint64) error
	// SpareSlot reports whether more client slots are free than are reserved.
	SpareSlot() (bool, error)
}
