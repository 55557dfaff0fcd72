package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/queue"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/ring"
	"pg_lock_history/gosrc/snapshot"
)

const (
	// groupBytes bounds what goes into one transaction. More makes catching up
	// cheaper, and a transaction that fails costlier.
	groupBytes = 4 << 20

	// After a failure the writer tries again, soon at first.
	backoffFirst = 100 * time.Millisecond
	backoffLast  = 5 * time.Second
	// The server logs each time that it does not let somebody in. A reload, or
	// CREATE EXTENSION, has it tried at once.
	backoffRefused = 30 * time.Second

	// extensionPoll is how often an absent extension is looked for; CREATE
	// EXTENSION on this server pokes us, so this is for histories elsewhere.
	extensionPoll = 30 * time.Second

	// After a poke the extension is looked for several times in short order:
	// the session that created it may not be quite through its commit.
	pokedTries = 5
	pokedPause = 200 * time.Millisecond

	// heartbeatIdle is how often an idle node says that it lives: seldom at
	// home, where the checkpoints of an idle server are to stay idle; more often
	// in a history elsewhere, where nothing else tells that the node is there: each
	// time that an idle sampler comes by, which is every minute.
	heartbeatIdle = 15 * time.Minute
	heartbeatAway = 55 * time.Second

	// stuckAfter is past every timeout that the server keeps for us.
	stuckAfter = 40 * time.Second
	keyStuck   = "store: stuck"

	// maxRefusals is how often rows are offered that the server says are wrong,
	// rather than that it cannot write now.
	maxRefusals = 3

	// What is left to write may hold up the end of the worker, and a smart
	// shutdown, for so long. That one has waited already until it was seen
	// (LOOK_AROUND_NS in the shim); what is not written goes to the spill file.
	endGrace  = 300 * time.Millisecond
	stopGrace = 200 * time.Millisecond
)

// Options are what a Store works with. The callbacks are called on goroutines
// of the store and must not block.
type Options struct {
	Config  config.Config
	Queue   *queue.Queue
	Log     *report.Log         // messages for the server log; tells each condition once
	Flushed func(ticket uint64) // what flush() asked for under this ticket can be read
	Wake    func()              // Status tells something new; numbers alone are not worth it
	// MayDial asks whether this server has a client slot to spare; the answer
	// comes on the channel. Asked by one goroutine at a time. nil: always.
	MayDial func() <-chan bool

	// Earlier are lives of the worker, oldest first, about which the tables may
	// know less: batches of theirs are in the queue, or none of them could
	// write. Restored is called once, when nothing of theirs is left to write.
	Earlier  []history.Run
	Restored func()
}

// Status is what status() shows of the store. It never changes once published.
type Status struct {
	State          string
	Target         string          // where history is written: host, port, database, user; empty when not connected
	LastFlush      snapshot.Micros // the history is complete up to then
	LastError      string          // empty since the last success
	LastErrorAt    snapshot.Micros
	Hint           string
	RowsWritten    uint64
	RowsDropped    uint64 // beside those that the queue has not told yet
	NoticesDropped uint64 // notifications that did not go through
	Errors         uint64
	RingSegment    int // the one that is written to, -1 when not known
	RingFill       float64
}

// Store writes history. Its exported methods may be called from anywhere.
type Store struct {
	queue   *queue.Queue
	log     *report.Log
	flushed func(uint64)
	wake    func()
	names   *Names
	door    *door

	earlier  []history.Run // the writer's, until its first session
	restored func()

	config      atomic.Pointer[config.Config]
	status      atomic.Pointer[Status]
	rewriteOpen atomic.Bool
	detector    atomic.Pointer[[]byte] // what DetectorState returns
	stuckAfter  time.Duration          // shorter in tests; written before Run, as now
	now         func() time.Time       // another clock in tests

	configured chan struct{} // capacity 1, as poked
	poked      chan struct{}
	stopOnce   sync.Once
	stopping   chan struct{}   // closed by Stopping
	stopped    chan struct{}   // closed when all connections are
	giveUp     chan struct{}   // closed by Leave: the time to write is over
	back       chan handedBack // capacity 1: what the writer leaves
}

