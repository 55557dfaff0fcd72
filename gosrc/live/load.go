package live

import (
	"math"

	"pg_lock_history/gosrc/history"
)

// LoadFields is how many fields a record of load has.
const LoadFields = 10

// Second makes the records of a second, one for each load. They are pending
// until they were handed over.
func (a *Area) Second(s *history.Second) {
	a.words.begin()
	r := &a.load
	r.maxText = math.MaxInt
	for i := range s.Loads {
		l := &s.Loads[i]
		r.begin(l.Role, s.At)
		r.time(s.At)
		r.text(l.EventType)
		r.text(l.Event)
		r.text(l.Mode.String())
		r.text(a.words.database(l.Database))
		r.text(a.words.role(l.Role))
		r.text(l.BackendType)
		r.privateNonZero(l.QueryID)
		r.int(l.Time.Microseconds())
		r.int(s.Sampled.Microseconds())
		r.end()
	}
	if len(r.buf) > a.room.Load {
		drop := 0
		for len(r.buf)-drop > a.room.Load-a.room.Load/8 {
			drop += lengthOf(r.buf[drop:])
			a.loadSkipped++
		}
		r.buf = append(r.buf[:0], r.buf[drop:]...)
	}
}

// PendingLoad returns the load that was not handed over, and how many records
// had no room among it.
func (a *Area) PendingLoad() (records []byte, skipped int) { return a.load.buf, a.loadSkipped }

// LoadHandedOver is called when what PendingLoad returned has arrived.
func (a *Area) LoadHandedOver() {
	a.load.buf, a.loadSkipped = a.load.buf[:0], 0
}
