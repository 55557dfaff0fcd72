package episode

import (
	"math/rand/v2"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/lockmgr/lockmgrtest"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

// Sweeps and walks as a server under load may give them: each is torn in
// itself and none fits the other. Slots and lock structures are used again, a
// process is gone between two probes, is found twice, or asks for another lock
// in the walk than in the sweep; the clock jumps. What comes of it may be
// incomplete; it must not be more than was seen.

// tornID is a process in one wait, as a probe names it.
type tornID struct {
	slot, pid int32
	lock      uint64
}

// party is a lock group or a prepared transaction.
type party struct {
	slot, pid int32
	xid       uint32
}

// seenInWalks is all that any walk said about a process and a lock.
type seenInWalks struct {
	queued   bool
	tags     map[lockmgr.Tag]map[lockmgr.Mode]bool
	blockers map[history.EdgeKind]map[party]bool
	cycles   int // walks that had it in a circle
}

type torn struct {
	t       *testing.T
	data    []byte
	tracker *Tracker
	builder *waitgraph.Builder
	now     snapshot.Micros
	back    bool            // the clock was set back
	last    *snapshot.Graph // of the latest walk
	seen    map[tornID]*seenInWalks
	opened  map[int64]bool
	closed  map[int64]bool
	edges   int
	cycles  int
}

func (s *torn) next() byte {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

// one of n, rarely nonsense.
func (s *torn) number(n int32) int32 {
	b := s.next()
	if b == 255 {
		return int32(s.next())<<24 - 1
	}
	return int32(b) % n
}

func (s *torn) pidOf(slot int32) int32 { return 1000 + slot + 100*int32(s.next()/128) }

func (s *torn) start() snapshot.Micros {
	switch b := s.next(); {
	case b < 60:
		return 0 // not published
	case b < 200: // one of a few, so that they come back
		return base.Add(time.Duration(b%8) * 30 * time.Millisecond)
	case b < 250:
		return s.now.Add(-time.Duration(b-200) * time.Millisecond)
	default:
		return s.now.Add(time.Hour)
	}
}

func (s *torn) sweep() {
	previous := s.now
	switch b := s.next(); {
	case b < 250:
		s.now = s.now.Add(time.Duration(b%30+1) * time.Millisecond)
	case b < 253:
		s.now = s.now.Add(time.Hour)
	default:
		s.now, s.back = s.now.Add(-time.Minute), true
	}
	w := Sweep{At: s.now, Previous: previous, Ticks: int64(s.next() % 4), Resumed: s.next() > 230}
	for range s.next() % 10 {
		slot := s.number(8)
		w.Found = append(w.Found, snapshot.Wait{Slot: slot, Pid: s.pidOf(slot), Lock: uint64(s.next() % 4), WaitStart: s.start(),
			Status: snapshot.WaitStatus(s.next() % 8 / 4 * s.next() % 6), WaitEvent: uint32(s.next()%2) * 0x03000004})
	}
	for range s.next() % 3 {
		slot := s.number(8)
		f := snapshot.Failure{Slot: slot, Pid: s.pidOf(slot), WaitStart: s.start(), FailedAt: s.now, Mode: s.number(10),
			Reason: snapshot.FailReason(s.next() % 8), Lost: uint32(s.next() / 200), BackendStart: base.Add(-time.Hour)}
		if f.Reason == snapshot.FailDeadlock {
			f.Text = []string{"", "Process 1001 waits for ShareLock on transaction 5; blocked by process 1002.\nProcess 1002 waits for", "nonsense"}[s.next()%3]
		}
		w.Failed = append(w.Failed, f)
	}
	s.tracker.Sweep(w)
}

func (s *torn) walk() {
	if s.last != nil && s.next() < 40 { // nothing has changed
		same := *s.last
		same.TakenAt = s.now
		s.takeIn(&same)
		return
	}
	g := &snapshot.Graph{TakenAt: s.now.Add(time.Duration(int(s.next())-100) * 100 * time.Microsecond)}
	for range s.next() % 4 {
		l := snapshot.Lock{Lock: uint64(s.next() % 4), Type: uint8(s.next() % 12), Method: 1, Field1: 5, Field2: uint32(s.next() % 3),
			FirstHolder: uint32(len(g.Holders)), FirstQueued: uint32(len(g.Queue))}
		for range s.next() % 4 {
			slot := s.number(10)
			h := snapshot.Holder{Slot: slot, Pid: s.pidOf(slot), HoldMask: uint32(s.next())<<1 | 1<<8}
			h.LeaderSlot, h.LeaderPid = h.Slot, h.Pid
			switch b := s.next(); {
			case b > 240:
				h.LeaderSlot = s.number(8)
				h.LeaderPid = s.pidOf(h.LeaderSlot)
			case b > 220:
				h.Slot, h.Pid, h.Flags, h.Xid = 20+slot, 0, snapshot.HolderPrepared, uint32(20+slot)
				h.LeaderSlot, h.LeaderPid = h.Slot, 0
			}
			g.Holders = append(g.Holders, h)
		}
		for range s.next() % 5 {
			slot := s.number(8)
			q := snapshot.Queued{Slot: slot, Pid: s.pidOf(slot), Mode: s.number(9), WaitStart: s.start()}
			q.LeaderSlot, q.LeaderPid = q.Slot, q.Pid
			if s.next() > 240 {
				q.LeaderSlot = s.number(8)
				q.LeaderPid = s.pidOf(q.LeaderSlot)
			}
			g.Queue = append(g.Queue, q)
		}
		l.NHolders, l.NQueued = uint32(len(g.Holders))-l.FirstHolder, uint32(len(g.Queue))-l.FirstQueued
		g.Locks = append(g.Locks, l)
	}
	s.last = g
	s.takeIn(g)
}

func (s *torn) takeIn(g *snapshot.Graph) {
	s.note(g)
	built := s.builder.Build(g)
	for _, r := range s.tracker.Wanted(built, nil) {
		if r.Pid == 0 {
			s.t.Errorf("a prepared transaction is asked for: %+v", r)
		}
	}
	known := map[[2]int32]*snapshot.Session{}
	s.tracker.Walk(built, func(slot, pid int32) *snapshot.Session {
		key := [2]int32{slot, pid}
		if _, asked := known[key]; !asked {
			known[key] = nil
			if s.next()%4 > 0 && pid != 0 {
				known[key] = &snapshot.Session{Slot: slot, Pid: pid, SeenAt: g.TakenAt, BackendStart: s.start(), State: snapshot.State(s.next() % 8)}
			}
		}
		return known[key]
	})
	for i := range built.Waiters {
		if s.tracker.Known(i) {
			var e history.Episode
			s.tracker.Peek(i, &e)
		}
	}
}

// note keeps what the walk says, found out pair by pair.
func (s *torn) note(g *snapshot.Graph) {
	conflicts := lockmgrtest.Conflicts()
	type queued struct {
		id    tornID
		group party
		tag   lockmgr.Tag
		mode  lockmgr.Mode
	}
	group := func(slot, pid int32) party { return party{slot: slot, pid: pid} }
	xid := map[party]uint32{} // of what was ever said to be prepared; the last one counts
	for _, h := range g.Holders {
		if h.Flags&snapshot.HolderPrepared != 0 {
			xid[group(h.LeaderSlot, h.LeaderPid)] = h.Xid
		}
	}
	named := func(p party) party { p.xid = xid[p]; return p }
	waits := map[party]bool{}
	reach := map[party]map[party]bool{}
	link := func(from, to party) {
		if reach[from] == nil {
			reach[from] = map[party]bool{}
		}
		reach[from][to] = true
	}
	var all []queued
	direct := map[int]map[history.EdgeKind]map[party]bool{}
	for _, l := range g.Locks {
		tag := lockmgr.Tag{Field1: l.Field1, Field2: l.Field2, Field3: l.Field3, Field4: l.Field4, Type: lockmgr.Type(l.Type), Method: l.Method}
		held := g.Holders[l.FirstHolder : l.FirstHolder+l.NHolders]
		queue := g.Queue[l.FirstQueued : l.FirstQueued+l.NQueued]
		for k, q := range queue {
			w := queued{tornID{q.Slot, q.Pid, l.Lock}, group(q.LeaderSlot, q.LeaderPid), tag, lockmgr.Mode(q.Mode)}
			waits[w.group] = true
			d := map[history.EdgeKind]map[party]bool{history.Hard: {}, history.Soft: {}}
			if w.mode >= 1 && w.mode <= lockmgr.MaxMode {
				for _, h := range held {
					if p := group(h.LeaderSlot, h.LeaderPid); p != w.group && h.HoldMask&conflicts[w.mode] != 0 {
						d[history.Hard][named(p)] = true
						link(w.group, p)
					}
				}
				for _, a := range queue[:k] {
					if p := group(a.LeaderSlot, a.LeaderPid); p != w.group && a.Mode >= 1 && a.Mode <= 8 && conflicts[w.mode]&(1<<uint32(a.Mode)) != 0 {
						d[history.Soft][named(p)] = true
						link(w.group, p)
					}
				}
			}
			direct[len(all)] = d
			all = append(all, w)
		}
	}
	for grown := true; grown; {
		grown = false
		for _, tos := range reach {
			for via := range tos {
				for to := range reach[via] {
					if !tos[to] {
						tos[to], grown = true, true
					}
				}
			}
		}
	}
	for i, w := range all {
		seen := s.seen[w.id]
		if seen == nil {
			seen = &seenInWalks{tags: map[lockmgr.Tag]map[lockmgr.Mode]bool{}, blockers: map[history.EdgeKind]map[party]bool{history.Hard: {}, history.Soft: {}, history.Root: {}}}
			s.seen[w.id] = seen
		}
		if seen.tags[w.tag] == nil {
			seen.tags[w.tag] = map[lockmgr.Mode]bool{}
		}
		seen.queued, seen.tags[w.tag][w.mode] = true, true
		for kind, parties := range direct[i] {
			for p := range parties {
				seen.blockers[kind][p] = true
			}
		}
		for p := range reach[w.group] {
			if !waits[p] {
				seen.blockers[history.Root][named(p)] = true
			}
		}
		if reach[w.group][w.group] {
			seen.cycles++
		}
	}
}

// check holds an episode against all that walks have said.
func (s *torn) check(e *history.Episode, open bool) {
	fail := func(what string, args ...any) {
		s.t.Helper()
		s.t.Errorf(what+" of %+v", append(args, *e)...)
	}
	if e.WaitID <= 0 || e.Waiter == nil {
		fail("no identity")
		return
	}
	if open != (e.End == 0) || !open && (e.End < e.Start || e.Outcome == history.StillWaiting) || open && e.Outcome != history.StillWaiting {
		fail("end")
	}
	if len(e.Edges) > maxEdges || len(e.SoftPids) > history.MaxListed || e.Samples < 0 || e.HardCount < 0 || e.SoftCount < 0 {
		fail("bounds")
	}
	// The lock's identity is not part of the episode: whichever it was.
	var about []*seenInWalks
	for id, seen := range s.seen {
		if id.slot == e.Waiter.Slot && id.pid == e.Waiter.Pid && seen.tags[e.Tag][e.Mode] {
			about = append(about, seen)
		}
	}
	if len(about) == 0 {
		fail("a lock that no walk saw it wait for, or a mode")
		return
	}
	cycles := 0
	for _, seen := range about {
		cycles += seen.cycles
	}
	if e.InCycle {
		s.cycles++
		if cycles < 2 {
			fail("a circle that was in %d walks", cycles)
		}
	}
	for i := range e.Edges {
		edge := &e.Edges[i]
		s.edges++
		if edge.Blocker == nil {
			fail("edge %d without a blocker", i)
			continue
		}
		if edge.From < e.Start || edge.To != 0 && edge.To < edge.From || !open && (edge.To == 0 || edge.To > e.End) {
			fail("edge %d from %d to %d", i, edge.From, edge.To)
		}
		p := party{edge.Blocker.Slot, edge.Blocker.Pid, edge.Blocker.Prepared}
		was := false
		for _, seen := range about {
			was = was || seen.blockers[edge.Kind][p]
		}
		if !was {
			fail("blocker %+v (kind %d) that no walk saw in its way", p, edge.Kind)
		}
	}
}

func (s *torn) drain(final bool) {
	d := s.tracker.Drain(s.now, DrainOptions{RewriteOpen: s.next()%4 == 0, Final: final})
	for i := range d.Closed {
		e := &d.Closed[i]
		s.check(e, false)
		if s.closed[e.WaitID] && !s.back {
			s.t.Errorf("closed twice: %+v", *e)
		}
		s.closed[e.WaitID] = true
		delete(s.opened, e.WaitID)
	}
	for i := range d.Open {
		s.check(&d.Open[i], true)
		if !final {
			s.opened[d.Open[i].WaitID] = true
		} else {
			delete(s.opened, d.Open[i].WaitID)
		}
	}
	var merged int64
	for _, row := range d.Short {
		merged += row.Waits
		if row.Waits <= 0 || row.Longest < 0 || row.Longest > row.Total || row.Failed > row.Waits {
			s.t.Errorf("sum %+v", row)
		}
	}
	if merged != d.Merged {
		s.t.Errorf("%d merged into rows of %d", d.Merged, merged)
	}
	for _, l := range d.Deadlocks {
		if len(l.Members) == 0 || len(l.Members) > maxMembers {
			s.t.Errorf("deadlock of %d members", len(l.Members))
		}
		for _, m := range l.Members {
			if m.Session == nil {
				s.t.Errorf("deadlock %+v has a member without a session", l)
			}
		}
	}
}

// playTorn plays data to the end and returns how many edges and circles were told.
func playTorn(t *testing.T, data []byte) (edges, cycles int) {
	c := testConfig
	c.MinDuration = 5 * time.Millisecond
	s := &torn{t: t, data: data, tracker: NewTracker(c), builder: waitgraph.NewBuilder(lockmgrtest.Conflicts()), now: base,
		seen: map[tornID]*seenInWalks{}, opened: map[int64]bool{}, closed: map[int64]bool{}}
	for len(s.data) > 0 && !t.Failed() {
		switch b := s.next(); {
		case b < 110:
			s.sweep()
		case b < 220:
			s.walk()
		default:
			s.drain(false)
		}
	}
	// All is gone: what was told as open has an end.
	for range 3 {
		s.now = s.now.Add(time.Second)
		s.tracker.Sweep(Sweep{At: s.now, Previous: s.now.Add(-tick), Ticks: 1})
	}
	s.drain(true)
	if n := s.tracker.Waiting(); n != 0 {
		t.Errorf("%d still wait when nobody does", n)
	}
	if len(s.opened) > 0 && !s.back {
		t.Errorf("%d were told as open and never as ended", len(s.opened))
	}
	return s.edges, s.cycles
}

func tornBytes(r *rand.Rand) []byte {
	data := make([]byte, 200+r.IntN(3000))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func FuzzTorn(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(tornBytes(rand.New(rand.NewPCG(seed, 7))))
	}
	f.Fuzz(func(t *testing.T, data []byte) { playTorn(t, data) })
}

// TestTorn is the fuzz target's check on ever new input.
func TestTorn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	edges, cycles := 0, 0
	for round := range uint64(1500) {
		e, c := playTorn(t, tornBytes(rand.New(rand.NewPCG(seed, round))))
		if t.Failed() {
			t.Fatalf("seed %d, round %d", seed, round)
		}
		edges, cycles = edges+e, cycles+c
	}
	t.Logf("%d edges and %d circles were told", edges, cycles)
	if edges < 1000 || cycles == 0 {
		t.Errorf("seed %d: %d edges, %d circles: the input tests nothing", seed, edges, cycles)
	}
}
