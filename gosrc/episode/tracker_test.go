package episode

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/lockmgr/lockmgrtest"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

// base is a whole second, so that tests can count from it.
const base = snapshot.Micros(820_000_000_000_000)

const tick = 10 * time.Millisecond

// ms returns a time n milliseconds after base.
func ms(n float64) snapshot.Micros { return base + snapshot.Micros(n*1000) }

var testConfig = Config{Node: "n", MinDuration: 100 * time.Millisecond, MaxRowsPerSecond: 1000, MaxShortKeys: 1000}

// stage is a tracker with a hand to move it. Process n has slot n and pid
// 1000+n; locks are numbered.
type stage struct {
	*Tracker
	builder *waitgraph.Builder
	read    map[int32]*snapshot.Session // by slot; nil: cannot be read
}

func newStage(c Config) *stage {
	return &stage{
		Tracker: NewTracker(c),
		builder: waitgraph.NewBuilder(lockmgrtest.Conflicts()),
		read:    map[int32]*snapshot.Session{},
	}
}

func waiting(slot int32, lock uint64, start snapshot.Micros) snapshot.Wait {
	return snapshot.Wait{Lock: lock, WaitStart: start, Slot: slot, Pid: 1000 + slot, WaitEvent: 0x03000000 | uint32(lockmgr.Tuple)}
}

func ended(slot int32, lock uint64, start snapshot.Micros, status snapshot.WaitStatus) snapshot.Wait {
	w := waiting(slot, lock, start)
	w.Status = status
	return w
}

// sweep is a tick, the previous one a period before.
func (s *stage) sweep(at snapshot.Micros, found ...snapshot.Wait) {
	s.Sweep(Sweep{At: at, Previous: at.Add(-tick), Ticks: 1, Found: found})
}

// queueOf is one lock in the walk to come: holders and waiters in order, all in exclusive mode.
type queueOf struct {
	lock    uint64
	holders []int32
	waiters []snapshot.Wait
}

func (s *stage) graph(at snapshot.Micros, queues ...queueOf) *waitgraph.Graph {
	g := &snapshot.Graph{TakenAt: at}
	for _, q := range queues {
		g.Locks = append(g.Locks, snapshot.Lock{
			Lock: q.lock, Type: uint8(lockmgr.Relation), Method: 1, Field1: 5, Field2: uint32(q.lock),
			FirstHolder: uint32(len(g.Holders)), NHolders: uint32(len(q.holders)),
			FirstQueued: uint32(len(g.Queue)), NQueued: uint32(len(q.waiters)),
		})
		for _, n := range q.holders {
			h := snapshot.Holder{Slot: n, Pid: 1000 + n, LeaderSlot: n, LeaderPid: 1000 + n, HoldMask: 1 << 8}
			if n >= 900 {
				h = snapshot.Holder{Slot: n, LeaderSlot: n, HoldMask: 1 << 8, Flags: snapshot.HolderPrepared, Xid: uint32(n), Database: 5, Role: 10}
			}
			g.Holders = append(g.Holders, h)
		}
		for _, w := range q.waiters {
			g.Queue = append(g.Queue, snapshot.Queued{
				WaitStart: w.WaitStart, Slot: w.Slot, Pid: w.Pid, LeaderSlot: w.Slot, LeaderPid: w.Pid, Mode: 8,
			})
		}
	}
	return s.builder.Build(g)
}

func (s *stage) lookup(slot, _ int32) *snapshot.Session { return s.read[slot] }

func (s *stage) walk(at snapshot.Micros, queues ...queueOf) {
	s.Walk(s.graph(at, queues...), s.lookup)
}

func (s *stage) closedOnly(t *testing.T, at snapshot.Micros) history.Episode {
	t.Helper()
	s.Decide(at)
	d := s.Drain(at, DrainOptions{})
	if len(d.Closed) != 1 || len(d.Short) != 0 || d.Merged != 0 {
		t.Fatalf("got %d closed, %d short rows, %d merged; want one closed", len(d.Closed), len(d.Short), d.Merged)
	}
	return d.Closed[0]
}