// New returns a store that does nothing until Run.
func New(o Options) *Store {
	s := &Store{
		queue: o.Queue, log: o.Log, flushed: o.Flushed, wake: o.Wake, stuckAfter: stuckAfter, now: time.Now,
		earlier: o.Earlier, restored: o.Restored,
		configured: make(chan struct{}, 1),
		poked:      make(chan struct{}, 1),
		stopping:   make(chan struct{}),
		stopped:    make(chan struct{}),
		giveUp:     make(chan struct{}),
		back:       make(chan handedBack, 1),
	}
	s.config.Store(&o.Config)
	s.status.Store(&Status{State: StateStarting, RingSegment: -1})
	s.door = newDoor(o.MayDial, s.stopping)
	s.names = newNames(s.config.Load, o.Log)
	s.names.door = s.door
	return s
}

// Configure takes effect at the next flush, at once when it says another place
// to write to.
func (s *Store) Configure(c config.Config) {
	s.config.Store(&c)
	signal(s.configured)
}

// Poke says that CREATE EXTENSION has committed.
func (s *Store) Poke() { signal(s.poked) }

// Stopping says that the server waits for its sessions to end: what is queued
// is written, within bounds, and all connections are closed for good. The
// channel it returns is closed when they are.
func (s *Store) Stopping() <-chan struct{} {
	s.stopOnce.Do(func() { close(s.stopping) })
	return s.stopped
}

// Status returns the latest state of affairs.
func (s *Store) Status() Status { return *s.status.Load() }

// RewriteOpen reports, once, that all waits that are open have to be handed
// out again: the tables do not hold them, or will not for long.
// IsOurs reports whether a process of this server is a session of ours.
func (s *Store) IsOurs(pid int32) bool { return s.door.isOurs(uint32(pid)) }

// Ours appends the pids of our sessions to pids.
func (s *Store) Ours(pids []int32) []int32 { return s.door.ours(pids) }

func (s *Store) RewriteOpen() bool { return s.rewriteOpen.Swap(false) }

// Names returns the look-up of names.
func (s *Store) Names() *Names { return s.names }

// Run writes until ctx is done, and then what it can within endGrace. Both
// goroutines of the store have ended when it returns.
func (s *Store) Run(ctx context.Context) {
	// work outlives ctx and the call of Stopping for as long as the grace says.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(endGrace, cancel) })()
	watched := make(chan struct{})
	defer close(watched)
	go func() { // ends with Run or after both signals
		select {
		case <-s.stopping:
			time.AfterFunc(stopGrace, cancel)
		case <-watched:
			return
		}
		select {
		case <-s.giveUp:
			cancel()
		case <-watched:
		}
	}()

	namesDone := make(chan struct{})
	go func() { // ends when ctx is done or the server stops
		defer close(namesDone)
		s.names.run(ctx, s.stopping)
	}()

	w := newWriter(s)
	w.loop(ctx, work)
	<-namesDone
	select {
	case <-s.stopping:
		close(s.stopped)
		<-ctx.Done()
	default:
	}
}

