package episode

import (
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

// WantedRows appends to dst the waits for a transaction whose row is to be
// looked for now: those old enough to be kept alone. next is when another one
// will be, 0 for never. The sampler answers with Row or NoRow.
func (t *Tracker) WantedRows(at snapshot.Micros, dst []snapshot.Wait) (due []snapshot.Wait, next snapshot.Micros) {
	still := t.rowless[:0]
	for _, w := range t.rowless {
		if w.end != 0 || w.rowAsked {
			continue
		}
		still = append(still, w)
		switch from := w.start.Add(t.config.MinDuration); {
		case from <= w.ownTime(at):
			dst = append(dst, snapshot.Wait{Lock: w.lock, WaitStart: w.published, Slot: w.slot, Pid: w.pid})
		case next == 0 || from.Add(w.skew) < next:
			next = from.Add(w.skew)
		}
	}
	clear(t.rowless[len(still):])
	t.rowless = still
	return dst, next
}

// Row says which tuple a wait from WantedRows is about.
func (t *Tracker) Row(of snapshot.Wait, tuple lockmgr.Tag) {
	if w := t.waitOf(of.Slot, of.Pid); w != nil && w.lock == of.Lock {
		w.row, w.rowAsked, w.changed = tuple, true, true
	}
}

// NoRow says that none was found; after so many tries that is final.
func (t *Tracker) NoRow(of snapshot.Wait, tries int) {
	if w := t.waitOf(of.Slot, of.Pid); w != nil && w.lock == of.Lock {
		w.rowTries++
		w.rowAsked = w.rowTries >= tries
	}
}