func TestOneWait(t *testing.T) {
	const lock = 7
	type row = snapshot.Wait
	tests := []struct {
		name     string
		sweeps   []Sweep
		walkSees snapshot.Micros // as wait start, 0 = what the first sweep saw
		start    snapshot.Micros
		end      snapshot.Micros
		outcome  history.Outcome
		samples  int64
	}{
		{
			name: "granted, in the middle of two ticks",
			sweeps: []Sweep{
				{At: ms(10), Previous: ms(0), Ticks: 1, Found: []row{waiting(1, lock, ms(4))}},
				{At: ms(500), Previous: ms(490), Ticks: 49, Found: []row{ended(1, lock, ms(4), snapshot.EndedGranted)}},
			},
			start: ms(4), end: ms(495), outcome: history.Granted, samples: 49,
		},
		{
			name: "failed",
			sweeps: []Sweep{
				{At: ms(10), Previous: ms(0), Ticks: 1, Found: []row{waiting(1, lock, ms(4))}},
				{At: ms(500), Previous: ms(490), Ticks: 49, Found: []row{ended(1, lock, ms(4), snapshot.EndedFailed)}},
			},
			start: ms(4), end: ms(495), outcome: history.Failed, samples: 49,
		},
		{
			name: "start published one tick later",
			sweeps: []Sweep{
				{At: ms(10), Previous: ms(0), Ticks: 1, Found: []row{waiting(1, lock, 0)}},
				{At: ms(20), Previous: ms(10), Ticks: 1, Found: []row{waiting(1, lock, ms(9))}},
				{At: ms(500), Previous: ms(490), Ticks: 48, Found: []row{ended(1, lock, ms(9), snapshot.EndedGranted)}},
			},
			start: ms(9), end: ms(495), outcome: history.Granted, samples: 49,
		},
		{
			name: "start never published",
			sweeps: []Sweep{
				{At: ms(10), Previous: ms(0), Ticks: 1, Found: []row{waiting(1, lock, 0)}},
				{At: ms(500), Previous: ms(490), Ticks: 49, Found: []row{ended(1, lock, 0, snapshot.EndedGranted)}},
			},
			start: ms(10), end: ms(495), outcome: history.Granted, samples: 49,
		},
		{
			name: "vanished without a word",
			sweeps: []Sweep{
				{At: ms(10), Previous: ms(0), Ticks: 1, Found: []row{waiting(1, lock, ms(4))}},
				{At: ms(500), Previous: ms(490), Ticks: 49},
			},
			start: ms(4), end: ms(495), outcome: history.Unknown, samples: 49,
		},
		{
			name: "vanished in a pause: no longer than it was seen",
			sweeps: []Sweep{
				{At: ms(300), Previous: ms(290), Ticks: 1, Found: []row{waiting(1, lock, ms(4))}},
				{At: ms(60_000), Previous: ms(300), Ticks: 1, Resumed: true},
			},
			start: ms(4), end: ms(300), outcome: history.Unknown, samples: 1,
		},
		{
			name: "the same start after a pause is the same wait",
			sweeps: []Sweep{
				{At: ms(10), Previous: ms(0), Ticks: 1, Found: []row{waiting(1, lock, ms(4))}},
				{At: ms(60_000), Previous: ms(10), Ticks: 1, Resumed: true, Found: []row{waiting(1, lock, ms(4))}},
				{At: ms(60_010), Previous: ms(60_000), Ticks: 1, Found: []row{ended(1, lock, ms(4), snapshot.EndedGranted)}},
			},
			start: ms(4), end: ms(60_005), outcome: history.Granted, samples: 2,
		},
		{
			name: "clock set back: no end before the start",
			sweeps: []Sweep{
				{At: ms(10), Previous: ms(0), Ticks: 1, Found: []row{waiting(1, lock, ms(4))}},
				{At: ms(-5000), Previous: ms(-5010), Ticks: 49, Found: []row{ended(1, lock, ms(4), snapshot.EndedGranted)}},
			},
			start: ms(4), end: ms(4), outcome: history.Granted, samples: 49,
		},
		{
			name: "start published between sweep and walk",
			sweeps: []Sweep{
				{At: ms(10), Previous: ms(0), Ticks: 1, Found: []row{waiting(1, lock, 0)}},
				{At: ms(500), Previous: ms(490), Ticks: 49, Found: []row{ended(1, lock, 0, snapshot.EndedGranted)}},
			},
			walkSees: ms(9),
			start:    ms(9), end: ms(495), outcome: history.Granted, samples: 49,
		},
		{
			name: "old start read again while waiting goes on",
			sweeps: []Sweep{
				{At: ms(10), Previous: ms(0), Ticks: 1, Found: []row{waiting(1, lock, ms(4))}},
				{At: ms(20), Previous: ms(10), Ticks: 1, Found: []row{waiting(1, lock, 0)}},
				{At: ms(500), Previous: ms(490), Ticks: 48, Found: []row{ended(1, lock, ms(4), snapshot.EndedGranted)}},
			},
			start: ms(4), end: ms(495), outcome: history.Granted, samples: 49,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := testConfig
			c.MinDuration = 0
			s := newStage(c)
			s.Sweep(test.sweeps[0])
			seen := test.sweeps[0].Found[0]
			seen.WaitStart = max(seen.WaitStart, test.walkSees)
			s.walk(test.sweeps[0].At, queueOf{lock, []int32{2}, []row{seen}})
			for _, sweep := range test.sweeps[1:] {
				s.Sweep(sweep)
			}
			e := s.closedOnly(t, ms(70_000))
			if e.Start != test.start || e.End != test.end || e.Outcome != test.outcome || e.Samples != test.samples {
				t.Errorf("got start %v end %v %v %d samples; want %v, %v, %v, %d",
					e.Start.Sub(base), e.End.Sub(base), e.Outcome, e.Samples,
					test.start.Sub(base), test.end.Sub(base), test.outcome, test.samples)
			}
			if e.Waiter == nil || e.Waiter.Pid != 1001 || e.Tag.RelationOID() != lock || e.Mode != 8 || e.WaitID <= 0 {
				t.Errorf("waiter, tag, mode or id wrong: %+v", e)
			}
			if s.Waiting() != 0 {
				t.Errorf("%d still waiting", s.Waiting())
			}
		})
	}
}

// TestStarts is about the second wait of a process.
func TestStarts(t *testing.T) {
	tests := []struct {
		name   string
		lock   uint64            // the first wait is for lock 7
		starts []snapshot.Micros // as published at ticks 510, 520, …
		back   snapshot.Micros   // the process began then, 0 = long ago
		first  snapshot.Micros   // end of the first wait
		want   snapshot.Micros
	}{
		{name: "next wait between two ticks", lock: 8, starts: []snapshot.Micros{ms(508)}, first: ms(505), want: ms(508)},
		{name: "the first one did not last beyond it", lock: 8, starts: []snapshot.Micros{ms(502)}, first: ms(502), want: ms(502)},
		{name: "again for the same lock", lock: 7, starts: []snapshot.Micros{ms(508)}, first: ms(505), want: ms(508)},
		{name: "start left over from the first", lock: 8, starts: []snapshot.Micros{ms(4)}, first: ms(505), want: ms(510)},
		{name: "start left over, then the true one", lock: 8, starts: []snapshot.Micros{ms(4), ms(509)}, first: ms(505), want: ms(509)},
		{name: "older than the end of the first", lock: 8, starts: []snapshot.Micros{ms(400)}, first: ms(505), want: ms(510)},
		{name: "older than the process", lock: 8, starts: []snapshot.Micros{ms(503)}, back: ms(507), first: ms(503), want: ms(510)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := testConfig
			c.MinDuration = 0
			s := newStage(c)
			s.sweep(ms(10), waiting(1, 7, ms(4)))
			s.walk(ms(10), queueOf{7, []int32{2}, []snapshot.Wait{waiting(1, 7, ms(4))}})
			s.sweep(ms(500), waiting(1, 7, ms(4)))
			s.read[1] = &snapshot.Session{Slot: 1, Pid: 1001, BackendStart: test.back}
			at := ms(510)
			s.sweep(at, ended(1, 7, ms(4), snapshot.EndedGranted), waiting(1, test.lock, test.starts[0]))
			for _, start := range test.starts {
				s.sweep(at, waiting(1, test.lock, start))
				s.walk(at, queueOf{test.lock, []int32{2}, []snapshot.Wait{waiting(1, test.lock, start)}})
				at = at.Add(tick)
			}
			s.sweep(ms(600), ended(1, test.lock, test.starts[len(test.starts)-1], snapshot.EndedGranted))
			d := s.Drain(ms(700), DrainOptions{})
			if len(d.Closed) != 2 {
				t.Fatalf("%d closed, want 2", len(d.Closed))
			}
			if got := d.Closed[0].End; got != test.first {
				t.Errorf("first wait ended at %v, want %v", got.Sub(base), test.first.Sub(base))
			}
			if got := d.Closed[1].Start; got != test.want {
				t.Errorf("second wait began at %v, want %v", got.Sub(base), test.want.Sub(base))
			}
			if e := d.Closed[1].Edges[0].From; e != test.want {
				t.Errorf("its first edge began at %v, want %v", e.Sub(base), test.want.Sub(base))
			}
		})
	}
}

// TestStartAfterClockWasSetBack: the end of the wait before lies in a future
// that has been taken back, and must not make the true start look stale.
func TestStartAfterClockWasSetBack(t *testing.T) {
	tests := []struct {
		name        string
		start, want snapshot.Micros
	}{
		{"a true start", ms(-4996), ms(-4996)},
		{"the start of the wait before", ms(4), ms(-4990)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(testConfig)
			s.sweep(ms(10), waiting(1, 7, ms(4)))
			s.sweep(ms(100), ended(1, 7, ms(4), snapshot.EndedGranted))
			s.sweep(ms(-4990), waiting(1, 8, test.start))
			if got := s.waitOf(1, 1001).start; got != test.want {
				t.Errorf("start %v, want %v", got.Sub(base), test.want.Sub(base))
			}
		})
	}
}