// writer is the state of the writing goroutine, touched by it alone.
type writer struct {
	*Store
	cfg     *config.Config
	target  target
	session *session    // nil while not connected
	segment segmentSeen // as the session before has left it
	hand    *hand       // taken from the queue, not yet committed
	gaps    []history.Gap
	held    *history.Gap // being dropped for want of an empty segment
	ticket  uint64       // highest flush() ticket not yet answered
	known   bool         // once connected, the tables are there as far as we know
	absent  bool         // the extension is
	away    bool         // facts may have gone elsewhere, or nowhere, since these tables were last written to
	fetched bool         // the detector's state has been read
	cut     bool         // the last session was ended from the other side, and nothing was written since
	entered bool         // the runs up to ours are in the tables
	settled bool         // nothing of earlier lives is left, and that was said
	ending  bool         // the last things are being written
	tries   int          // quick looks for it that are left after a poke

	number    int64     // highest of this life that was let go of
	late      []nameKey // names that rows in the tables lack
	lateUntil time.Time // given up then

	// Facts of this life from then to then were dropped since the last
	// transaction; 0 for none. Ends of waits may be among them.
	lossFrom, lossTo snapshot.Micros

	lastComplete  snapshot.Micros           // CompleteTo of the last batch let go of
	complete      map[place]snapshot.Micros // up to when this life's history is complete there
	lastHeartbeat snapshot.Micros
	backoff       time.Duration
	retryAt       time.Time       // nothing is tried before
	moreAt        time.Time       // when rolling up goes on, zero: with the next batch
	reported      map[string]bool // conditions that last, by key
	st            Status
}

// hand is a group of batches on its way into one transaction. It is never
// regrouped, so its highest number says whether all of it is in.
type hand struct {
	run      int64 // of an earlier life, 0: ours; a hand is of one run
	known    int64 // of an earlier life: up to this number its batches are in the tables
	items    []queue.Item
	gaps     []history.Gap // of our own making
	number   int64
	complete snapshot.Micros
	oldest   snapshot.Micros // as Batch.OldestOpen
	lossFrom snapshot.Micros // as in writer
	lossTo   snapshot.Micros
	from     snapshot.Micros
	bytes    int64
	rows     int64
	named    bool // names have been asked for
	refused  int  // times that the server found fault with the rows themselves
	dropped  bool // counted as dropped: the ring is held
}

func newWriter(s *Store) *writer {
	w := &writer{Store: s, cfg: s.config.Load(), reported: make(map[string]bool),
		complete: make(map[place]snapshot.Micros), segment: segmentSeen{seg: -1}, st: Status{State: StateStarting, RingSegment: -1}}
	w.target = writerTarget(w.cfg)
	return w
}

func (w *writer) loop(ctx, work context.Context) {
	timer := time.NewTimer(0) // connect at once: it tells early what is wrong
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			w.leave(work)
			return
		case <-w.stopping:
			w.leave(work)
			return
		case <-w.configured:
			w.reconfigure()
		case <-w.poked:
			w.retryAt = time.Time{}
			w.tries = pokedTries
			w.guard(func() { w.recheck(work) })
		case <-w.queue.Ready():
		case <-timer.C:
		}
		w.guard(func() { w.step(work) })
		w.guard(w.settle)
		w.publish()
		if w.session == nil {
			timer.Reset(max(0, time.Until(w.retryAt)))
		} else if w.hand != nil || w.queue.Len() > 0 {
			timer.Reset(max(time.Millisecond, time.Until(w.retryAt)))
		} else if !w.moreAt.IsZero() {
			timer.Reset(max(time.Millisecond, time.Until(w.moreAt)))
			w.moreAt = time.Time{}
		}
	}
}

// guard contains a panic: the batch in hand may be its cause and is let go.
func (w *writer) guard(f func()) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		w.disconnect()
		w.st.Errors++
		w.log.Add(report.Message{Level: report.Warning, Key: "panic", Text: fmt.Sprintf("internal error while writing history: %v", p),
			Detail: cut(string(debug.Stack()), 2000), Hint: "Please report this. Writing goes on."})
		if w.hand != nil {
			w.drop(w.hand, history.GapWriterBlocked, "an internal error, see the server log")
		}
		w.delay()
	}()
	f()
}

