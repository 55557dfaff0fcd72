package snapshot

// BackendType is a kind of process: the server's number, or one of these.
type BackendType int32

// The values are those of PLH_TYPE_* in probe.h.
const (
	TypeUnknown        BackendType = -1 // it has not introduced itself yet
	TypeParallelWorker BackendType = 1000
)

// LWLockMode is how a process wants an LWLock, or a page.
type LWLockMode int32

// The values are those of PlhLWLockMode in probe.h.
const (
	NoLWLock        LWLockMode = -1
	LWExclusive     LWLockMode = 0
	LWShared        LWLockMode = 1
	LWWaitUntilFree LWLockMode = 2 // waits for somebody else to be done, without taking it
	LWShareExcl     LWLockMode = 3 // alone but for those who hold it shared; pages of 19
)

// String returns the word that is stored; "" for none.
func (m LWLockMode) String() string {
	switch m {
	case LWExclusive:
		return "exclusive"
	case LWShared:
		return "shared"
	case LWWaitUntilFree:
		return "wait until free"
	case LWShareExcl:
		return "share exclusive"
	default:
		return ""
	}
}

// Run is a process that was active, and did the same all the time.
type Run struct {
	Second      Micros // begin of the second that this is of
	QueryID     int64  // 0 = none
	TimeUs      int64  // real time that the samples stand for
	EndedUs     int64  // when it ended in this second: how long it was in all; else 0
	Slot        int32
	Pid         int32
	WaitEvent   uint32 // 0 = on CPU
	LWLockMode  LWLockMode
	BackendType BackendType
	Database    uint32
	Role        uint32
	Flags       RunFlags

	// What it waited for, with Flags set.
	AheadUs     int64 // of TimeUs, when it was seen what stood ahead
	ExclusiveUs int64 // of these, a process that held it exclusively
	SharedUs    int64 // the number of those that held it shared, times their time
	Target      Target
	WaitersMax  uint32 // at one tick, for the same in the same mode, with this one
}

// RunFlags say where a run counts; the values are those of PLH_RUN_* in probe.h.
type RunFlags uint32

// Several may be set.
const (
	RunLWLock RunFlags = 0x01
	RunPage   RunFlags = 0x02
)

// TargetKind says how a lock or a page is told.
type TargetKind int32

// The values are those of PlhTargetKind in probe.h.
const (
	TargetNone      TargetKind = 0 // not looked for
	TargetUnknown   TargetKind = 1 // looked for, and not found
	TargetSingle    TargetKind = 2 // the only lock of its tranche
	TargetPartition TargetKind = 3 // Number: which partition, from 0
	TargetMember    TargetKind = 4 // Number: which of the locks that an extension asked for, from 0
	TargetProcess   TargetKind = 5 // Number: pid whose fast-path lock it is
	TargetPage      TargetKind = 6 // the page that the rest tells; Number: PageRole
)

// PageRole is what a page says that it is; holds for pages of btree indexes only.
type PageRole uint32

// The values are those of PlhPageRole in probe.h.
const (
	RoleNone          PageRole = 0
	RoleMeta          PageRole = 1
	RoleRoot          PageRole = 2
	RoleInner         PageRole = 3
	RoleLeaf          PageRole = 4 // that has a right neighbour
	RoleRightmostLeaf PageRole = 5
	RoleOnlyLeaf      PageRole = 6 // and root
)

// Target is the lock, or the page, that a process waited for.
type Target struct {
	Kind       TargetKind
	Number     uint32
	Tablespace uint32
	Database   uint32 // 0: shared
	Relfile    uint32 // number of its file, not its OID
	Fork       int32
	Block      uint32
}

// Second holds the sums of one second, in microseconds of session time.
type Second struct {
	Second              Micros // its begin
	SampledUs           int64  // real time that its samples stand for
	ClientsUs           int64  // client backends
	ActiveUs            int64  // of these, active
	IdleInTransactionUs int64
	WaitingUs           int64 // processes that wait for a heavyweight lock
	Samples             uint32
	_                   uint32
}

// NameKind says what a number of the server is the name of.
type NameKind uint32

// The values are those of PlhNameKind in probe.h.
const (
	NameEventType   NameKind = 1 // of a wait event number
	NameEvent       NameKind = 2
	NameBackendType NameKind = 3
	NameTranche     NameKind = 4 // of a wait event number that counts among LWLock waits
)

// File is the file of a relation, whatever its fork.
type File struct {
	Tablespace uint32
	Database   uint32 // 0: shared
	Relfile    uint32 // its number, which is not the relation's OID
}