// TestStartAroundAStep: the second wait of a process, first seen with
// the sweep that finds the clock set. It is found within a tick, so it is as long
// as the true one, whatever its start says.
func TestStartAroundAStep(t *testing.T) {
	tests := []struct {
		name  string
		step  time.Duration
		start float64       // published, ms
		after time.Duration // the look that found the clock set
		late  bool          // the start is published when it has been walked
	}{
		{"forwards, began after it", time.Hour, 3_600_505, 0, false},
		{"back, began after it", -time.Hour, -3_599_495, 0, false},
		{"back a little, began after it", -time.Second, -495, 0, false},
		{"back, began before it", -time.Hour, 505, 0, false},
		{"back, began when the first had been seen last, by then", -time.Second, 485, time.Second - 25*time.Millisecond, false},
		{"back, start published late", -time.Hour, -3_599_495, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(testConfig)
			s.read[1] = &snapshot.Session{Slot: 1, Pid: 1001, BackendStart: ms(-1)} // later than now, once the clock was set back
			first := waiting(1, 7, ms(4))
			s.sweep(ms(10), first)
			s.walk(ms(10), queueOf{7, []int32{2}, []snapshot.Wait{first}})
			s.sweep(ms(490), first)
			first.Status = snapshot.EndedGranted
			s.sweep(ms(500), first)
			s.Drain(ms(500), DrainOptions{})
			at := ms(510).Add(tt.step)
			step := tt.step
			if tt.after != 0 {
				s.Sweep(Sweep{At: at, Previous: at.Add(-tick), Ticks: 1, Step: step})
				at, step = at.Add(tt.after+5*time.Millisecond), 0
			}
			second := waiting(1, 8, ms(tt.start))
			seen := second
			if tt.late {
				seen.WaitStart = 0
			}
			s.Sweep(Sweep{At: at, Previous: at.Add(-tick), Ticks: 1, Step: step, Found: []snapshot.Wait{seen}})
			s.walk(at, queueOf{8, []int32{2}, []snapshot.Wait{seen}})
			s.sweep(at.Add(tick), second)
			second.Status = snapshot.EndedGranted
			at = at.Add(time.Second)
			s.sweep(at, second)
			if e := s.closedOnly(t, at); e.Start != ms(tt.start) || e.End.Sub(e.Start) != time.Second {
				t.Errorf("from %v, %v long; want %v, 1s", e.Start.Sub(base), e.End.Sub(e.Start), ms(tt.start).Sub(base))
			}
		})
	}
}

// The process ends while it waits; another one gets its slot and its number, and waits
// for the same lock, behind the same blocker, before anybody has looked.
func TestPidUsedAgainForTheSameLock(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first snapshot.Micros // start of the second wait as the first look sees it
		start snapshot.Micros // that is kept: until the true one is seen it could be the first
	}{{"its start is known", ms(203), ms(203)}, {"its start is published later", 0, ms(220)}, {"the start of the first is still there", ms(4), ms(220)}} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(testConfig)
			see := func(at, start snapshot.Micros) {
				w := waiting(1, 7, start)
				s.sweep(at, w)
				s.walk(at, queueOf{7, []int32{2}, []snapshot.Wait{w}})
			}
			s.read[1] = &snapshot.Session{Slot: 1, Pid: 1001, BackendStart: ms(-500), Query: "of the first"}
			see(ms(10), ms(4))
			see(ms(200), ms(4))
			s.read[1] = &snapshot.Session{Slot: 1, Pid: 1001, BackendStart: ms(202), Query: "of the second"}
			see(ms(210), tt.first)
			see(ms(220), ms(203))
			s.sweep(ms(500), ended(1, 7, ms(203), snapshot.EndedGranted))
			d := s.Drain(ms(600), DrainOptions{})
			if len(d.Closed) != 2 {
				t.Fatalf("%d waits, want 2", len(d.Closed))
			}
			for i, want := range []struct {
				start snapshot.Micros
				query string
			}{{ms(4), "of the first"}, {tt.start, "of the second"}} {
				if e := &d.Closed[i]; e.Start != want.start || e.Waiter.Query != want.query {
					t.Errorf("wait %d from %v: %q", i, e.Start.Sub(base), e.Waiter.Query)
				}
			}
			if a, b := &d.Closed[0], &d.Closed[1]; a.WaitID == b.WaitID || a.End > b.Start {
				t.Errorf("the first up to %v, id %d; the second id %d", a.End.Sub(base), a.WaitID, b.WaitID)
			}
		})
	}
}

func TestAnotherWaitAfterAPause(t *testing.T) {
	s := newStage(testConfig)
	s.sweep(ms(10), waiting(1, 7, 0))
	s.Sweep(Sweep{At: ms(60_000), Previous: ms(10), Ticks: 1, Resumed: true, Found: []snapshot.Wait{waiting(1, 7, ms(59_000))}})
	d := s.Drain(ms(60_000), DrainOptions{})
	if len(d.Short) != 1 || s.Waiting() != 1 || s.waitOf(1, 1001).start != ms(59_000) {
		t.Errorf("%d ended, %d waiting: a later start for the same lock is another wait", len(d.Short), s.Waiting())
	}
}

func TestWalkOfAnotherMoment(t *testing.T) {
	tests := []struct {
		name  string
		queue queueOf
	}{
		{"it waits for another lock by now", queueOf{8, []int32{9}, []snapshot.Wait{waiting(1, 8, 0)}}},
		{"the slot has another process by now", queueOf{7, []int32{9}, []snapshot.Wait{{Slot: 1, Pid: 77, Lock: 7}}}},
		{"it waits again by now", queueOf{7, []int32{9}, []snapshot.Wait{waiting(1, 7, ms(12))}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(testConfig)
			start := ms(4)
			if test.queue.lock == 8 {
				start = 0
			}
			s.sweep(ms(10), waiting(1, 7, start))
			s.walk(ms(13), test.queue)
			if w := s.waitOf(1, 1001); w.walk != 0 || len(w.live) != 0 {
				t.Errorf("blockers of another wait were attached: %+v", w)
			}
		})
	}
}

func TestTwiceInTheQueue(t *testing.T) {
	s := newStage(testConfig)
	w1, w2 := waiting(1, 7, ms(1)), waiting(2, 7, ms(2))
	s.sweep(ms(10), w1, w2)
	s.walk(ms(10), queueOf{7, []int32{9}, []snapshot.Wait{w1, w2, w1}})
	if n := s.waitOf(1, 1001).softCount; n != 0 {
		t.Errorf("the first in the queue has %d soft blockers: a torn copy repeated it", n)
	}
}

func TestStartIsFixedOnceHandedOut(t *testing.T) {
	s := newStage(testConfig)
	w := waiting(1, 7, 0)
	s.sweep(ms(10), w)
	s.walk(ms(10), queueOf{7, []int32{2}, []snapshot.Wait{w}})
	open := s.Drain(ms(200), DrainOptions{}).Open
	if len(open) != 1 || open[0].Start != ms(10) || open[0].End != 0 || open[0].Outcome != history.StillWaiting {
		t.Fatalf("open: %+v", open)
	}
	s.sweep(ms(210), waiting(1, 7, ms(9)))
	s.sweep(ms(220), ended(1, 7, ms(9), snapshot.EndedGranted))
	e := s.closedOnly(t, ms(300))
	if e.Start != open[0].Start || e.WaitID != open[0].WaitID {
		t.Errorf("start and id changed after they were handed out: %+v", e)
	}
}

