package sampler

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/episode"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/live"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

const (
	// idleTurn is how often a quiet server is looked at from Go: status and
	// health. Each turn costs some 30 µs of CPU in all threads.
	idleTurn = time.Second
	// loadTurn is how much later we come when the rows of a second have not.
	loadTurn = 250 * time.Millisecond
	// idlePush is how often the store hears from an idle sampler, so that it
	// can turn the ring by time; with a short retention more often.
	idlePush          = time.Minute
	pushesInRetention = 14

	// walkEvery is how often an unchanged wait graph is walked again: blockers
	// change state (idle in transaction) without any waiter changing.
	walkEvery = 100 * time.Millisecond
	// decideEvery is how soon Go looks again when it was not clear how a wait
	// ended, though nothing happens.
	decideEvery = 20 * time.Millisecond
	// lastLook is how often a stopping worker looks how the last waits end, see
	// Options.WatchOnStop: a look costs a sweep, and the records of failed waits.
	lastLook = 2 * time.Millisecond
	// restAfter is how long nobody has to wait until what a storm took is given
	// back; sooner costs a collection between two waves.
	restAfter = 30 * time.Second

	// clockStep is by how much the server's clock must differ from the one that
	// nobody sets until it counts as having been set. Smaller ones make a wait
	// look longer or shorter by no more; a worker that lost its CPU between
	// reading the two may be wrong by some milliseconds.
	clockStep = 100 * time.Millisecond
	// clockGap is how far it must have been set forwards to leave a gap: times
	// that never were.
	clockGap = time.Second

	// Above manyWaiters a walk holds a partition long enough to space it out.
	manyWaiters        = 256
	walkEveryWhenMany  = 250 * time.Millisecond
	insistAfter        = 3 // busy ticks until a partition is waited for
	maxHolders         = 1 << 16
	maxFailedWaits     = 10
	maxShortKeys       = 1000
	maxPendingGaps     = 1000
	publishRetry       = 100 * time.Millisecond
	firstHoldersRoom   = 1024
	stateRecording     = "recording"
	stateDisabled      = "disabled"
	hintDisabled       = "Set pg_lock_history.enabled and pg_lock_history.track_locks to on and reload the configuration."
	keyWait, keyLocks  = "probe wait", "probe locks"
	keySessions        = "probe sessions"
	keyFailures        = "probe failures"
	keySettings        = "settings"
	keyLive            = "live area"
	hintProbeHasFailed = "Sampling goes on; please report this with the server log."
)

// SinkStatus is what the store says of itself.
type SinkStatus struct {
	State       string // stateRecording when all is well
	Target      string // where history is written
	LastFlush   snapshot.Micros
	LastError   string
	LastErrorAt snapshot.Micros
	Hint        string
	Errors      int64
	RowsWritten int64
	RowsDropped int64
	Dropping    int64  // rows dropped of which the store has not heard yet; it does before it writes again
	Ticket      uint64 // highest flush() ticket that is done
}

// Sink is the store as the sampler sees it. Nothing here blocks.
type Sink interface {
	Push(*history.Batch)
	Queued() int64 // bytes that wait to be written
	Status() SinkStatus
	// RewriteOpen reports, once each time, that all open episodes are needed again.
	RewriteOpen() bool
	// IsOurs reports whether a process of this server is a session of ours.
	IsOurs(pid int32) bool
	// DetectorState returns, once, what an earlier life has left of the anomaly
	// detector, nil for nothing; known is false until that can be told.
	DetectorState() (state []byte, known bool)
	// Ours appends the pids of those that are, or were of late.
	Ours(pids []int32) []int32
	Configure(config.Config)
	Poke()
	// AskedForSlot reports whether a connection to this server waits to be told
	// if a client slot is to spare; TellSlot tells.
	AskedForSlot() bool
	TellSlot(spare bool)
	// Close asks to write what is queued and to leave the server.
	Close()
	WantTag(lockmgr.Tag)
	WantSession(*snapshot.Session)
	WantFile(snapshot.File)
}

