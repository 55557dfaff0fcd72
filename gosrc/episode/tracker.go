package episode

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

// maxSlots is the server's own bound on processes (MAX_BACKENDS, 2^18 - 1):
// a slot above it is nonsense and must not cost memory.
const maxSlots = 1 << 18

// Tracker follows every wait from the sweep that finds it to the one that
// misses it. It belongs to one goroutine.
type Tracker struct {
	config Config

	procs   []*process // by slot; nil where nobody ever waited
	live    []*wait    // everybody who waits
	rowless []*wait    // of these, who wait for a transaction and may have a row
	ending  []*wait    // ended in the sweep at work
	held    []*wait    // ended, how is not decided yet
	sweeps  uint64
	walks   uint64
	step    time.Duration // Sweep.Step of the sweep at work

	// Of the walk at work.
	matched  []*wait // by waiter of the graph; nil where the sweep knows no such wait
	run      []*wait // one queue of it
	sessions []groupSession
	asked    []bool     // groups already in Wanted
	edges    []liveEdge // edges of one wait while they are sorted out

	// For the next Drain.
	closed     []history.Episode
	nextOpen   int // where in live the next Drain begins, so that everybody has a turn
	short      []history.ShortWait
	shortIndex map[history.ShortWaitKey]int
	seconds    map[snapshot.Micros]secondCount
	merged     int64
	found      []foundDeadlock
	conflicts  []history.Conflict // since the last Drain
	lost       int64              // failures whose records were lost

	// From the walks, see deadlock.go.
	cycles    map[uint64][]cycleMember // of the latest walk that saw them
	cycleSeen uint64                   // number of that walk
}

// process is what is known of a slot, whoever is in it: one wait at a time.
type process struct {
	wait *wait // nil while it does not wait

	// The wait before, to tell a stale start from a true one.
	lastSeen  snapshot.Micros // when it was certainly still waiting
	lastStart snapshot.Micros // as published
	// lastGranted: it was granted, as decided
	lastGranted bool
	ended       *wait // it, when it ended in the sweep at work

	undecided []*wait // of held, at most a few
	failure   lastFailure
}

// wait is an episode in the making.
type wait struct {
	slot      int32
	pid       int32
	lock      uint64
	waitEvent uint32          // of class Lock, 0 when none was seen
	published snapshot.Micros // the server's wait start, 0 = none yet
	stale     bool            // published is not the start of this wait
	start     snapshot.Micros
	end       snapshot.Micros // 0 while waiting
	firstSeen snapshot.Micros // by which sweep
	seenAt    snapshot.Micros // by the latest one, by the clock as it is now
	skew      time.Duration   // how far the clock was set since start
	samples   int64
	sweep     uint64 // number of the latest sweep that found it
	walk      uint64 // number of the latest walk that found it, 0 = none did
	walkPrev  uint64 // of the one before that
	outcome   history.Outcome

	// How it ended, see failure.go.
	status   snapshot.WaitStatus // as the sweep saw it
	failed   history.Outcome     // as its process recorded it, StillWaiting when it did not
	failedAt snapshot.Micros     // likewise; 0 when it did not
	endFrom  snapshot.Micros     // it did not end before
	endTo    snapshot.Micros     // or after
	blurred  bool                // records that may be about it were lost
	decideBy snapshot.Micros

	// From the walks.
	waiter    *snapshot.Session // nil until it could be read
	tag       lockmgr.Tag
	mode      lockmgr.Mode
	live      []liveEdge // in the order of the latest walk
	past      []history.Edge
	softPids  []int32
	hardCount int32
	raised    raise
	softCount int32
	queueKey  int64
	keyed     bool
	cycle     uint64 // of the latest walk
	inCycle   bool

	row      lockmgr.Tag // behind a wait for a transaction; zero = not known
	rowAsked bool        // the answer is final
	rowTries int

	waitID    int64
	idStart   snapshot.Micros // that waitID was made of
	handedOut bool            // as open: start and waitID are fixed
	alone     bool            // has ended, and is told by a row of its own
	changed   bool            // since handed out
}

// NewTracker returns a Tracker that knows no wait.
func NewTracker(c Config) *Tracker {
	t := &Tracker{
		shortIndex: make(map[history.ShortWaitKey]int),
		seconds:    make(map[snapshot.Micros]secondCount),
	}
	t.Configure(c)
	return t
}

// Configure applies new settings to what ends or is handed out from now on.
func (t *Tracker) Configure(c Config) {
	c.MinDuration = max(c.MinDuration, 0)
	c.MaxRowsPerSecond = max(c.MaxRowsPerSecond, 1)
	c.MaxShortKeys = max(c.MaxShortKeys, 1)
	t.config = c
}