type edgeSeen struct {
	kind     history.EdgeKind
	pid      int32
	from, to float64 // ms
}

func edgesOf(e history.Episode) (seen []edgeSeen) {
	at := func(m snapshot.Micros) float64 { return float64(m-base) / 1000 }
	for _, edge := range e.Edges {
		seen = append(seen, edgeSeen{edge.Kind, edge.Blocker.Pid, at(edge.From), at(edge.To)})
	}
	return seen
}

func TestEdges(t *testing.T) {
	s := newStage(testConfig)
	w1, w2, w3 := waiting(1, 7, ms(1)), waiting(2, 7, ms(2)), waiting(3, 7, ms(3))
	s.sweep(ms(10), w1, w2, w3)
	s.walk(ms(11), queueOf{7, []int32{9}, []snapshot.Wait{w1, w2, w3}})
	// 1 gets the lock: for 2 the soft blocker turns into a hard one, and the root changes.
	s.sweep(ms(100), ended(1, 7, ms(1), snapshot.EndedGranted), w2, w3)
	s.walk(ms(101), queueOf{7, []int32{1}, []snapshot.Wait{w2, w3}})
	// Nothing new.
	s.walk(ms(201), queueOf{7, []int32{1}, []snapshot.Wait{w2, w3}})
	s.sweep(ms(310), ended(2, 7, ms(2), snapshot.EndedGranted), ended(3, 7, ms(3), snapshot.EndedFailed))
	s.Decide(ms(400))
	d := s.Drain(ms(400), DrainOptions{})
	if len(d.Closed) != 2 {
		t.Fatalf("%d closed, want 2", len(d.Closed))
	}
	want := map[int32][]edgeSeen{
		1002: {
			{history.Hard, 1009, 2, 101}, {history.Soft, 1001, 2, 101}, {history.Root, 1009, 2, 101},
			{history.Hard, 1001, 101, 305}, {history.Root, 1001, 101, 305},
		},
		1003: {
			{history.Hard, 1009, 3, 101}, {history.Root, 1009, 3, 101},
			{history.Hard, 1001, 101, 305}, {history.Soft, 1002, 3, 305}, {history.Root, 1001, 101, 305},
		},
	}
	for _, e := range d.Closed {
		if got := edgesOf(e); !slices.Equal(got, want[e.Waiter.Pid]) {
			t.Errorf("pid %d: edges\n%v\nwant\n%v", e.Waiter.Pid, got, want[e.Waiter.Pid])
		}
	}
	e := d.Closed[1]
	if e.HardCount != 1 || e.SoftCount != 2 || !slices.Equal(e.SoftPids, []int32{1002, 1001}) {
		t.Errorf("counts %d and %d, soft pids %v", e.HardCount, e.SoftCount, e.SoftPids)
	}
	if d.Closed[0].QueueKey >= e.QueueKey {
		t.Errorf("queue keys %d and %d do not ascend", d.Closed[0].QueueKey, e.QueueKey)
	}
}

func TestEdgeThatBeginsAfterTheMiddleEndsWithTheWait(t *testing.T) {
	s := newStage(testConfig)
	w := waiting(1, 7, ms(1))
	s.sweep(ms(10), w)
	s.walk(ms(10), queueOf{7, []int32{9}, []snapshot.Wait{w}})
	s.sweep(ms(200), w)
	s.walk(ms(208), queueOf{7, []int32{8}, []snapshot.Wait{w}})
	s.sweep(ms(210), ended(1, 7, ms(1), snapshot.EndedGranted))
	for _, edge := range s.closedOnly(t, ms(300)).Edges {
		if edge.From > edge.To || edge.To > ms(205) {
			t.Errorf("edge from %v to %v of a wait that ends at 205ms", edge.From.Sub(base), edge.To.Sub(base))
		}
	}
}

func TestEdgesAreBounded(t *testing.T) {
	s := newStage(testConfig)
	w := waiting(1, 7, ms(1))
	s.sweep(ms(10), w)
	for n := range int32(500) {
		s.walk(ms(float64(10+n)), queueOf{7, []int32{10 + n%800}, []snapshot.Wait{w}})
	}
	s.sweep(ms(600), ended(1, 7, ms(1), snapshot.EndedGranted))
	e := s.closedOnly(t, ms(700))
	if len(e.Edges) > maxEdges || len(e.Edges) < maxPast {
		t.Errorf("%d edges", len(e.Edges))
	}
	if last := e.Edges[len(e.Edges)-1]; last.Blocker.Pid != 1000+509 {
		t.Errorf("the latest edge is gone, last is %d", last.Blocker.Pid)
	}
}

func TestSessionDetails(t *testing.T) {
	s := newStage(testConfig)
	w1, w2 := waiting(1, 7, ms(1)), waiting(2, 7, ms(2))
	queue := queueOf{7, []int32{9, 900}, []snapshot.Wait{w1, w2}}
	s.sweep(ms(10), w1, w2)
	if got := s.Wanted(s.graph(ms(10), queue), nil); !slices.Equal(got, []Ref{{9, 1009}, {1, 1001}, {2, 1002}}) {
		t.Errorf("wanted %v: root first, then waiters, no prepared transaction", got)
	}
	s.walk(ms(10), queue) // nothing could be read
	s.Drain(ms(150), DrainOptions{})

	s.read[9] = &snapshot.Session{Slot: 9, Pid: 1009, Query: "one"}
	s.read[1] = &snapshot.Session{Slot: 1, Pid: 1001, Query: "waits"}
	s.walk(ms(160), queue)
	if d := s.Drain(ms(170), DrainOptions{}); len(d.Open) != 2 {
		t.Errorf("%d open rewritten, want both: details of their blockers became known", len(d.Open))
	}
	s.read[9] = &snapshot.Session{Slot: 9, Pid: 1009, Query: "two"}
	if got := s.Wanted(s.graph(ms(260), queue), nil); !slices.Equal(got, []Ref{{9, 1009}, {2, 1002}}) {
		t.Errorf("wanted %v: the root again, and the waiter without details", got)
	}
	s.walk(ms(260), queue)
	s.walk(ms(310), queue) // seen twice: taken over
	s.read[9] = nil        // torn now: what was known stays
	s.walk(ms(360), queue)
	if d := s.Drain(ms(370), DrainOptions{}); len(d.Open) != 0 {
		t.Errorf("%d open rewritten for nothing but fresher details", len(d.Open))
	}
	s.sweep(ms(410), w1, ended(2, 7, ms(2), snapshot.EndedGranted))
	e := s.closedOnly(t, ms(500))
	for _, edge := range e.Edges {
		switch b := edge.Blocker; {
		case b.Slot == 9 && b.Query != "two":
			t.Errorf("root says %q, want the latest", b.Query)
		case b.Slot == 1 && b.Query != "waits":
			t.Errorf("soft blocker says %q: its own wait knows it", b.Query)
		case b.Slot == 900 && (b.Pid != 0 || b.Prepared != 900 || b.Database != 5 || b.Role != 10):
			t.Errorf("prepared transaction is %+v", b)
		}
	}
	if len(e.Edges) != 5 {
		t.Errorf("%d edges, want 2 hard, 1 soft, 2 roots", len(e.Edges))
	}
}

