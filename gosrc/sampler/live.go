package sampler

import (
	"errors"
	"slices"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/live"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

const (
	// namesWithin is how long a second of load waits for the names of somebody
	// whom it is the first to tell of: nobody could ask for them earlier. It is
	// shown without those that take longer.
	namesWithin = time.Second
	// namesLook is how often it is looked whether they have come.
	namesLook = 50 * time.Millisecond
)

// liveView is what sessions see in the live area, and what they should see.
type liveView struct {
	area      *live.Area
	names     live.Names
	seconds   []nameless // of load, oldest first, that are not records yet
	strangers bool       // the next one is the first to tell of somebody

	graph  live.Graph
	owed   bool      // graph has not arrived
	closed int       // of the tracker's ended waits, those that were made records
	next   Monotonic // not to be tried before
}

func newLiveView(o Options) liveView {
	// Whatever the life before left there is not true any more.
	return liveView{area: live.New(o.LiveRoom, o.Names, liveSettings(o.Config)), names: o.Names, owed: true}
}

func liveSettings(c config.Config) live.Settings {
	return live.Settings{ServerVersion: c.Server.VersionNum,
		Statements: querytext.Policy{Mode: c.QueryText, MaxBytes: c.QueryLength}}
}

// make takes in the graph of a walk, which is valid until the next one.
func (v *liveView) make(g *waitgraph.Graph, s *Sampler) {
	v.graph, v.owed = v.area.Make(g, s), true
}

// empty takes in that nobody waits, or that nobody looks.
func (v *liveView) empty(at snapshot.Micros) {
	if v.graph.Rows > 0 || v.graph.LeftOut > 0 {
		v.graph, v.owed = live.Graph{}, true
		v.area.Clear()
	}
	if v.owed {
		v.graph.TakenAt = at
	}
}

// owes reports whether something has not arrived.
func (v *liveView) owes() bool {
	pending, skipped := v.area.Pending()
	load, missed := v.area.PendingLoad()
	return v.owed || len(pending) > 0 || skipped > 0 || len(load) > 0 || missed > 0
}

// nameless is a second of load that waits for names until then.
type nameless struct {
	history.Second
	until Monotonic
}

// second takes in a second of load.
func (v *liveView) second(sec *history.Second, now Monotonic) {
	until := now
	if v.strangers {
		until += Monotonic(namesWithin)
	}
	v.strangers = false
	v.seconds = append(v.seconds, nameless{*sec, until})
}

// showSeconds makes records of the seconds that need wait no longer, in their order.
func (v *liveView) showSeconds(now Monotonic, final bool) {
	n := 0
	for n < len(v.seconds) && (final || now >= v.seconds[n].until || v.isNamed(&v.seconds[n].Second)) {
		v.area.Second(&v.seconds[n].Second)
		n++
	}
	v.seconds = slices.Delete(v.seconds, 0, n)
}

// isNamed reports whether the names of all whom a second tells of are known.
func (v *liveView) isNamed(sec *history.Second) bool {
	for i := range sec.Loads {
		l := &sec.Loads[i]
		if l.Database != 0 && v.names.Database(l.Database) == "" || l.Role != 0 && v.names.Role(l.Role) == "" {
			return false
		}
	}
	return true
}

// showLive brings what is new into the live area: ended waits first, so that
// a wait is there twice for a moment rather than not at all.
func (s *Sampler) showLive() {
	v := &s.live
	if len(s.known) == 0 || !s.tracksLocks() {
		v.empty(s.wake.Now)
	}
	closed := s.tracker.Closed()
	for ; v.closed < len(closed); v.closed++ {
		v.area.Ended(&closed[v.closed])
	}
	v.showSeconds(s.wake.NowNs, s.wake.Reasons&WokeStop != 0)
	if !v.owes() || s.wake.NowNs < v.next {
		return
	}
	var err error
	if pending, skipped := v.area.Pending(); len(pending) > 0 || skipped > 0 {
		if err = s.o.Probes.LiveWaits(pending, skipped); err == nil {
			v.area.HandedOver()
		}
	}
	if load, missed := v.area.PendingLoad(); err == nil && (len(load) > 0 || missed > 0) {
		if err = s.o.Probes.LiveLoad(load, missed); err == nil {
			v.area.LoadHandedOver()
		}
	}
	if err == nil && v.owed {
		if err = s.o.Probes.LiveGraph(&v.graph); err == nil {
			v.owed = false
		}
	}
	switch {
	case err == nil:
		s.o.Log.Over(keyLive)
	case errors.Is(err, ErrBusy): // somebody reads: with the next tick
		v.next = s.wake.NowNs + Monotonic(min(max(s.period(), time.Millisecond), publishRetry))
	default:
		s.errors++
		v.next = s.wake.NowNs + Monotonic(time.Second)
		s.o.Log.Add(report.Message{Level: report.Warning, Key: keyLive, Text: "could not publish who waits: " + err.Error(), Hint: hintProbeHasFailed})
	}
}

// Known, Peek and Session answer the live area about the latest walk.

// Known implements live.Source.
func (s *Sampler) Known(waiter int) bool { return s.tracker.Known(waiter) }

// Peek implements live.Source.
func (s *Sampler) Peek(waiter int, e *history.Episode) { s.tracker.Peek(waiter, e) }

// Session implements live.Source.
func (s *Sampler) Session(slot, pid int32) *snapshot.Session { return s.cache.lookup(slot, pid) }