// Options are what a sampler is made of.
type Options struct {
	Probes       Probes
	Sink         Sink
	Log          *report.Log
	Conflicts    lockmgr.Conflicts
	Config       config.Config
	MaxProcesses int
	LiveRoom     live.Room
	Names        live.Names
	WatchOnStop  time.Duration // how long to watch how the last waits end; 0 for not at all
	Rest         func()        // called once when nobody has waited for a while, must not block; nil for nothing
	Fault        func()        // called each turn; acts out test faults, nil in a release
}

// Sampler watches one server. Used by one thread.
type Sampler struct {
	o       Options
	builder *waitgraph.Builder
	tracker *episode.Tracker
	cache   *sessionCache
	health  healthMeter
	live    liveView
	load    loadMeter
	texts   textMeter

	fastPath fastPathMeter

	anomalies anomalyWatch

	// Buffers that the probes fill; made once, grown when something did not fit.
	wake     Wake
	walk     Walk
	known    []snapshot.Wait // waiters of the last sweep, in slot order
	found    []snapshot.Wait
	locks    []snapshot.Lock
	holders  []snapshot.Holder
	queue    []snapshot.Queued
	graph    snapshot.Graph
	wanted   []Ref
	failures []snapshot.Failure

	statements statementReader

	stopSeen time.Time // when Run was asked to end
	lastWait Monotonic // when somebody was last seen waiting
	rested   bool      // since then

	nextFlush Monotonic
	nextWalk  Monotonic
	nextRow   Monotonic       // when a wait will be old enough for its row to be looked for, 0 = none
	rows      rowMeter        // what that may still cost
	rowless   []snapshot.Wait // for the tracker to fill
	nextTurn  Monotonic
	walkOwed  bool          // the waiters changed since the last walk
	root      int32         // root blocker of most of them, 0 when nobody waits or there is none
	behind    map[int32]int // for rootOfMost to fill: waiters by group
	busy      int           // walks in a row that found a partition busy
	failed    int           // waits in a row that failed
	errors    int64
	merged    int64
	lost      int64 // records of failed waits that were written over
	resumed   bool  // the next sweep is the first after a hole or a pause

	clockAt  snapshot.Micros // the server's clock, as of the last answer
	clockNs  Monotonic       // and the one that nobody sets; 0 = no answer yet
	answerNs Monotonic       // that one, as of the answer before
	step     time.Duration   // how far the clock was set since the last sweep that the tracker knows

	number         int64
	ticket         uint64 // highest flush() ticket asked for
	answered       uint64 // and the highest passed on to sessions
	lastPush       snapshot.Micros
	completeTo     snapshot.Micros // of the last flush
	gaps           []history.Gap
	lookedNs       Monotonic       // waits were last looked at then, before a pause that lasts or has just ended; 0 = there is none
	rewriteFrom    snapshot.Micros // open waits are owed, once all before is told: a pause ended then; 0 = none are
	off            off             // what is not sampled
	offSince       snapshot.Micros // told in gaps up to then
	offTold        bool            // readers know of it
	recordingSince snapshot.Micros
	draft          Status // a field, so that it is not allocated each second
	published      Status
	publishedOnce  bool
}

// New returns a sampler that is ready to Run.
func New(o Options) *Sampler {
	s := &Sampler{
		o:       o,
		builder: waitgraph.NewBuilder(o.Conflicts),
		tracker: episode.NewTracker(trackerConfig(o.Config)),
		cache:   newSessionCache(),
		known:   make([]snapshot.Wait, 0, o.MaxProcesses),
		found:   make([]snapshot.Wait, 2*o.MaxProcesses),
		locks:   make([]snapshot.Lock, o.MaxProcesses),
		holders: make([]snapshot.Holder, firstHoldersRoom),
		queue:   make([]snapshot.Queued, o.MaxProcesses),
		behind:  make(map[int32]int),
	}
	s.live = newLiveView(o)
	s.load = newLoadMeter(o)
	s.fastPath = newFastPathMeter(o)
	s.anomalies = newAnomalyWatch(o.Config)
	s.texts = newTextMeter()
	return s
}