// step does what can be done now.
func (w *writer) step(ctx context.Context) {
	if time.Now().Before(w.retryAt) {
		if w.absent {
			w.letGo()
		}
		return
	}
	if w.session == nil {
		if err := w.watched(func() error { return w.open(ctx) }); err != nil {
			w.fail(err, actionConnect)
			return
		}
	}
	w.lateNames()
	for w.hand != nil || w.queue.Len() > 0 {
		if w.hand == nil {
			w.take()
		}
		if w.hand == nil {
			return
		}
		if err := w.watched(func() error { return w.write(ctx) }); err != nil {
			w.fail(err, "write")
			return
		}
		w.publish()
	}
	w.rollUp(ctx)
}

// watched says so when what is tried goes on for longer than the server's own
// timeouts allow, as on a disk that does not answer: then nobody else can. The
// session is waited for all the same; to leave it would free nothing in the
// server, and a new one would be stuck, too.
func (w *writer) watched(try func() error) error {
	told := make(chan struct{})
	timer := time.AfterFunc(w.stuckAfter, func() {
		defer close(told)
		m := report.Message{Level: report.Warning, Key: keyStuck,
			Text: fmt.Sprintf("the server has not answered the writer for %s, its disk may be stalled", w.stuckAfter),
			Hint: "See what the session \"" + writerName + "\" is doing. " + kept}
		w.log.Add(m)
		// The writer cannot: it waits. When it comes back, what it publishes stands.
		old := w.status.Load()
		st := *old
		st.State, st.LastError, st.LastErrorAt, st.Hint = StateWriting, m.Text, snapshot.FromTime(time.Now()), m.Hint
		st.Errors++
		if w.status.CompareAndSwap(old, &st) {
			w.wake()
		}
	})
	defer func() {
		if !timer.Stop() {
			<-told
			w.reported[keyStuck] = true // until the next success
			w.st.Errors++
		}
	}()
	return try()
}

// recheck looks whether the extension is still the one we know.
func (w *writer) recheck(ctx context.Context) {
	if w.session == nil {
		return
	}
	ext, err := findExtension(ctx, w.session.conn)
	if err != nil || ext.oid != w.session.ext.oid {
		w.disconnect() // open finds out
	}
}

// open makes a session and learns all about the tables.
func (w *writer) open(ctx context.Context) error {
	sess, err := openSession(ctx, w.door, w.target, w.cfg, w.earlier, w.now)
	if err != nil {
		return err
	}
	w.session = sess
	if err := w.fetchDetector(ctx, sess); err != nil {
		w.disconnect()
		return err
	}
	w.st.Target = sess.target()
	w.meetOthers(w.segment, sess) // in between
	for _, g := range sess.owed {
		w.addGap(g)
	}
	w.comeBack(sess)
	w.lastHeartbeat = max(w.lastHeartbeat, sess.heartbeat)
	if sess.fresh || w.absent || !w.known {
		w.rewriteOpen.Store(true)
	}
	if !w.known {
		w.log.Add(report.Message{Level: report.Info, Text: "lock history is written to " + w.st.Target})
	}
	w.absent, w.known, w.entered = false, true, true
	w.earlier = nil // tables made later begin with us
	if w.hand != nil && w.hand.run == 0 && w.hand.number <= sess.batch {
		w.done() // the commit whose answer was lost had gone through
	}
	w.succeeded()
	return nil
}

// maxPlaces bounds the places remembered. Beyond it all are forgotten, and the
// heartbeat says up to when the history is complete, which may be too early.
const maxPlaces = 64

// comeBack finds out what these tables lack: the time since they were complete,
// when facts have gone elsewhere since. The gap is the session's until it is
// written; without that the next session finds it again.
func (w *writer) comeBack(s *session) {
	known, ok := w.complete[s.place]
	switch {
	case s.fresh:
		w.completeTo(s, max(w.lastComplete, s.heartbeat)) // begins here
		return
	case !ok && !w.away:
		return // written to by this life before, and by nothing else since
	}
	// A commit whose answer was lost may have raised the heartbeat beyond what we know.
	if known = max(known, s.heartbeat); w.lastComplete > known {
		s.missed = &history.Gap{Began: known, Ended: w.lastComplete, Reason: history.GapElsewhere,
			Detail: "history was written elsewhere, or there were no tables"}
	}
}

