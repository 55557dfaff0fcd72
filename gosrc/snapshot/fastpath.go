package snapshot

// SlotUse is what a process was seen with in one second while it ran one
// statement: the most of each.
type SlotUse struct {
	Second    Micros // its begin
	QueryID   int64  // 0 = none, or less than half of its slots were in use
	Slot      int32
	Pid       int32
	Database  uint32
	Role      uint32
	SlotsUsed uint32 // of the fast path
	Spilled   int32  // relation locks that found no slot, at least; -1 = not looked for
	Looks     uint32 // how often it was seen with any
	LooksFull uint32 // of these, with no slot left; from 18 on in one group at least
}
