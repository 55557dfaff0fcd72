package lockmgr

import "strconv"

// Mode is a heavyweight lock mode, 1 to 8 as in the server; 0 is none.
type Mode int32

// MaxMode is the strongest mode, AccessExclusiveLock.
const MaxMode Mode = 8

var modeNames = [...]string{
	"", "AccessShareLock", "RowShareLock", "RowExclusiveLock",
	"ShareUpdateExclusiveLock", "ShareLock", "ShareRowExclusiveLock",
	"ExclusiveLock", "AccessExclusiveLock",
}

// String returns the name that pg_locks shows.
func (m Mode) String() string {
	if m > 0 && m <= MaxMode {
		return modeNames[m]
	}
	return "mode " + strconv.Itoa(int(m))
}

// Bit returns the bit of m in a mask of modes.
func (m Mode) Bit() uint32 { return 1 << uint32(m) }

// Conflicts maps each mode to the mask of modes it conflicts with. It is read
// from the server once, so that a rule is never kept twice.
type Conflicts [MaxMode + 1]uint32

// Type is the kind of object that is locked.
type Type uint8

// The lock types, numbered as the server numbers them (13 to 19).
const (
	Relation Type = iota
	Extend
	FrozenID
	Page
	Tuple
	TransactionID
	VirtualXID
	SpecToken
	Object
	UserLock
	Advisory
	ApplyTransaction // 16 and later
)

var typeNames = [...]string{
	"relation", "extend", "frozenid", "page", "tuple", "transactionid",
	"virtualxid", "spectoken", "object", "userlock", "advisory", "applytransaction",
}

// String returns the name that pg_locks shows.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "lock type " + strconv.Itoa(int(t))
}

// DefaultMethod is the lock method of everything but advisory locks.
const DefaultMethod = 1

// Tag identifies a locked object, field for field as the server's LOCKTAG.
type Tag struct {
	Field1 uint32
	Field2 uint32
	Field3 uint32
	Field4 uint16
	Type   Type
	Method uint8
}

// Database returns the database of the object, 0 when it is shared or has none.
func (t Tag) Database() uint32 {
	switch t.Type {
	case Relation, Extend, FrozenID, Page, Tuple, Object, UserLock, Advisory, ApplyTransaction:
		return t.Field1
	default:
		return 0
	}
}

// RelationOID returns the relation of the object, 0 when it has none.
func (t Tag) RelationOID() uint32 {
	switch t.Type {
	case Relation, Extend, Page, Tuple:
		return t.Field2
	default:
		return 0
	}
}