func trackerConfig(c config.Config) episode.Config {
	return episode.Config{
		Node:             c.NodeName,
		MinDuration:      c.MinDuration,
		MaxRowsPerSecond: c.MaxRowsPerSecond,
		MaxShortKeys:     maxShortKeys,
		HandOver:         2 * c.SamplePeriod, // a walk of the tick before the end, and its neighbour
	}
}

// Run samples until the server asks the worker to stop. What is known then has
// been pushed to the sink when it returns.
func (s *Sampler) Run() error {
	for {
		stop, err := s.turn()
		if err != nil || stop {
			return err
		}
	}
}

// period is the time between two sweeps, 0 while sampling is off.
func (s *Sampler) period() time.Duration {
	if s.track() == 0 {
		return 0
	}
	return s.o.Config.SamplePeriod
}

// track is what the ticks are for.
func (s *Sampler) track() Track {
	var t Track
	if s.tracksLocks() {
		t |= TrackLocks
	}
	if s.tracksLoad() {
		t |= TrackLoad
		if s.o.Config.TrackLWLocks {
			t |= TrackLWLocks
		}
		if s.o.Config.TrackPages {
			t |= TrackPages
		}
	}
	return t
}

func (s *Sampler) tracksLocks() bool { return s.o.Config.Enabled && s.o.Config.TrackLocks }

// turn waits for the next reason to act and acts on it.
func (s *Sampler) turn() (stop bool, err error) {
	period := s.period()
	n, err := s.o.Probes.Wait(period, s.deadline(), s.track(), s.known, s.found, &s.wake)
	if err != nil {
		return false, s.waitFailed(err)
	}
	s.failed = 0
	began := time.Now()
	w := &s.wake
	if s.o.Fault != nil {
		s.o.Fault()
	}

	s.followClock()
	s.rows.share(w.NowNs, w.PartitionsTaken)
	s.pause()
	s.readLoad(w.Reasons&WokeStop != 0)
	if s.tracksLocks() {
		s.sweep(s.found[:n])
	}
	s.showLive()
	s.accountTick(period, began)

	if w.Reasons&WokeReload != 0 {
		s.reload()
		s.pause() // now, not when the next answer comes
		s.showLive()
	}
	if w.Reasons&WokePoked != 0 {
		s.o.Sink.Poke()
	}
	s.ticket = max(s.ticket, w.FlushRequest)
	stop = w.Reasons&WokeStop != 0
	stopping := w.Reasons&WokeStopping != 0
	if stop {
		s.stopSeen = began
		s.watchTheEnd()
		s.endPause(w.Now)
	}
	if stop || stopping || w.Reasons&WokeFlush != 0 || w.NowNs >= s.nextFlush || len(s.load.seconds) >= maxSeconds {
		s.flush(stop || stopping || w.Reasons&WokeFlush != 0, stop)
	}
	if stopping {
		s.o.Sink.Close()
	}
	s.answer()
	s.tellSlot()
	s.speak()
	s.rest()
	if w.Reasons&(WokeNotify|WokeReload|WokeActivity) != 0 || w.NowNs >= s.nextTurn || stop {
		s.publish()
	}
	return stop, nil
}

// watchTheEnd learns how the last waits end, as far as that comes soon: a server
// that stops ends its sessions and this worker in one go. The locks are not
// looked at any more.
func (s *Sampler) watchTheEnd() {
	w := &s.wake
	until := w.NowNs + Monotonic(s.o.WatchOnStop)
	for (s.watchesWaits() || s.tracker.Undecided()) && w.NowNs < until {
		time.Sleep(lastLook)
		n, err := s.o.Probes.Wait(s.period(), w.NowNs, s.track(), s.known, s.found, w)
		if err != nil {
			return // nothing is lost but the end of some waits
		}
		w.Reasons |= WokeStop
		s.followClock()
		s.digest(s.found[:n])
	}
}

