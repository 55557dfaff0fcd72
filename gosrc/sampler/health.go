package sampler

import (
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// idleHealthEvery is how often health is written while nothing else is: an
// idle server's checkpoints and WAL archiving should stay idle.
const idleHealthEvery = 15 * time.Minute

const minuteMicros = snapshot.Micros(time.Minute / time.Microsecond)

// healthMeter adds up what watching cost and missed, minute by minute.
type healthMeter struct {
	current history.Health
	probes  Histogram // whole ticks: sweep, walk, sessions and analysis
	holds   Histogram
	last    counters
	done    []history.Health // minutes that are over and not handed out
}

// counters are ever growing numbers; health shows the part of its minute.
type counters struct {
	cpu         time.Duration
	rowsWritten int64
	rowsMerged  int64
	rowsDropped int64
	errors      int64
}

func minuteOf(at snapshot.Micros) snapshot.Micros { return at - at%minuteMicros }

// roll closes the current minute when at lies in another one.
func (m *healthMeter) roll(at snapshot.Micros, now counters) {
	if m.current.Minute == 0 {
		m.current.Minute = minuteOf(at)
		m.last = now
		return
	}
	if minuteOf(at) != m.current.Minute {
		m.close(at, now)
	}
}

// close ends the current part of a minute and begins the next one at at.
func (m *healthMeter) close(at snapshot.Micros, now counters) {
	h := m.current
	h.ProbeP50, h.ProbeP99, h.ProbeMax = m.probes.Quantile(0.5), m.probes.Quantile(0.99), m.probes.Max()
	h.HoldP99, h.HoldMax = m.holds.Quantile(0.99), m.holds.Max()
	h.CPU = now.cpu - m.last.cpu
	h.RowsWritten = now.rowsWritten - m.last.rowsWritten
	h.RowsMerged = now.rowsMerged - m.last.rowsMerged
	h.RowsDropped = now.rowsDropped - m.last.rowsDropped
	h.Errors = now.errors - m.last.errors
	m.last = now
	if h.TicksDue > 0 || h.Errors > 0 || h.RowsDropped > 0 {
		m.done = append(m.done, h)
	}
	m.current = history.Health{Minute: minuteOf(at), Period: h.Period}
	m.probes, m.holds = Histogram{}, Histogram{}
}

// due reports whether minutes wait that have to be written now: at once when
// something else is written or asked for, otherwise after idleHealthEvery.
func (m *healthMeter) due(at snapshot.Micros, busy bool) bool {
	return len(m.done) > 0 && (busy || at.Sub(m.done[0].Minute) >= idleHealthEvery)
}

func (m *healthMeter) take() []history.Health {
	out := m.done
	m.done = nil
	return out
}

func (m *healthMeter) ticks(w *Wake, period time.Duration) {
	h := &m.current
	h.Period = period
	h.TicksDone += w.TicksDone
	h.TicksDue += w.TicksDone + w.TicksMissed
	h.TicksLate += w.TicksLate
	h.TicksMissed += w.TicksMissed
	h.PartitionsTaken += w.PartitionsTaken
	h.PartitionsBusy += w.PartitionsBusy
	m.holds.Merge(&w.Holds)
	m.probes.Merge(&w.Sweeps)
}

func (m *healthMeter) walk(w *Walk) {
	m.current.PartitionsTaken += w.PartitionsTaken
	m.current.PartitionsBusy += w.PartitionsBusy
	m.holds.Merge(&w.Holds)
}

func (m *healthMeter) row(r *Row) {
	m.current.PartitionsTaken += r.PartitionsTaken
	m.current.PartitionsBusy += r.PartitionsBusy
}
