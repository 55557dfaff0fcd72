package sampler

import (
	"errors"

	"pg_lock_history/gosrc/report"
)

const (
	// rowBudget bounds the partition locks taken in a second for the rows
	// behind waits. A row costs two to four, so that of some 60 waits for a
	// transaction that begin in a second all are known; what is over is tried
	// again with each walk.
	rowBudget = 200
	// rowMost is what one search may take: the partitions there are.
	rowMost = 16
	// rowTries bounds the tries at a search that found a partition busy.
	rowTries = 3

	keyRow = "probe row"
)

// rowMeter keeps the budget of one second after the other.
type rowMeter struct {
	since Monotonic
	left  int64
}

func (m *rowMeter) renew(now Monotonic) {
	if m.since == 0 || now-m.since >= Monotonic(idleTurn) {
		m.since, m.left = now, rowBudget
	}
}

func (m *rowMeter) allows(now Monotonic) bool {
	m.renew(now)
	return m.left >= rowMost
}

// share takes note of what the sweeps up to now have used of the same budget,
// for locks beyond the fast path; C in turn is told of each row.
func (m *rowMeter) share(now Monotonic, partitions int64) {
	if partitions > 0 {
		m.renew(now)
		m.left -= partitions
	}
}

// readRows finds the rows behind the waits that are old enough to be kept, and
// sets when the next one will be.
func (s *Sampler) readRows() {
	w := &s.wake
	due, next := s.tracker.WantedRows(w.Now, s.rowless[:0])
	s.rowless = due
	s.nextRow = 0
	if next != 0 {
		s.nextRow = w.NowNs + Monotonic(max(next.Sub(w.Now), 0))
	}
	for i := range due {
		if !s.rows.allows(w.NowNs) {
			return // the next walk comes soon
		}
		var row Row
		err := s.o.Probes.Row(due[i], &row)
		s.rows.left -= row.PartitionsTaken
		s.health.row(&row)
		switch {
		case errors.Is(err, ErrBusy):
			s.tracker.NoRow(due[i], rowTries)
		case err != nil:
			s.tracker.NoRow(due[i], 1)
			s.errors++
			s.o.Log.Add(report.Message{Level: report.Warning, Key: keyRow, Text: "could not look for the row behind a wait: " + err.Error(), Hint: hintProbeHasFailed})
		case row.Status == RowFound:
			s.tracker.Row(due[i], row.Tuple)
			s.o.Sink.WantTag(row.Tuple)
		default:
			s.tracker.NoRow(due[i], 1)
		}
	}
}