// followClock finds out whether the server's clock was set since the last answer.
func (s *Sampler) followClock() {
	w := &s.wake
	step := w.Now.Sub(s.clockAt) - time.Duration(w.NowNs-s.clockNs)
	first := s.clockNs == 0
	s.clockAt, s.clockNs, s.answerNs = w.Now, w.NowNs, s.clockNs
	if first || step.Abs() < clockStep {
		return
	}
	s.step += step
	if step >= clockGap {
		s.addGap(history.Gap{Began: w.Now.Add(-step), Ended: w.Now, Reason: history.GapClock,
			Detail: "the clock of the server was set forward"})
	}
}

// rest has memory given back once after each time of waits.
func (s *Sampler) rest() {
	switch {
	case len(s.known) > 0:
		s.lastWait, s.rested = s.wake.NowNs, false
	case !s.rested && s.wake.NowNs-s.lastWait >= Monotonic(restAfter):
		s.rested = true
		s.live.area.Rest()
		if s.o.Rest != nil {
			s.o.Rest()
		}
	}
}

// deadline is when Go has to run again even if nothing happens.
func (s *Sampler) deadline() Monotonic {
	d := s.nextTurn
	if s.pendingWork() && s.nextFlush < d {
		d = s.nextFlush
	}
	if s.tracksLocks() && (len(s.known) > 0 || s.walkOwed) && s.nextWalk < d {
		d = s.nextWalk
	}
	if s.live.owes() && s.live.next < d {
		d = s.live.next
	}
	if look := s.wake.NowNs + Monotonic(namesLook); len(s.live.seconds) > 0 && look < d {
		d = look
	}
	if s.tracksLocks() && len(s.known) > 0 && s.nextRow != 0 && s.nextRow < d {
		d = s.nextRow
	}
	if again := s.wake.NowNs + Monotonic(decideEvery); s.tracker.Undecided() && again < d {
		d = again
	}
	return d
}

// pendingWork reports whether the next flush will have something to hand over.
func (s *Sampler) pendingWork() bool {
	return s.mustBeat() || s.tracker.Pending() || s.tracker.Undecided() || len(s.gaps) > 0 || len(s.anomalies.news) > 0 || len(s.load.seconds) > 0 || s.load.meter.HasLengths()
}

// watchesWaits reports whether somebody waits, as far as we look: while
// sampling is off the heartbeat must not keep what was open alive.
func (s *Sampler) watchesWaits() bool { return len(s.known) > 0 && s.tracksLocks() }

// mustBeat reports whether something is open that the tables would take for
// dead without a heartbeat.
func (s *Sampler) mustBeat() bool {
	return s.watchesWaits() || s.period() > 0 && s.anomalies.isAlive(s.wake.Now)
}

func (s *Sampler) waitFailed(err error) error {
	s.errors++
	s.failed++
	s.o.Log.Add(report.Message{Level: report.Warning, Key: keyWait, Text: "could not sample: " + err.Error(), Hint: hintProbeHasFailed})
	s.speak()
	if s.failed >= maxFailedWaits {
		return fmt.Errorf("sampling failed %d times in a row: %w", s.failed, err)
	}
	return nil
}

// sweep digests who waits now, and walks the locks when that is due.
func (s *Sampler) sweep(found []snapshot.Wait) {
	if !s.digest(found) || len(s.known) == 0 {
		return
	}
	w := &s.wake
	if w.Reasons&WokeChanged != 0 {
		s.walkOwed = true
	}
	if s.walkOwed || w.NowNs >= s.nextWalk || w.Reasons&(WokeFlush|WokeStop) != 0 {
		s.walkLocks()
	}
	s.readRows()
}