// What is known of one prepared transaction is not told of the next one that
// has its slot.
func TestPreparedTransactionThatIsKnown(t *testing.T) {
	for _, tt := range []struct {
		name  string
		known uint32
		want  int
	}{{"it", 900, 1}, {"another", 899, 0}} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(testConfig)
			w := waiting(1, 7, ms(1))
			s.read[900] = &snapshot.Session{Slot: 900, Prepared: tt.known, Statements: []snapshot.Statement{{Query: "update"}}}
			s.sweep(ms(10), w)
			s.walk(ms(10), queueOf{7, []int32{900}, []snapshot.Wait{w}})
			s.sweep(ms(200), ended(1, 7, ms(1), snapshot.EndedGranted))
			e := s.closedOnly(t, ms(300))
			for _, edge := range e.Edges {
				if b := edge.Blocker; b.Prepared != 900 || len(b.Statements) != tt.want {
					t.Errorf("blocker %+v, want %d statements", b, tt.want)
				}
			}
		})
	}
}

func TestBlockerDetailsSettle(t *testing.T) {
	idle := &snapshot.Session{Slot: 9, Pid: 1009, State: snapshot.StateIdleInTransaction, Query: "select 1"}
	commit := &snapshot.Session{Slot: 9, Pid: 1009, State: snapshot.StateActive, Query: "commit"}
	busy := func(n int) *snapshot.Session {
		return &snapshot.Session{Slot: 9, Pid: 1009, State: snapshot.StateActive, Query: fmt.Sprint("statement ", n)}
	}
	type seen struct {
		at      snapshot.Micros
		session *snapshot.Session
	}
	tests := []struct {
		name    string
		walks   []seen
		want    string
		rewrite bool // the open row is due again
	}{
		{"the commit at the end is not what is kept", []seen{{ms(100), idle}, {ms(200), idle}, {ms(5200), idle}, {ms(5300), commit}}, "select 1", false},
		{"a commit that lasts is", []seen{{ms(100), idle}, {ms(200), commit}, {ms(300), commit}}, "commit", true},
		{"back to what it was", []seen{{ms(100), idle}, {ms(200), commit}, {ms(300), idle}, {ms(400), commit}}, "select 1", false},
		{"another statement at each walk: the latest after a second", []seen{{ms(100), busy(1)}, {ms(600), busy(2)}, {ms(1200), busy(3)}}, "statement 3", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(testConfig)
			w := waiting(1, 7, ms(1))
			queue := queueOf{7, []int32{9}, []snapshot.Wait{w}}
			s.sweep(ms(10), w)
			s.read[9] = tt.walks[0].session
			s.walk(ms(20), queue)
			s.Drain(ms(150), DrainOptions{})
			for _, walk := range tt.walks {
				s.read[9] = walk.session
				s.walk(walk.at, queue)
			}
			if d := s.Drain(ms(6000), DrainOptions{}); (len(d.Open) == 1) != tt.rewrite {
				t.Errorf("%d rows written again, want it: %v", len(d.Open), tt.rewrite)
			}
			for _, e := range s.waitOf(1, 1001).live {
				if (e.kind == history.Hard || e.kind == history.Root) && e.blocker.Query != tt.want {
					t.Errorf("%v blocker says %q, want %q", e.kind, e.blocker.Query, tt.want)
				}
			}
		})
	}
}

func TestBlockerIsDescribedByItsOwnWait(t *testing.T) {
	s := newStage(testConfig)
	w1, w2 := waiting(1, 7, ms(1)), waiting(2, 7, ms(12))
	s.read[1] = &snapshot.Session{Slot: 1, Pid: 1001, Query: "waits"}
	s.sweep(ms(10), w1)
	s.walk(ms(10), queueOf{7, []int32{9}, []snapshot.Wait{w1}})
	s.read[1] = nil // not asked for any more
	s.sweep(ms(20), w1, w2)
	queue := queueOf{7, []int32{9}, []snapshot.Wait{w1, w2}}
	if got := s.Wanted(s.graph(ms(20), queue), nil); slices.Contains(got, Ref{1, 1001}) {
		t.Errorf("wanted %v: process 1 is known", got)
	}
	s.walk(ms(20), queue)
	for _, e := range s.waitOf(2, 1002).live {
		if e.kind == history.Soft && e.blocker.Query != "waits" {
			t.Errorf("soft blocker is %+v", e.blocker)
		}
	}
}

func TestWantedIsBounded(t *testing.T) {
	s := newStage(testConfig)
	var waits []snapshot.Wait
	for n := range int32(600) {
		waits = append(waits, waiting(n+10, 7, ms(1)))
	}
	s.sweep(ms(10), waits...)
	dst := s.Wanted(s.graph(ms(10), queueOf{7, []int32{1}, waits}), []Ref{{77, 77}})
	if len(dst) != 1+MaxWanted || dst[0] != (Ref{77, 77}) || dst[1] != (Ref{1, 1001}) {
		t.Errorf("%d wanted, first %v", len(dst), dst[:2])
	}
	if slices.Sort(pids(dst)); len(slices.Compact(pids(dst))) != len(dst) {
		t.Error("somebody is wanted twice")
	}
}

func pids(refs []Ref) (pids []int32) {
	for _, r := range refs {
		pids = append(pids, r.Pid)
	}
	slices.Sort(pids)
	return pids
}

func TestCycleIsBelievedTheSecondTime(t *testing.T) {
	w1, w2 := waiting(1, 7, ms(1)), waiting(2, 8, ms(2))
	tests := []struct {
		name   string
		second snapshot.Micros // wait start of process 2 in the second walk
		cycle  bool            // in the second walk
		want   bool
	}{
		{"same starts twice", ms(2), true, true},
		{"another wait of one member", ms(15), true, false},
		{"gone in the second walk", ms(2), false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(testConfig)
			s.sweep(ms(10), w1, w2)
			s.walk(ms(10), queueOf{7, []int32{2}, []snapshot.Wait{w1}}, queueOf{8, []int32{1}, []snapshot.Wait{w2}})
			if open := s.Drain(ms(150), DrainOptions{}).Open; open[0].InCycle {
				t.Error("believed at once")
			}
			w2 := waiting(2, 8, test.second)
			s.sweep(ms(20), w1, w2)
			holder := int32(1)
			if !test.cycle {
				holder = 9
			}
			s.walk(ms(20), queueOf{7, []int32{2}, []snapshot.Wait{w1}}, queueOf{8, []int32{holder}, []snapshot.Wait{w2}})
			open := s.Drain(ms(150), DrainOptions{RewriteOpen: true}).Open
			if open[0].Waiter.Pid != 1001 || open[0].InCycle != test.want {
				t.Errorf("in cycle %t, want %t", open[0].InCycle, test.want)
			}
		})
	}
}