// completeTo notes up to when the history is complete where s leads to.
func (w *writer) completeTo(s *session, to snapshot.Micros) {
	if len(w.complete) >= maxPlaces {
		clear(w.complete)
	}
	w.complete[s.place] = to
}

func (w *writer) disconnect() {
	if w.session != nil {
		w.segment = w.session.seen()
		hangUp(w.session.conn)
		w.session, w.st.Target = nil, ""
	}
}

// fail decides what becomes of err.
func (w *writer) fail(err error, action string) {
	tried := &attempt{database: w.cfg.Database}
	if !errors.As(err, &tried) && w.session != nil {
		c := w.session.conn.Config()
		tried = &attempt{err: err, database: c.Database, user: c.User, server: serversOf(w.session.conn)}
		err = tried
	}
	switch {
	case errors.Is(err, errNoExtension):
		database := tried.database + tried.at()
		w.disconnect()
		if !w.absent {
			w.allOver() // of this kind there is news, and what was reported before is not so any more
			w.log.Add(report.Message{Level: report.Info, Text: "waiting for CREATE EXTENSION pg_lock_history in database " + database})
		}
		w.absent, w.known, w.away = true, false, true
		w.st.State = StateWaiting
		w.st.LastError = ""
		w.st.Hint = "Run CREATE EXTENSION pg_lock_history in database " + database + "."
		w.letGo()
		w.retryAt = time.Now().Add(extensionPoll)
		if w.tries > 0 {
			w.tries--
			w.retryAt = time.Now().Add(pokedPause)
		}
		return
	case errors.Is(err, errMoved):
		// Nor is this; the session is as good as before.
		w.delay()
		return
	case errors.Is(err, errRecreated), errors.Is(err, errChanged), isGone(err):
		// Not an error of anybody: start anew and see what is there.
		w.disconnect()
		w.delay()
		return
	}
	if errors.Is(err, context.Canceled) || w.ends() && serverEnds(err) {
		w.disconnect() // a shutdown does not wait for us, and need not hear of it
		return
	}
	if w.session != nil && serverEnds(err) && !w.cut {
		// By somebody's hand, with a DROP DATABASE, or by a stop of the server that
		// we have not heard of yet: what there is to tell, the next try will tell.
		w.cut = true
		w.st.Errors++
		w.disconnect()
		w.delay()
		return
	}
	// After an error of one statement the session is good, after any other
	// it may not be.
	if w.session != nil && (sqlState(err) == "" || w.session.conn.IsClosed()) {
		w.disconnect()
	}
	f := explain(err, action, &w.target, w.cfg)
	w.st.State, w.st.Hint = f.state, f.msg.Hint
	w.st.LastError = f.msg.Text
	if f.msg.Detail != "" {
		w.st.LastError = cut(f.msg.Text+": "+f.msg.Detail, maxDetailBytes)
	}
	w.st.LastErrorAt = snapshot.FromTime(time.Now())
	w.st.Errors++
	w.reported[f.msg.Key] = true
	w.log.Add(f.msg)
	if w.hand != nil && isRefusal(err) {
		// These rows will never be taken; what follows must not wait for them.
		w.hand.refused++
		if w.hand.refused >= maxRefusals {
			w.drop(w.hand, history.GapWriterBlocked, "the server refused the rows, see the server log")
		}
	}
	if isNotLetIn(err) {
		w.delayUpTo(backoffRefused)
	} else {
		w.delayUpTo(backoffLast)
	}
}

func (w *writer) delay() { w.delayUpTo(backoffLast) }

func (w *writer) delayUpTo(last time.Duration) {
	w.backoff = min(max(2*w.backoff, backoffFirst), last)
	w.retryAt = time.Now().Add(w.backoff)
}

