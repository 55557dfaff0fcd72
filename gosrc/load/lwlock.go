package load

import (
	"cmp"
	"strconv"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// maxLWLocks bounds the locks told apart in one second: some 25 bytes of the
// table each. Beyond it the least awaited are added up by tranche and mode.
const maxLWLocks = 100

type lwlockKey struct {
	event  uint32
	mode   snapshot.LWLockMode
	kind   snapshot.TargetKind
	number uint32
}

func (m *Meter) addLWLock(r *snapshot.Run) {
	k := lwlockKey{event: r.WaitEvent, mode: r.LWLockMode, kind: r.Target.Kind, number: r.Target.Number}
	if k.kind == snapshot.TargetPage {
		k.kind = snapshot.TargetUnknown // which one, the pages tell
	}
	add(m.lwlocks, k, r)
}

// takeLWLocks returns what was added, longest waits first, and begins anew.
func (m *Meter) takeLWLocks() []history.LWLock {
	if len(m.lwlocks) == 0 {
		return nil
	}
	order := func(a, b lwlockKey) int {
		return cmp.Or(cmp.Compare(a.event, b.event), cmp.Compare(a.mode, b.mode), cmp.Compare(a.kind, b.kind), cmp.Compare(a.number, b.number))
	}
	less := func(k lwlockKey) lwlockKey {
		return lwlockKey{event: k.event, mode: k.mode, kind: snapshot.TargetUnknown}
	}
	sums := fold(take(m.lwlocks, order), maxLWLocks, less)
	out := make([]history.LWLock, len(sums))
	for i := range sums {
		k := sums[i].key
		out[i] = history.LWLock{Tranche: m.name(snapshot.NameTranche, k.event), Instance: instance(k), Mode: k.mode,
			Contention: sums[i].history()}
	}
	return out
}

// instance tells which lock of its tranche it is; "" when that is not known.
func instance(k lwlockKey) string {
	n := strconv.FormatUint(uint64(k.number), 10)
	switch k.kind {
	case snapshot.TargetSingle:
		return "only one"
	case snapshot.TargetPartition:
		return "partition " + n
	case snapshot.TargetMember:
		return "lock " + n
	case snapshot.TargetProcess:
		return "fast path of pid " + n
	default:
		return ""
	}
}