func TestCycleWithAWalkBetween(t *testing.T) {
	s := newStage(testConfig)
	w1, w2 := waiting(1, 7, ms(1)), waiting(2, 8, ms(2))
	s.sweep(ms(10), w1, w2)
	both := []queueOf{{7, []int32{2}, []snapshot.Wait{w1}}, {8, []int32{1}, []snapshot.Wait{w2}}}
	s.walk(ms(10), both...)
	s.walk(ms(20)) // saw neither
	s.walk(ms(30), both...)
	if s.waitOf(1, 1001).inCycle {
		t.Error("believed, though the walk in between did not see it")
	}
}

func TestQueueKeys(t *testing.T) {
	tests := []struct {
		name  string
		walks [][]int32 // processes in queue order
		kept  []int32   // whose key never changes
	}{
		{"arrivals at the end", [][]int32{{1, 2}, {1, 2, 3}, {2, 3, 4}}, []int32{1, 2, 3, 4}},
		{"a queue jumper gets a key in between", [][]int32{{1, 2}, {1, 3, 2}}, []int32{1, 2, 3}},
		{"two jumpers at the front", [][]int32{{1, 2}, {3, 4, 1, 2}}, []int32{1, 2, 3, 4}},
		{"the server put the last one first", [][]int32{{1, 2, 3}, {3, 1, 2}}, []int32{3}},
		{"the server swapped two", [][]int32{{1, 2, 3, 4}, {1, 3, 2, 4}}, []int32{1, 3, 4}},
		{"jumpers until the room is used up", [][]int32{
			{1, 2}, {1, 10, 2}, {1, 11, 10, 2}, {1, 12, 11, 10, 2}, {1, 13, 12, 11, 10, 2},
			{1, 14, 13, 12, 11, 10, 2}, {1, 15, 14, 13, 12, 11, 10, 2}, {1, 16, 15, 14, 13, 12, 11, 10, 2},
			{1, 17, 16, 15, 14, 13, 12, 11, 10, 2}, {1, 18, 17, 16, 15, 14, 13, 12, 11, 10, 2},
			{1, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 2}, {1, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 2},
			{1, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 2}, {1, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 2},
			{1, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 2},
		}, []int32{1, 2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(testConfig)
			keys := map[int32]int64{}
			for step, order := range test.walks {
				at := ms(float64(10 + step))
				var queue []snapshot.Wait
				for _, n := range order {
					queue = append(queue, waiting(n, 7, ms(1)+snapshot.Micros(n%10)))
				}
				sorted := slices.SortedFunc(slices.Values(queue), func(a, b snapshot.Wait) int { return int(a.Slot - b.Slot) })
				s.sweep(at, sorted...)
				s.walk(at, queueOf{7, []int32{99}, queue})
				last := int64(-1 << 63)
				for _, n := range order {
					w := s.waitOf(n, 1000+n)
					if w.queueKey <= last {
						t.Fatalf("walk %d: the key of process %d does not ascend: %v", step, n, order)
					}
					last = w.queueKey
					if before, known := keys[n]; known && before != w.queueKey && slices.Contains(test.kept, n) {
						t.Errorf("walk %d: process %d got another key", step, n)
					}
					keys[n] = w.queueKey
				}
			}
		})
	}
}

func TestQueueKeysOfNonsenseStarts(t *testing.T) {
	queue := []*wait{{start: ms(1)}, {start: 1 << 62}, {start: -1 << 62}, {start: ms(2)}, {start: maxKeyedStart}, {start: ms(3)}}
	assignQueueKeys(queue)
	for i, w := range queue[1:] {
		if w.queueKey <= queue[i].queueKey {
			t.Errorf("key %d of start %d is not above %d", w.queueKey, w.start, queue[i].queueKey)
		}
	}
	if last := queue[5].queueKey; last > int64(ms(4))*keysPerMicro {
		t.Errorf("nonsense has used up the keys: %d", last)
	}
}

func TestHandingOutOpen(t *testing.T) {
	s := newStage(testConfig)
	w := waiting(1, 7, ms(1))
	queue := queueOf{7, []int32{9}, []snapshot.Wait{w}}
	steps := []struct {
		name string
		do   func()
		at   snapshot.Micros
		o    DrainOptions
		want int
	}{
		{"too young", func() { s.sweep(ms(10), w); s.walk(ms(10), queue) }, ms(90), DrainOptions{}, 0},
		{"old enough", func() {}, ms(101), DrainOptions{}, 1},
		{"unchanged", func() { s.sweep(ms(110), w); s.walk(ms(110), queue) }, ms(120), DrainOptions{}, 0},
		{"new segment", func() {}, ms(130), DrainOptions{RewriteOpen: true}, 1},
		{"unchanged again", func() {}, ms(140), DrainOptions{}, 0},
		{"new blocker", func() { s.walk(ms(150), queueOf{7, []int32{8}, []snapshot.Wait{w}}) }, ms(160), DrainOptions{}, 1},
		{"one more blocker", func() { s.walk(ms(170), queueOf{7, []int32{8, 6}, []snapshot.Wait{w}}) }, ms(180), DrainOptions{}, 1},
	}
	for _, step := range steps {
		step.do()
		if d := s.Drain(step.at, step.o); len(d.Open) != step.want || len(d.Closed) != 0 {
			t.Errorf("%s: %d open, want %d", step.name, len(d.Open), step.want)
		}
	}
}

func TestOpenIsBoundedAndEverybodyHasATurn(t *testing.T) {
	c := testConfig
	c.MaxRowsPerSecond = 3
	s := newStage(c)
	var waits []snapshot.Wait
	for n := range int32(10) {
		waits = append(waits, waiting(n+10, 7, ms(1)))
	}
	s.sweep(ms(10), waits...)
	s.walk(ms(10), queueOf{7, []int32{1}, waits})
	seen := map[int32]bool{}
	for drain := range 4 {
		d := s.Drain(ms(200), DrainOptions{RewriteOpen: drain > 0})
		if len(d.Open) > 3 || !d.Rest {
			t.Errorf("drain %d: %d open, rest %t", drain, len(d.Open), d.Rest)
		}
		for _, e := range d.Open {
			seen[e.Waiter.Pid] = true
		}
	}
	if len(seen) != 10 {
		t.Errorf("%d of 10 had a turn", len(seen))
	}
}