// digest takes in who waits now, and how waits have failed. It returns false
// when there is nothing new.
func (s *Sampler) digest(found []snapshot.Wait) bool {
	w := &s.wake
	if w.GapEnded != 0 {
		s.addGap(history.Gap{Began: w.GapBegan, Ended: w.GapEnded, Reason: history.GapLate,
			Detail: "the worker did not get to run"})
		s.resumed = true
	}
	if w.Lost > 0 {
		s.errors++
	}
	changed := w.Reasons&WokeChanged != 0
	ticks := w.TicksDone
	s.readFailures()
	if !changed && len(found) == 0 && len(s.failures) == 0 && !s.tracker.Undecided() && !s.resumed {
		return false // a quiet turn
	}
	previous := w.Previous
	switch {
	case s.resumed && s.lookedNs != 0: // sweeps that go on for the load have not looked at waits
		previous = w.at(s.lookedNs)
		s.lookedNs = 0
	case previous == 0 && s.answerNs != 0: // another period begins
		previous = w.at(s.answerNs)
	case previous == 0:
		previous = w.Now
	}
	s.tracker.Sweep(episode.Sweep{At: w.Now, Previous: previous, Ticks: ticks, Found: found, Failed: s.failures, Resumed: s.resumed, Step: s.step})
	s.step = 0
	s.lost += s.tracker.TakeLost()
	s.resumed = false
	s.meetStrangers()

	s.known = s.known[:0]
	for i := range found {
		if found[i].Status == snapshot.Waiting {
			s.known = append(s.known, found[i])
		}
	}
	if len(s.known) == 0 {
		s.walkOwed = false
		s.root = 0
		s.cache.clear()
	}
	return true
}

// walkLocks copies the awaited locks and lets the analysis look at them.
func (s *Sampler) walkLocks() {
	w := &s.wake
	insist := s.busy >= insistAfter || w.Reasons&WokeStop != 0 // there is no later one
	err := s.o.Probes.Locks(s.known, insist, s.locks, s.holders, s.queue, &s.walk)
	s.health.walk(&s.walk)
	switch {
	case errors.Is(err, ErrBusy):
		s.busy++
		s.walkOwed = true
		s.nextWalk = w.NowNs + Monotonic(s.period())
		return
	case err != nil:
		s.errors++
		s.o.Log.Add(report.Message{Level: report.Warning, Key: keyLocks, Text: "could not read the awaited locks: " + err.Error(), Hint: hintProbeHasFailed})
		s.nextWalk = w.NowNs + Monotonic(walkEvery)
		return
	}
	s.busy = 0
	s.walkOwed = false
	every := walkEvery
	if len(s.known) > manyWaiters {
		every = walkEveryWhenMany
	}
	s.nextWalk = w.NowNs + Monotonic(every)

	s.graph = snapshot.Graph{
		TakenAt: s.walk.TakenAt,
		Apart:   s.walk.Apart,
		Cut:     s.walk.Overflow,
		Locks:   s.locks[:s.walk.Locks],
		Holders: s.holders[:s.walk.Holders],
		Queue:   s.queue[:s.walk.Queued],
	}
	g := s.builder.Build(&s.graph)
	s.readSessions(g)
	s.cache.setMembers(g.Groups)
	s.readStatements(g)
	s.tracker.Walk(g, s.cache.lookup)
	s.wantNames(g)
	s.root = s.rootOfMost(g)
	s.live.make(g, s)

	if s.walk.Overflow && len(s.holders) < maxHolders {
		s.holders = make([]snapshot.Holder, 2*len(s.holders)) // for the next walk
	}
}

