package sampler

import (
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// A part that stays switched off is told in pieces, so that readers know of it
// while it lasts, and a crash does not take it away: at once, so often then, when
// something is written anyway or asked for, and else as seldom as health.
const pauseEvery = 10 * time.Second

// off says what is switched off, in the words of its gap.
type off struct {
	part   history.Part
	detail string
}

func (o off) leavesOutWaits() bool { return o.detail != "" && o.part != history.PartLoad }

const (
	detailEnabled    = "pg_lock_history.enabled was off"
	detailTrackLocks = "pg_lock_history.track_locks was off"
	detailTrackLoad  = "pg_lock_history.track_load was off"
	detailTrackBoth  = "pg_lock_history.track_locks and track_load were off"
)

// whatIsOff returns what c leaves out; the zero value for nothing.
func whatIsOff(c *config.Config) off {
	switch {
	case !c.Enabled:
		return off{history.PartAll, detailEnabled}
	case !c.TrackLocks && !c.TrackLoad:
		return off{history.PartAll, detailTrackBoth}
	case !c.TrackLocks:
		return off{history.PartWaits, detailTrackLocks}
	case !c.TrackLoad:
		return off{history.PartLoad, detailTrackLoad}
	default:
		return off{}
	}
}

// pause keeps account of the time in which something is not sampled.
func (s *Sampler) pause() {
	now := whatIsOff(&s.o.Config)
	if now == s.off {
		return
	}
	waited := s.off.leavesOutWaits()
	s.endPause(s.wake.Now)
	s.off = now
	if now.detail != "" {
		s.offSince, s.offTold = s.wake.Now, false
	}
	if !waited && now.leavesOutWaits() {
		s.lookedNs = s.wake.NowNs
		s.nextFlush = s.lookedNs // what goes on is told as of now
	}
	if waited && s.tracksLocks() {
		s.resumed, s.rewriteFrom = true, s.wake.Now
	}
}

func (s *Sampler) endPause(at snapshot.Micros) {
	if s.off.detail != "" && at > s.offSince {
		s.addGap(history.Gap{Began: s.offSince, Ended: at, Reason: history.GapDisabled, Detail: s.off.detail, Part: s.off.part})
		s.offSince = at
	}
}

// tellPause turns what lasts into a gap when it is time to. While nothing at all is
// sampled the last tick says it; but where a heartbeat is written all the same, it
// must not make that time one that was watched.
func (s *Sampler) tellPause(at snapshot.Micros, asked, busy bool) {
	if s.off.detail == "" {
		return
	}
	age := at.Sub(s.offSince)
	switch isAll := s.off.part == history.PartAll; {
	case asked, isAll && age >= idleHealthEvery-2*idlePush:
	case isAll:
		return
	case busy && age >= pauseEvery, age >= idleHealthEvery:
	case !s.offTold: // before its time counts as watched
	default:
		return
	}
	s.endPause(at)
	s.offTold = true
	// What is open in the tables counts as lost in a gap of waits, anomalies too.
	s.anomalies.owed = s.off.part == history.PartWaits
}