func (w *writer) succeeded() {
	w.backoff, w.retryAt, w.tries = 0, time.Time{}, 0
	w.allOver()
	w.st.State, w.st.LastError, w.st.Hint = StateRecording, "", ""
	if w.held != nil {
		w.st.State = StateHeld
		w.st.Hint = "A session keeps the oldest part of the history from being emptied; end it, or raise pg_lock_history.max_size."
	}
}

// allOver ends all conditions that were reported.
func (w *writer) allOver() {
	for key := range w.reported {
		w.log.Over(key)
	}
	clear(w.reported)
}

// take gets the next group from the queue, and a gap for what it dropped.
func (w *writer) take() {
	items, lost := w.queue.Take(groupBytes)
	w.ticket = max(w.ticket, lost.Ticket)
	if lost.Rows > 0 {
		w.st.RowsDropped += uint64(lost.Rows)
		w.addGap(lostGap(lost))
		w.rewriteOpen.Store(true) // waits that were to be written as open are among them
		w.lose(lost.Began, lost.Ended)
		w.publish() // the queue does not count them any more
	}
	if len(items) == 0 {
		return
	}
	h := &hand{run: items[0].Batch.Run, items: items, from: items[0].From}
	if h.run == 0 {
		h.gaps, w.gaps = w.gaps, nil // what we have to tell is of this life
	}
	for i := range items {
		b := items[i].Batch
		h.number = max(h.number, b.Number)
		h.complete, h.oldest = b.CompleteTo, b.OldestOpen
		h.bytes += items[i].Bytes
		h.rows += int64(b.Rows())
		w.ticket = max(w.ticket, b.Ticket)
		for j := range b.Gaps {
			if g := &b.Gaps[j]; g.Reason == history.GapDisabled && g.Part != history.PartLoad {
				w.loseOf(h, g.Began, g.Ended)
			}
		}
	}
	w.hand = h
}

// loseOf notes that waits were not watched at that time: of a life before, in the
// hand that tells of it.
func (w *writer) loseOf(h *hand, from, to snapshot.Micros) {
	if h.run == 0 {
		w.lose(from, to)
		return
	}
	if h.lossFrom == 0 || from < h.lossFrom {
		h.lossFrom = max(from, 1)
	}
	h.lossTo = max(h.lossTo, to)
}

// lose notes that the ends of waits that the tables have as open may be unknown
// from now on; those that go on are written again (rewriteOpen).
func (w *writer) lose(from, to snapshot.Micros) {
	if w.lossFrom == 0 || from < w.lossFrom {
		w.lossFrom = max(from, 1)
	}
	w.lossTo = max(w.lossTo, to)
}

// maxGaps bounds the gaps kept while nothing can be written; then the last
// one is drawn out.
const maxGaps = 64

func (w *writer) addGap(g history.Gap) {
	if n := len(w.gaps); n >= maxGaps {
		last := &w.gaps[n-1]
		last.Ended = max(last.Ended, g.Ended)
		last.Lost += g.Lost
		return
	}
	w.gaps = append(w.gaps, g)
}

// done lets go of the hand: all of it is in the tables, or needs not be.
func (w *writer) done() {
	h := w.hand
	w.hand, w.cut = nil, false
	w.queue.Release(h.items)
	w.note(h)
	w.lastComplete = h.complete
	w.st.LastFlush = h.complete
	if h.run == 0 {
		w.completeTo(w.session, h.complete)
		w.away = false
	}
	if ticket := w.ticket; ticket != 0 {
		w.ticket = 0
		w.flushed(ticket)
	}
}

// note keeps the number of a hand of this life that is let go of.
func (w *writer) note(h *hand) {
	if h.run == 0 {
		w.number = max(w.number, h.number)
	}
}