// rootOfMost returns the pid of the root blocker of most waiters, of several the
// one in the lowest slot; 0 for none, or a prepared transaction.
func (s *Sampler) rootOfMost(g *waitgraph.Graph) int32 {
	clear(s.behind)
	for i := range g.Waiters {
		for _, group := range g.Waiters[i].Roots {
			s.behind[group]++
		}
	}
	most := int32(-1)
	for group, n := range s.behind {
		if most < 0 || n > s.behind[most] || n == s.behind[most] && g.Groups[group].Slot < g.Groups[most].Slot {
			most = group
		}
	}
	if most < 0 {
		return 0
	}
	return g.Groups[most].Pid
}

// readFailures fetches what sessions have left behind of failed waits, after
// the sweep at hand.
func (s *Sampler) readFailures() {
	clear(s.failures) // lets go of texts
	s.failures = s.failures[:0]
	if s.wake.Reasons&(WokeChanged|WokeFailed|WokeFlush|WokeStop) == 0 && !s.tracker.Undecided() && !s.resumed {
		return
	}
	var err error
	if s.failures, err = s.o.Probes.Failures(s.failures); err != nil {
		s.errors++
		s.o.Log.Add(report.Message{Level: report.Warning, Key: keyFailures, Text: "could not read how waits failed: " + err.Error(), Hint: hintProbeHasFailed})
	}
}

// meetStrangers has the members of new deadlocks described whom no walk has seen.
func (s *Sampler) meetStrangers() {
	s.wanted = s.tracker.Strangers(s.wanted[:0])
	if len(s.wanted) > 0 {
		s.askSessions()
	}
	s.tracker.Introduce(func(slot, pid int32) *snapshot.Session {
		found := s.cache.lookup(slot, pid)
		if found == nil && slot < 0 {
			found = s.cache.lookupPid(pid)
		}
		if found != nil {
			s.o.Sink.WantSession(found)
		}
		return found
	})
}

func (s *Sampler) readSessions(g *waitgraph.Graph) {
	s.wanted = s.tracker.Wanted(g, s.wanted[:0])
	if len(s.wanted) > 0 {
		s.askSessions()
	}
}

// askSessions reads the sessions wanted into the cache.
func (s *Sampler) askSessions() {
	textEach := s.o.Config.QueryLength
	at := s.wake.Now
	err := s.o.Probes.Sessions(s.wanted, textEach, func(_ int, raw *RawSession) {
		s.cache.update(raw, at)
	})
	if err != nil {
		s.errors++
		s.o.Log.Add(report.Message{Level: report.Warning, Key: keySessions, Text: "could not read session details: " + err.Error(), Hint: hintProbeHasFailed})
	}
}

// wantNames has the names of what was just seen looked up while they exist.
func (s *Sampler) wantNames(g *waitgraph.Graph) {
	for i := range g.Locks {
		l := &g.Locks[i]
		s.o.Sink.WantTag(lockmgr.Tag{Field1: l.Field1, Field2: l.Field2, Field3: l.Field3, Field4: l.Field4,
			Type: lockmgr.Type(l.Type), Method: l.Method})
	}
	for _, r := range s.wanted {
		if session := s.cache.lookup(r.Slot, r.Pid); session != nil {
			s.o.Sink.WantSession(session)
		}
	}
	for i := range g.Groups {
		if p := &g.Groups[i]; p.IsPrepared {
			s.o.Sink.WantSession(&snapshot.Session{Slot: p.Slot, Prepared: p.Xid, Database: p.Database, Role: p.Role})
		}
	}
}

// accountTick adds the last sweep, with all that followed from it, to health.
func (s *Sampler) accountTick(period time.Duration, began time.Time) {
	w := &s.wake
	s.health.roll(w.Now, s.counters())
	if period == 0 {
		return
	}
	s.health.ticks(w, period)
	s.health.probes.Add(w.LastSweep + time.Since(began))
}

func (s *Sampler) counters() counters {
	st := s.o.Sink.Status()
	var ru syscall.Rusage
	var cpu time.Duration
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) == nil {
		cpu = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	}
	return counters{cpu: cpu, rowsWritten: st.RowsWritten, rowsMerged: s.merged,
		rowsDropped: st.RowsDropped + s.lost, errors: s.errors + st.Errors}
}