// OldestOpen returns the start of the oldest wait that was handed out as open and
// not as ended, or at when there is none.
func (t *Tracker) OldestOpen(at snapshot.Micros) snapshot.Micros {
	oldest := at
	for _, waits := range [...][]*wait{t.live, t.held} {
		for _, w := range waits {
			if w.handedOut {
				oldest = min(oldest, w.start)
			}
		}
	}
	return oldest
}

// Complete returns up to when all waits that have ended are told with the next
// Drain: not beyond the end of one that is held back.
func (t *Tracker) Complete(at snapshot.Micros) snapshot.Micros {
	for _, w := range t.held {
		at = min(at, w.endFrom.Add(w.skew))
	}
	return at
}

// Waiting returns the number of processes that wait.
func (t *Tracker) Waiting() int { return len(t.live) }

// Sweep takes in what one sweep found: waits begin, go on and end.
func (t *Tracker) Sweep(s Sweep) {
	t.sweeps++
	t.setClock(s.Step)
	for i := range s.Found {
		f := &s.Found[i]
		p := t.process(f.Slot)
		if p == nil {
			continue
		}
		w := p.wait
		switch {
		case f.Status != snapshot.Waiting:
			if w != nil && w.sweep != t.sweeps && w.pid == f.Pid && w.lock == f.Lock {
				t.finish(p, &s, f.Status)
			}
		case w != nil && w.isSame(f, &s):
			t.goOn(p, f, &s)
		default:
			if w != nil {
				t.finish(p, &s, snapshot.EndedLeft)
			}
			t.begin(p, f, &s)
		}
	}
	for _, w := range t.live {
		if w.end == 0 && w.sweep != t.sweeps {
			t.finish(t.procs[w.slot], &s, snapshot.EndedUnknown)
		}
	}
	for i := range s.Failed {
		t.fail(&s.Failed[i])
	}
	t.decide(s.At, false)
	if len(t.ending) == 0 {
		return
	}
	still := t.live[:0]
	for _, w := range t.live {
		if w.end == 0 {
			still = append(still, w)
		}
	}
	clear(t.live[len(still):])
	t.live = still
	for _, w := range t.ending {
		if p := t.procs[w.slot]; p.ended == w {
			p.ended = nil
		}
	}
	clear(t.ending)
	t.ending = t.ending[:0]
}

// setClock takes in that the clock was set. A wait keeps the time in which it
// began, so that its length stays true; what is compared with later sweeps moves.
func (t *Tracker) setClock(step time.Duration) {
	t.step = step
	if step == 0 {
		return
	}
	for _, w := range t.live {
		w.skew += step
		w.seenAt = w.seenAt.Add(step)
	}
	for _, p := range t.procs {
		if p != nil && p.lastSeen != 0 {
			p.lastSeen = p.lastSeen.Add(step)
		}
	}
}

// ownTime returns a time of the clock as it is now in the time in which w began.
func (w *wait) ownTime(at snapshot.Micros) snapshot.Micros { return at.Add(-w.skew) }

// process returns the record of a slot, nil for an impossible one.
func (t *Tracker) process(slot int32) *process {
	if slot < 0 || slot >= maxSlots {
		return nil
	}
	for int(slot) >= len(t.procs) {
		t.procs = append(t.procs, nil)
	}
	if t.procs[slot] == nil {
		t.procs[slot] = &process{}
	}
	return t.procs[slot]
}

// waitOf returns the wait of a process, nil when it is not known to wait.
func (t *Tracker) waitOf(slot, pid int32) *wait {
	if slot < 0 || int(slot) >= len(t.procs) || t.procs[slot] == nil {
		return nil
	}
	if w := t.procs[slot].wait; w != nil && w.pid == pid {
		return w
	}
	return nil
}

// isSame reports whether f is still the wait w. A start that was not published
// yet, or was left over from an earlier wait, may be another one now.
func (w *wait) isSame(f *snapshot.Wait, s *Sweep) bool {
	if w.pid != f.Pid || w.lock != f.Lock {
		return false
	}
	if f.WaitStart == 0 || f.WaitStart == w.published {
		return true
	}
	// After a pause the start tells whether it is a later wait for the same lock.
	return (w.published == 0 || w.stale) && !(s.Resumed && f.WaitStart > w.seenAt)
}

