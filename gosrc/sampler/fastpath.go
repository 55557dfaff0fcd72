package sampler

import (
	"pg_lock_history/gosrc/fastpath"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
)

const keyFastPath = "probe fastpath"

// FastPath is the use of the fast path since it was last asked for. The slice
// belongs to the caller and is made larger when something does not fit.
type FastPath struct {
	Rows  []snapshot.SlotUse
	Slots history.Slots
	Lost  int // rows that had no room
}

// fastPathMeter is the use of the fast path as far as it goes on.
type fastPathMeter struct {
	meter  *fastpath.Meter
	answer FastPath // made larger by the probe
	rows   []snapshot.SlotUse
	hungry []history.LockHungry // not yet flushed
}

func newFastPathMeter(o Options) fastPathMeter {
	return fastPathMeter{meter: fastpath.New(), answer: FastPath{Rows: make([]snapshot.SlotUse, 0, o.MaxProcesses)}}
}

// readFastPath fetches what was seen; closeFastPath makes seconds of it.
func (s *Sampler) readFastPath(final bool) {
	f := &s.fastPath
	f.rows = nil
	if err := s.o.Probes.FastPath(final, &f.answer); err != nil {
		s.errors++
		s.o.Log.Add(report.Message{Level: report.Warning, Key: keyFastPath, Text: "could not read how the fast path is used: " + err.Error(), Hint: hintProbeHasFailed})
		return
	}
	s.o.Log.Over(keyFastPath)
	s.errors += int64(f.answer.Lost)
	f.rows = f.answer.Rows
}

// closeFastPath returns what there is to tell of the second, in which sessions
// were active or not. Seconds come in order.
func (s *Sampler) closeFastPath(second snapshot.Micros, active bool) []history.FastPath {
	f := &s.fastPath
	s.closeMinute(second, false)
	for len(f.rows) > 0 && f.rows[0].Second <= second {
		r := &f.rows[0]
		f.rows = f.rows[1:]
		if r.Second < second || s.o.Sink.IsOurs(r.Pid) {
			continue
		}
		f.meter.Add(r, f.answer.Slots)
		s.wantOwner(r.Database, r.Role)
	}
	return f.meter.Close(second, active)
}

// closeMinute puts down the statements of a minute that is over before at.
func (s *Sampler) closeMinute(at snapshot.Micros, all bool) {
	if h, ok := s.fastPath.meter.Minute(at, all); ok {
		s.fastPath.hungry = append(s.fastPath.hungry, h)
	}
}