func (s *Sampler) addGap(g history.Gap) {
	if len(s.gaps) >= maxPendingGaps {
		// The newest swallows the last one: no time without samples is lost.
		last := &s.gaps[len(s.gaps)-1]
		last.Ended = g.Ended
		return
	}
	s.gaps = append(s.gaps, g)
}

// flush hands over what became known; asked means that somebody waits for it,
// final that it is the last time.
func (s *Sampler) flush(asked, final bool) {
	w := &s.wake
	s.nextFlush = w.NowNs + Monotonic(s.o.Config.FlushPeriod)

	if asked { // somebody waits for all there is
		s.tracker.Decide(w.Now)
		s.showLive()
	}
	s.completeTo = s.tracker.Complete(w.Now)
	s.live.closed = 0
	rewrite := s.o.Sink.RewriteOpen()
	if rewrite {
		s.texts.forget()
	}
	if s.rewriteFrom != 0 && s.completeTo > s.rewriteFrom { // the tables take them for lost in the pause
		rewrite, s.rewriteFrom = true, 0
	}
	lookedAt, openAsOf := w.Now, snapshot.Micros(0)
	if s.lookedNs != 0 {
		lookedAt = w.at(s.lookedNs)
		openAsOf = lookedAt
	}
	d := s.tracker.Drain(lookedAt, episode.DrainOptions{RewriteOpen: rewrite, Final: final})
	unusual := s.drainAnomalies(w.Now, rewrite)
	s.merged += d.Merged
	for i := range d.Conflicts {
		s.o.Sink.WantSession(d.Conflicts[i].Session)
	}
	if asked {
		s.health.close(w.Now, s.counters())
		s.closeMinute(w.Now, true)
	}
	lengths := s.load.meter.TakeLengths(asked || final)
	s.tellPause(w.Now, asked, len(d.Closed) > 0 || len(s.load.seconds) > 0)
	busy := asked || len(lengths) > 0 || len(d.Closed) > 0 || len(d.Open) > 0 || len(d.Short) > 0 || len(d.Deadlocks) > 0 || len(d.Conflicts) > 0 || len(unusual) > 0 || len(s.gaps) > 0 || len(s.load.seconds) > 0 || len(s.fastPath.hungry) > 0 || len(s.texts.found) > 0 || s.mustBeat()
	var health []history.Health
	if s.health.due(w.Now, busy) {
		health = s.health.take()
		busy = true
	}
	detector := s.detectorState(w.Now, busy, final)
	busy = busy || detector != nil
	if !busy && w.Now.Sub(s.lastPush) < min(idlePush, s.o.Config.Retention/pushesInRetention) && w.Now >= s.lastPush {
		return
	}
	s.number++
	s.lastPush = w.Now
	s.o.Sink.Push(&history.Batch{
		Number:     s.number,
		CompleteTo: s.completeTo,
		Waiting:    s.mustBeat(),
		OldestOpen: s.tracker.OldestOpen(w.Now),
		Closed:     d.Closed,
		Open:       d.Open,
		OpenAsOf:   openAsOf,
		Short:      d.Short,
		Deadlocks:  d.Deadlocks,
		Conflicts:  d.Conflicts,
		Seconds:    s.load.seconds,
		Hungry:     s.fastPath.hungry,
		Anomalies:  unusual,
		Detector:   detector,
		Lengths:    lengths,
		Texts:      s.texts.found,
		Gaps:       s.gaps,
		Health:     health,
		Ticket:     s.ticket,
	})
	s.gaps, s.load.seconds, s.fastPath.hungry, s.texts.found = nil, nil, nil, nil
}

// answer tells sessions in flush() that their facts can be read.
func (s *Sampler) answer() {
	if done := s.o.Sink.Status().Ticket; done > s.answered {
		if s.o.Probes.Flushed(done) == nil {
			s.answered = done
		}
	}
}

