package load

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// lengthKey is a bar of the histogram. There are no more of them than wait
// events times some thirty.
type lengthKey struct {
	event  uint32
	bucket int32
}

type lengthSum struct{ waits, us int64 }

// lengths is the histogram of the minute that goes on, and those that are
// complete and not taken yet.
type lengths struct {
	minute snapshot.Micros
	sums   map[lengthKey]lengthSum
	done   []history.WaitLengths
}

const minuteUs = snapshot.Micros(time.Minute / time.Microsecond)

// addLength counts a wait that has ended. How long it was is the time of the
// samples that saw it.
func (m *Meter) addLength(r *snapshot.Run) {
	m.rollMinute(r.Second)
	k := lengthKey{event: r.WaitEvent, bucket: bucketOf(r.EndedUs)}
	s := m.lengths.sums[k]
	s.waits++
	s.us += r.EndedUs
	m.lengths.sums[k] = s
}

// bucketOf returns 0 below a millisecond, then one more each time it is twice as long.
func bucketOf(us int64) int32 { return int32(bits.Len64(uint64(max(us, 0)) / 1000)) }

// rollMinute closes the minute that goes on unless at is in it.
func (m *Meter) rollMinute(at snapshot.Micros) {
	minute := at - at%minuteUs
	if minute == m.lengths.minute {
		return
	}
	m.closeMinute()
	m.lengths.minute = minute
}

func (m *Meter) closeMinute() {
	l := &m.lengths
	if len(l.sums) == 0 {
		return
	}
	keys := make([]lengthKey, 0, len(l.sums))
	for k := range l.sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b lengthKey) int {
		return cmp.Or(cmp.Compare(a.event, b.event), cmp.Compare(a.bucket, b.bucket))
	})
	out := history.WaitLengths{Minute: l.minute, Bars: make([]history.LengthBar, len(keys))}
	for i, k := range keys {
		s := l.sums[k]
		out.Bars[i] = history.LengthBar{EventType: m.name(snapshot.NameEventType, k.event), Event: m.name(snapshot.NameEvent, k.event),
			Bucket: k.bucket, Waits: s.waits, Time: micros(s.us)}
	}
	clear(l.sums)
	l.done = append(l.done, out)
}

// HasLengths reports whether a minute is complete and not taken.
func (m *Meter) HasLengths() bool { return len(m.lengths.done) > 0 }

// TakeLengths returns the minutes that are complete; all: the one that goes on,
// as far as it is, too.
func (m *Meter) TakeLengths(all bool) []history.WaitLengths {
	if all {
		m.closeMinute()
	}
	done := m.lengths.done
	m.lengths.done = nil
	return done
}