func TestOldestOpen(t *testing.T) {
	s := newStage(testConfig)
	old, young := waiting(1, 7, ms(1)), waiting(2, 7, ms(140))
	expect := func(when string, at, want snapshot.Micros) {
		t.Helper()
		if got := s.OldestOpen(at); got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	s.sweep(ms(10), old)
	s.walk(ms(10), queueOf{7, []int32{9}, []snapshot.Wait{old}})
	expect("nobody outside knows of it", ms(20), ms(20))
	s.sweep(ms(150), old, young)
	s.walk(ms(150), queueOf{7, []int32{9}, []snapshot.Wait{old, young}})
	s.Drain(ms(150), DrainOptions{})
	expect("handed out", ms(150), ms(1))
	s.Drain(ms(300), DrainOptions{})
	expect("both", ms(300), ms(1))
	old.Status = snapshot.EndedGranted
	s.sweep(ms(310), old, young)
	expect("the first has ended", ms(310), ms(140))
	young.Status = snapshot.EndedUnknown
	s.sweep(ms(320), young)
	expect("how the other ended is not decided", ms(320), ms(140))
	s.Decide(ms(330))
	expect("both have", ms(330), ms(330))
}

// At the end everything goes out: what can be told again as open, the rest as sums.
func TestFinalDrain(t *testing.T) {
	c := testConfig
	c.MaxRowsPerSecond = 2
	s := newStage(c)
	young, other, third := waiting(1, 7, ms(1)), waiting(2, 7, ms(2)), waiting(3, 7, ms(3))
	unpublished, unseen := waiting(4, 7, 0), waiting(5, 7, ms(9))
	stale := waiting(6, 7, ms(0))
	s.sweep(ms(5), waiting(6, 7, ms(0)))
	s.sweep(ms(8), ended(6, 7, ms(0), snapshot.EndedGranted)) // slot 6 waits again, its start is the old one
	s.Drain(ms(8), DrainOptions{})
	s.sweep(ms(10), young, other, third, unpublished, unseen, stale)
	s.walk(ms(10), queueOf{7, []int32{9}, []snapshot.Wait{young, other, third, unpublished, stale}})

	if d := s.Drain(ms(15), DrainOptions{}); len(d.Open)+len(d.Short) != 0 {
		t.Errorf("%d open and %d short waits before the end", len(d.Open), len(d.Short))
	}
	d := s.Drain(ms(20), DrainOptions{Final: true})
	var pids []int32
	for _, e := range d.Open {
		pids = append(pids, e.Waiter.Pid)
		if e.End != 0 || e.WaitID != waitID("n", e.Start, e.Waiter.Slot, e.Waiter.Pid) {
			t.Errorf("%d has end %d and id %d", e.Waiter.Pid, e.End, e.WaitID)
		}
	}
	if !slices.Equal(pids, []int32{1001, 1002, 1003}) || len(d.Closed) != 0 || d.Rest {
		t.Errorf("open %v, %d closed, rest %t; want the three that can be told again, whatever the bounds", pids, len(d.Closed), d.Rest)
	}
	var waits int64
	for _, short := range d.Short {
		waits += short.Waits
	}
	if waits != 3 || d.Merged != 3 {
		t.Errorf("%d short waits, %d merged, want 3: no walk, no start, a start of another wait", waits, d.Merged)
	}
}

// A long wait goes out at the end as it always does, and no wait twice.
func TestFinalDrainOfLongWaits(t *testing.T) {
	s := newStage(testConfig)
	known, unpublished := waiting(1, 7, ms(1)), waiting(2, 7, 0)
	queue := queueOf{7, []int32{9}, []snapshot.Wait{known, unpublished}}
	s.sweep(ms(10), known, unpublished)
	s.walk(ms(10), queue)
	if d := s.Drain(ms(105), DrainOptions{}); len(d.Open) != 1 {
		t.Fatalf("%d open", len(d.Open))
	}
	d := s.Drain(ms(120), DrainOptions{Final: true})
	if len(d.Open) != 1 || d.Open[0].Waiter.Pid != 1002 || len(d.Short) != 0 {
		t.Errorf("%d open, %d short; want the second wait alone, as open", len(d.Open), len(d.Short))
	}
}

func TestHandedOutSharesNothing(t *testing.T) {
	s := newStage(testConfig)
	w1, w2 := waiting(1, 7, ms(1)), waiting(2, 7, ms(2))
	s.sweep(ms(10), w1, w2)
	s.walk(ms(10), queueOf{7, []int32{9}, []snapshot.Wait{w1, w2}})
	s.walk(ms(20), queueOf{7, []int32{8}, []snapshot.Wait{w1, w2}})
	open := s.Drain(ms(200), DrainOptions{}).Open[1]
	edges, soft := slices.Clone(open.Edges), slices.Clone(open.SoftPids)
	for n := range int32(300) {
		s.walk(ms(float64(30+n)), queueOf{7, []int32{100 + n}, []snapshot.Wait{w1, w2}})
	}
	s.sweep(ms(600), w1, ended(2, 7, ms(2), snapshot.EndedGranted))
	if !slices.Equal(open.Edges, edges) || !slices.Equal(open.SoftPids, soft) {
		t.Error("an episode changed after it was handed out")
	}
}

func TestShortWaits(t *testing.T) {
	c := testConfig
	c.MaxRowsPerSecond, c.MaxShortKeys = 2, 2
	s := newStage(c)
	s.read[9] = &snapshot.Session{Slot: 9, Pid: 1009, BackendStart: ms(-1000)}
	s.read[1] = &snapshot.Session{Slot: 1, Pid: 1001, QueryID: 42, Query: "ignored"}
	s.read[2] = &snapshot.Session{Slot: 2, Pid: 1002, Query: "text"}

	// A short wait with a query id, one with a text, one that no walk saw.
	w1, w2, w3 := waiting(1, 7, ms(1)), waiting(2, 7, ms(2)), waiting(3, 8, ms(3))
	s.sweep(ms(10), w1, w2, w3)
	s.walk(ms(10), queueOf{7, []int32{9}, []snapshot.Wait{w1, w2}})
	s.sweep(ms(20), ended(1, 7, ms(1), 1), ended(2, 7, ms(2), 1), ended(3, 8, ms(3), 1))
	d := s.Drain(ms(30), DrainOptions{})
	want := []history.ShortWait{
		{ShortWaitKey: history.ShortWaitKey{Second: base, Database: 5, LockType: 0, Relation: 7, Mode: 8, QueryID: 42, RootPid: 1009, RootBackendStart: ms(-1000)},
			Waits: 1, Total: 14 * time.Millisecond, Longest: 14 * time.Millisecond},
		{ShortWaitKey: history.ShortWaitKey{Second: base, Database: 5, LockType: 0, Relation: 7, Mode: 8, TextHash: querytext.Hash("text"), RootPid: 1009, RootBackendStart: ms(-1000)},
			Waits: 1, Total: 13 * time.Millisecond, Longest: 13 * time.Millisecond},
		{ShortWaitKey: history.ShortWaitKey{Second: base, Other: true},
			Waits: 1, Total: 12 * time.Millisecond, Longest: 12 * time.Millisecond},
	}
	if !slices.Equal(d.Short, want) || d.Merged != 3 || len(d.Closed) != 0 {
		t.Errorf("got\n%+v\nwant\n%+v", d.Short, want)
	}

	// The next second has room again: the lock type of the third comes from its wait event.
	s.sweep(ms(1010), waiting(3, 8, ms(1003)))
	s.sweep(ms(1020), ended(3, 8, ms(1003), 1))
	d = s.Drain(ms(1030), DrainOptions{})
	if len(d.Short) != 1 || d.Short[0].LockType != uint8(lockmgr.Tuple) || d.Short[0].Other || d.Short[0].Second != base+1_000_000 {
		t.Errorf("short: %+v", d.Short)
	}

	// Five long ones end in one second, two rows are allowed; one more had
	// been handed out as open, and comes out on its own in any case.
	open := waiting(20, 7, ms(1040))
	s.sweep(ms(1050), open)
	s.walk(ms(1050), queueOf{7, []int32{9}, []snapshot.Wait{open}})
	if n := len(s.Drain(ms(2000), DrainOptions{}).Open); n != 1 {
		t.Fatalf("%d open, want 1", n)
	}
	var waits, ends []snapshot.Wait
	for n := range int32(5) {
		waits = append(waits, waiting(n+10, 7, ms(2000)))
		ends = append(ends, ended(n+10, 7, ms(2000), 1))
	}
	waits = append(waits, open)
	s.sweep(ms(2010), waits...)
	s.walk(ms(2010), queueOf{7, []int32{9}, waits})
	s.sweep(ms(2500), append(ends, ended(20, 7, ms(1040), 1))...)
	d = s.Drain(ms(2600), DrainOptions{})
	var total time.Duration
	for _, sw := range d.Short {
		total += sw.Total
	}
	if len(d.Closed) != 3 || d.Merged != 3 || total != 3*495*time.Millisecond {
		t.Errorf("%d closed, %d merged of %v", len(d.Closed), d.Merged, total)
	}
	if last := d.Closed[len(d.Closed)-1]; last.Waiter.Pid != 1020 {
		t.Errorf("the open one was merged")
	}
}

func TestSumsOfOneKey(t *testing.T) {
	s := newStage(testConfig)
	for n, long := range []float64{20, 60, 30} {
		at := float64(n * 100)
		s.sweep(ms(at+10), waiting(1, 7, ms(at+5)))
		s.sweep(ms(at+5+long), ended(1, 7, ms(at+5), 1)) // the middle is 5 ms before
	}
	pending := s.Pending()
	d := s.Drain(ms(500), DrainOptions{})
	if !pending || s.Pending() {
		t.Errorf("pending %t before and %t after they were handed out", pending, s.Pending())
	}
	if len(d.Short) != 1 || d.Short[0].Waits != 3 || d.Short[0].Total != 95*time.Millisecond || d.Short[0].Longest != 55*time.Millisecond {
		t.Errorf("short: %+v", d.Short)
	}
}

func TestSecondsAreForgotten(t *testing.T) {
	s := newStage(testConfig)
	for n := range 100 {
		at := float64(n * 1000)
		s.sweep(ms(at+10), waiting(1, 7, ms(at+5)))
		s.sweep(ms(at+20), ended(1, 7, ms(at+5), 1))
		s.Drain(ms(at+30), DrainOptions{})
	}
	if n := len(s.seconds); n > 12 {
		t.Errorf("%d seconds are kept", n)
	}
}

func TestNonsenseIsHarmless(t *testing.T) {
	s := newStage(testConfig)
	rows := []snapshot.Wait{
		{Slot: -1, Pid: 5, Lock: 1}, {Slot: 1 << 30, Pid: 5, Lock: 1}, {Slot: 3, Pid: 5, Lock: 1, WaitStart: 1 << 62},
		{Slot: 4, Pid: 5, Lock: 1, WaitStart: -1 << 62}, {Slot: 4, Pid: 6, Lock: 2}, {Slot: 4, Pid: 6, Lock: 2, Status: 99},
	}
	s.sweep(ms(10), rows...)
	s.walk(ms(10), queueOf{1, []int32{9}, rows}, queueOf{1, []int32{3, 4}, rows})
	s.sweep(ms(20), rows...)
	s.walk(ms(20), queueOf{2, nil, rows})
	s.sweep(ms(30))
	s.Drain(ms(40), DrainOptions{})
	if s.Waiting() != 0 || len(s.procs) > 5 {
		t.Errorf("%d waiting, room for %d processes", s.Waiting(), len(s.procs))
	}
}

func TestUnchangedTickAllocatesNothing(t *testing.T) {
	s := newStage(testConfig)
	var waits []snapshot.Wait
	for n := range int32(100) {
		waits = append(waits, waiting(n+10, 7, ms(1)+snapshot.Micros(n)))
		s.read[n+10] = &snapshot.Session{Slot: n + 10, Pid: 1010 + n}
	}
	s.read[1] = &snapshot.Session{Slot: 1, Pid: 1001}
	s.sweep(ms(10), waits...)
	g := s.graph(ms(10), queueOf{7, []int32{1}, waits})
	sweep := Sweep{At: ms(20), Previous: ms(10), Ticks: 1, Found: waits}
	wanted := make([]Ref, 0, MaxWanted)
	lookup := s.lookup
	once := func() {
		s.Sweep(sweep)
		wanted = s.Wanted(g, wanted[:0])
		s.Walk(g, lookup)
	}
	once()
	if allocs := testing.AllocsPerRun(50, once); allocs != 0 {
		t.Errorf("%v allocations in a tick with nothing new", allocs)
	}
	if len(wanted) != 1 {
		t.Errorf("%d sessions read again, want the root alone", len(wanted))
	}
}

func BenchmarkBuildAndWalk(b *testing.B) {
	for _, n := range []int32{100, 2000} {
		b.Run(fmt.Sprintf("waiters=%d", n), func(b *testing.B) {
			s := newStage(testConfig)
			var waits []snapshot.Wait
			raw := &snapshot.Graph{TakenAt: ms(10)}
			raw.Locks = []snapshot.Lock{{Lock: 7, NHolders: 1, NQueued: uint32(n)}}
			raw.Holders = []snapshot.Holder{{Slot: 1, Pid: 1001, LeaderSlot: 1, LeaderPid: 1001, HoldMask: 1 << 8}}
			for i := range n {
				w := waiting(i+10, 7, ms(1)+snapshot.Micros(i))
				waits = append(waits, w)
				raw.Queue = append(raw.Queue, snapshot.Queued{WaitStart: w.WaitStart, Slot: w.Slot, Pid: w.Pid, LeaderSlot: w.Slot, LeaderPid: w.Pid, Mode: 8})
				s.read[w.Slot] = &snapshot.Session{Slot: w.Slot, Pid: w.Pid}
			}
			s.sweep(ms(10), waits...)
			lookup := s.lookup
			b.ReportAllocs()
			for b.Loop() {
				s.Walk(s.builder.Build(raw), lookup)
			}
		})
	}
}

// Without a query id the same statement with other literals is the same kind.
func TestShortWaitsOfOneStatementAreOneRow(t *testing.T) {
	s := newStage(testConfig)
	w1, w2 := waiting(1, 7, ms(1)), waiting(2, 7, ms(2))
	s.read[1] = &snapshot.Session{Slot: 1, Pid: 1001, Query: "UPDATE t SET v = 1 WHERE id = 17"}
	s.read[2] = &snapshot.Session{Slot: 2, Pid: 1002, Query: "UPDATE t SET v = 2 WHERE id = 18"}
	s.sweep(ms(10), w1, w2)
	s.walk(ms(10), queueOf{7, []int32{9}, []snapshot.Wait{w1, w2}})
	s.sweep(ms(20), ended(1, 7, ms(1), snapshot.EndedGranted), ended(2, 7, ms(2), snapshot.EndedGranted))
	if d := s.Drain(ms(30), DrainOptions{}); len(d.Short) != 1 || d.Short[0].Waits != 2 || d.Short[0].TextHash == 0 {
		t.Errorf("got %+v, want one row of two waits", d.Short)
	}
}