// tellSlot answers the store, which cannot look into the server itself.
func (s *Sampler) tellSlot() {
	if !s.o.Sink.AskedForSlot() {
		return
	}
	spare, err := s.o.Probes.SpareSlot()
	if err != nil {
		s.errors++
		return // unanswered, the store gives up and asks again
	}
	s.o.Sink.TellSlot(spare)
}

// speak passes messages on to the server log.
func (s *Sampler) speak() {
	for _, m := range s.o.Log.Take() {
		if err := s.o.Probes.Log(m); err != nil {
			s.errors++ // there is no other place to say it
		}
	}
}

// publish shows the state to sessions.
func (s *Sampler) publish() {
	w := &s.wake
	s.nextTurn = w.NowNs + Monotonic(idleTurn)
	if s.tracksLoad() {
		s.nextTurn += Monotonic(loadTurn) // its rows wake us once a second anyway
	}
	sink := s.o.Sink.Status()
	st := &s.draft
	*st = Status{
		Node:        s.o.Config.NodeName,
		Target:      sink.Target,
		State:       sink.State,
		LastFlush:   sink.LastFlush,
		LastError:   sink.LastError,
		LastErrorAt: sink.LastErrorAt,
		Hint:        sink.Hint,
		Errors:      uint64(s.errors + sink.Errors),
		RowsWritten: uint64(sink.RowsWritten),
		RowsMerged:  uint64(s.merged),
		RowsDropped: uint64(sink.RowsDropped + sink.Dropping + s.lost),
		QueueBytes:  uint64(s.o.Sink.Queued()),
	}
	if st.LastError == "" {
		st.LastErrorAt = 0
	}
	if sink.State == stateRecording {
		if s.recordingSince == 0 {
			s.recordingSince = w.Now
		}
		if s.o.Sink.Queued() == 0 {
			st.LastFlush = max(st.LastFlush, s.completeTo) // nothing there to be written
		}
		if !s.tracksLocks() {
			st.State, st.Hint = stateDisabled, hintDisabled
		}
	} else {
		s.recordingSince = 0
	}
	st.RecordingSince = s.recordingSince
	if s.publishedOnce && *st == s.published {
		return
	}
	if err := s.o.Probes.Publish(st); err != nil {
		s.nextTurn = w.NowNs + Monotonic(publishRetry)
		return
	}
	s.published, s.publishedOnce = *st, true
}

// StopSeen returns when the worker was asked to stop, as far as it was. For use
// after Run.
func (s *Sampler) StopSeen() time.Time { return s.stopSeen }

// Complete returns up to when everything known has been pushed to the sink, 0
// when nothing ever was. For use after Run.
func (s *Sampler) Complete() snapshot.Micros { return s.completeTo }

// reload takes over new settings; those that cannot be read leave the old ones.
func (s *Sampler) reload() {
	raw, err := s.o.Probes.Settings()
	if err == nil {
		var c config.Config
		if c, err = config.Parse(raw); err == nil {
			// By name only: a value may hold a password.
			if changed := c.Changed(&s.o.Config); len(changed) > 0 {
				s.o.Log.Add(report.Message{Level: report.Debug, Text: "new values are in use: " + strings.Join(changed, ", ")})
			}
			s.o.Config = c
			s.tracker.Configure(trackerConfig(c))
			s.o.Sink.Configure(c)
			s.live.area.Configure(liveSettings(c))
			s.anomalies.detector.Configure(detectorConfig(c))
			s.o.Log.Over(keySettings)
			s.nextFlush = min(s.nextFlush, s.wake.NowNs+Monotonic(c.FlushPeriod)) // not only after the old period
			return
		}
	}
	s.errors++
	s.o.Log.Add(report.Message{Level: report.Warning, Key: keySettings, Text: "the new settings could not be read, the old ones stay: " + err.Error()})
}