// drop lets go of the hand unwritten.
func (w *writer) drop(h *hand, reason history.GapReason, why string) {
	w.hand = nil
	w.queue.Release(h.items)
	w.note(h)
	for i := range h.gaps {
		w.addGap(h.gaps[i])
	}
	w.st.RowsDropped += uint64(h.rows)
	w.addGap(history.Gap{Began: h.from, Ended: h.complete, Reason: reason, Lost: h.rows, Detail: why})
	w.rewriteOpen.Store(true)
	if h.run == 0 {
		w.lose(h.from, h.complete)
	}
}

// letGo empties the queue while there are no tables: nobody asked for history
// yet, so nothing is lost. That goes for facts of earlier lives, too: whoever
// dropped the extension has thrown away the history they belong to, and tables
// made later must not begin with facts from before. Tickets stay to be answered.
func (w *writer) letGo() {
	if w.hand != nil {
		w.queue.Release(w.hand.items)
		w.lastComplete = max(w.lastComplete, w.hand.complete)
		w.hand = nil
	}
	for {
		items, lost := w.queue.Take(groupBytes)
		w.ticket = max(w.ticket, lost.Ticket)
		if len(items) == 0 {
			break
		}
		for i := range items {
			w.ticket = max(w.ticket, items[i].Batch.Ticket)
			w.lastComplete = max(w.lastComplete, items[i].Batch.CompleteTo)
		}
		w.queue.Release(items)
	}
	w.gaps, w.earlier = nil, nil
	if w.held != nil {
		w.held = nil
		w.log.Over(keyHeld)
	}
}

// reconfigure takes the latest settings, and another session where they say so.
func (w *writer) reconfigure() {
	old, leads := w.cfg, destination(w.cfg)
	w.cfg = w.config.Load()
	w.target = writerTarget(w.cfg)
	if old.Database != w.cfg.Database || old.ConnInfo != w.cfg.ConnInfo || old.NodeName != w.cfg.NodeName ||
		old.Server.BootstrapRole != w.cfg.Server.BootstrapRole {
		w.disconnect()
		if now := destination(w.cfg); now != leads || now == "" {
			w.absent, w.known, w.away = false, false, true
		}
	}
	// What failed with the old settings deserves a new try and a new message.
	w.allOver()
	w.backoff, w.retryAt = 0, time.Time{}
}

// finish writes what there is and says up to when the history is complete. It
// connects to nothing.
func (w *writer) finish(ctx context.Context) {
	w.ending = true
	if w.session == nil {
		return
	}
	w.retryAt = time.Time{}
	w.step(ctx)
	if w.session == nil || w.hand != nil {
		return
	}
	if w.held != nil || len(w.gaps) > 0 || w.session.missed != nil || w.lastComplete > w.lastHeartbeat {
		w.hand = &hand{gaps: w.gaps, number: w.session.batch, complete: max(w.lastComplete, w.lastHeartbeat), from: w.lastComplete}
		w.gaps = nil
		if w.held != nil {
			w.hand.gaps = append(w.hand.gaps, *w.held)
			w.held = nil
		}
		if err := w.write(ctx); err != nil {
			w.fail(err, "write the last heartbeat")
		}
	}
}

// ends reports whether the last things are being written, or should be.
func (w *writer) ends() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return w.ending
	}
}

// publish makes the state visible to others.
func (w *writer) publish() {
	if w.session != nil {
		w.st.RingSegment = ring.Current(&w.session.rows)
		w.st.RingFill = ring.Fill(&w.session.rows, w.lastComplete, w.session.size().Current, ringSettings(w.cfg))
	}
	st, old := w.st, w.status.Load()
	if st == *old {
		return
	}
	w.status.Store(&st)
	if st.State != old.State || st.LastError != old.LastError || st.Hint != old.Hint {
		w.wake()
	}
}

func ringSettings(c *config.Config) ring.Settings {
	return ring.Settings{Retention: c.Retention, MaxSize: c.MaxSize}
}

// signal leaves one signal in c, which has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