func (t *Tracker) begin(p *process, f *snapshot.Wait, s *Sweep) {
	w := &wait{
		slot: f.Slot, pid: f.Pid, lock: f.Lock,
		start: s.At, firstSeen: s.At, seenAt: s.At,
		samples: 1, sweep: t.sweeps,
	}
	w.noteEvent(f.WaitEvent)
	p.wait = w
	t.live = append(t.live, w)
	if f.WaitStart == 0 {
		return
	}
	p.publish(f.WaitStart, s.At)
	if !w.stale && distance(s.At, w.start.Add(s.Step)) < distance(s.At, w.start) {
		w.skew = s.Step // it began before the clock was set
	}
	// The true end of the wait before is not after the start of this one.
	if before := p.ended; before != nil && !w.stale {
		before.endTo = max(before.start, min(before.endTo, before.ownTime(w.ownNow())))
		before.end = min(before.end, before.endTo)
	}
}

// ownNow returns the start of w by the clock as it is now.
func (w *wait) ownNow() snapshot.Micros { return w.start.Add(w.skew) }

func distance(a, b snapshot.Micros) time.Duration { return max(a.Sub(b), b.Sub(a)) }

func (t *Tracker) goOn(p *process, f *snapshot.Wait, s *Sweep) {
	w := p.wait
	if w.sweep != t.sweeps {
		w.samples += max(s.Ticks, 0)
	}
	w.sweep, w.seenAt = t.sweeps, s.At
	w.noteEvent(f.WaitEvent)
	if f.WaitStart != 0 && f.WaitStart != w.published {
		p.publish(f.WaitStart, s.At)
	}
}

// publish takes in the start that the server gives for p's wait, unless it is
// a stale one.
func (p *process) publish(start, at snapshot.Micros) {
	w := p.wait
	w.published = start
	// What is later than now was said before the clock was set back.
	w.stale = start == p.lastStart || start < p.lastSeen && p.lastSeen <= at ||
		w.waiter != nil && start < w.waiter.BackendStart && w.waiter.BackendStart <= at
	if !w.stale {
		w.moveStart(start)
	}
}

// moveStart corrects the start of w while nobody outside knows it.
func (w *wait) moveStart(start snapshot.Micros) {
	if w.handedOut {
		return
	}
	for i := range w.live {
		if e := &w.live[i]; e.from == w.start || e.from < start {
			e.from = start
		}
	}
	for i := range w.past {
		if e := &w.past[i]; e.From == w.start || e.From < start {
			e.From = start
			e.To = max(e.To, start)
		}
	}
	w.start = start
}

// waitClassLock is the class of a wait event that names a heavyweight lock;
// the low 16 bits are the lock type.
const waitClassLock = 0x03

// noteEvent keeps the wait event. Another class than Lock means that the
// process is about to sleep.
func (w *wait) noteEvent(event uint32) {
	if event>>24 == waitClassLock {
		w.waitEvent = event
	}
}

// finish ends the wait of p. It ended somewhere between the last tick that saw
// it and this sweep; the middle is wrong by half a period at most, to either
// side alike. After a pause nobody knows, and no more is claimed than was seen.
func (t *Tracker) finish(p *process, s *Sweep, status snapshot.WaitStatus) {
	w := p.wait
	lastSeen := min(max(w.seenAt, s.Previous), s.At)
	end := lastSeen + (s.At-lastSeen)/2
	if s.Resumed {
		end = lastSeen
	}
	w.end = max(w.ownTime(end), w.start, 1) // the clock may have been set back by less than is told
	w.endFrom, w.endTo = max(w.ownTime(lastSeen), w.start, 1), max(w.ownTime(s.At), w.start, 1)
	w.status, w.decideBy = status, s.At.Add(decideAfter)
	w.samples += max(s.Ticks-1, 0) // the ticks before this one saw it

	p.wait = nil
	p.ended, p.lastSeen, p.lastStart, p.lastGranted = w, lastSeen, w.published, false
	t.ending = append(t.ending, w)
	t.held = append(t.held, w)
	p.undecided = append(p.undecided, w)
}

// waitID names a wait: the same after a restart of the worker.
func waitID(node string, start snapshot.Micros, slot, pid int32) int64 {
	name := append([]byte(node), 0)
	name = binary.BigEndian.AppendUint64(name, uint64(start))
	name = binary.BigEndian.AppendUint32(name, uint32(slot))
	name = binary.BigEndian.AppendUint32(name, uint32(pid))
	sum := sha256.Sum256(name)
	return int64(max(binary.BigEndian.Uint64(sum[:])&math.MaxInt64, 1))
}
