package waitgraph

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/lockmgr/lockmgrtest"
	"pg_lock_history/gosrc/snapshot"
)

var sprintf = fmt.Sprintf

// A scene is written as locks; process n has slot n and pid 1000+n.
type scene struct {
	g snapshot.Graph
}

func (s *scene) lock(held []snapshot.Holder, queue []snapshot.Queued) *scene {
	s.g.Locks = append(s.g.Locks, snapshot.Lock{
		Lock:        uint64(len(s.g.Locks) + 1),
		FirstHolder: uint32(len(s.g.Holders)), NHolders: uint32(len(held)),
		FirstQueued: uint32(len(s.g.Queue)), NQueued: uint32(len(queue)),
	})
	s.g.Holders = append(s.g.Holders, held...)
	s.g.Queue = append(s.g.Queue, queue...)
	return s
}

func holds(n int32, modes ...lockmgr.Mode) snapshot.Holder {
	h := snapshot.Holder{Slot: n, Pid: 1000 + n, LeaderSlot: n, LeaderPid: 1000 + n}
	for _, m := range modes {
		h.HoldMask |= m.Bit()
	}
	return h
}

func asks(n int32, m lockmgr.Mode) snapshot.Queued {
	return snapshot.Queued{Slot: n, Pid: 1000 + n, LeaderSlot: n, LeaderPid: 1000 + n, Mode: int32(m), WaitStart: snapshot.Micros(n)}
}

func heldBy(h snapshot.Holder, leader int32) snapshot.Holder {
	h.LeaderSlot, h.LeaderPid = leader, 1000+leader
	return h
}

func askedBy(q snapshot.Queued, leader int32) snapshot.Queued {
	q.LeaderSlot, q.LeaderPid = leader, 1000+leader
	return q
}

func prepared(slot int32, xid uint32, m lockmgr.Mode) snapshot.Holder {
	return snapshot.Holder{Slot: slot, LeaderSlot: slot, Xid: xid, Database: 5, Role: 10, HoldMask: m.Bit(), Flags: snapshot.HolderPrepared}
}

func TestBuild(t *testing.T) {
	const (
		share     = lockmgr.Mode(1)
		rowExcl   = lockmgr.Mode(3)
		shareLock = lockmgr.Mode(5)
		excl      = lockmgr.Mode(7)
		accExcl   = lockmgr.Mode(8)
	)
	type want struct {
		slot              int32
		position          int32
		hard, soft, roots []int32 // slots
		cycle             bool
	}
	tests := []struct {
		name  string
		scene *scene
		want  []want
	}{
		{
			name: "readers queue behind an ALTER TABLE behind a reader",
			scene: new(scene).lock(
				[]snapshot.Holder{holds(1, share)},
				[]snapshot.Queued{asks(2, accExcl), asks(3, share), asks(4, share)}),
			want: []want{
				{slot: 2, position: 1, hard: []int32{1}, roots: []int32{1}},
				{slot: 3, position: 2, soft: []int32{2}, roots: []int32{1}},
				{slot: 4, position: 3, soft: []int32{2}, roots: []int32{1}},
			},
		},
		{
			name: "soft blockers come nearest first",
			scene: new(scene).lock(
				[]snapshot.Holder{holds(1, excl)},
				[]snapshot.Queued{asks(2, excl), asks(3, excl), asks(4, excl)}),
			want: []want{
				{slot: 2, position: 1, hard: []int32{1}, roots: []int32{1}},
				{slot: 3, position: 2, hard: []int32{1}, soft: []int32{2}, roots: []int32{1}},
				{slot: 4, position: 3, hard: []int32{1}, soft: []int32{3, 2}, roots: []int32{1}},
			},
		},
		{
			name: "a holder that also waits is a hard blocker, once, and never its own",
			scene: new(scene).lock(
				[]snapshot.Holder{holds(1, shareLock), holds(2, shareLock)},
				[]snapshot.Queued{asks(1, rowExcl), asks(3, rowExcl)}),
			want: []want{
				{slot: 1, position: 1, hard: []int32{2}, roots: []int32{2}},
				{slot: 3, position: 2, hard: []int32{1, 2}, roots: []int32{2}},
			},
		},
		{
			name: "two roots at the ends of two chains",
			scene: new(scene).
				lock([]snapshot.Holder{holds(1, excl), holds(2, excl)}, []snapshot.Queued{asks(3, excl)}).
				lock([]snapshot.Holder{holds(4, excl)}, []snapshot.Queued{asks(2, excl)}),
			want: []want{
				{slot: 3, position: 1, hard: []int32{1, 2}, roots: []int32{1, 4}},
				{slot: 2, position: 1, hard: []int32{4}, roots: []int32{4}},
			},
		},
		{
			name: "a deadlock has no root, nor has who waits for it",
			scene: new(scene).
				lock([]snapshot.Holder{holds(1, excl)}, []snapshot.Queued{asks(2, excl)}).
				lock([]snapshot.Holder{holds(2, excl)}, []snapshot.Queued{asks(1, excl), asks(3, excl)}),
			want: []want{
				{slot: 2, position: 1, hard: []int32{1}, cycle: true},
				{slot: 1, position: 1, hard: []int32{2}, cycle: true},
				{slot: 3, position: 2, hard: []int32{2}, soft: []int32{1}},
			},
		},
		{
			name: "a deadlock with a way out",
			scene: new(scene).
				lock([]snapshot.Holder{holds(1, excl), holds(9, excl)}, []snapshot.Queued{asks(2, excl)}).
				lock([]snapshot.Holder{holds(2, excl)}, []snapshot.Queued{asks(1, excl)}),
			want: []want{
				{slot: 2, position: 1, hard: []int32{1, 9}, roots: []int32{9}, cycle: true},
				{slot: 1, position: 1, hard: []int32{2}, roots: []int32{9}, cycle: true},
			},
		},
		{
			name: "a soft deadlock goes through a queue",
			scene: new(scene).
				lock([]snapshot.Holder{holds(1, share)}, []snapshot.Queued{asks(2, accExcl), asks(3, share)}).
				lock([]snapshot.Holder{holds(3, accExcl)}, []snapshot.Queued{asks(1, share)}),
			want: []want{
				{slot: 2, position: 1, hard: []int32{1}, cycle: true},
				{slot: 3, position: 2, soft: []int32{2}, cycle: true},
				{slot: 1, position: 1, hard: []int32{3}, cycle: true},
			},
		},
		{
			name: "a parallel query is reported as its leader and does not block itself",
			scene: new(scene).lock(
				[]snapshot.Holder{heldBy(holds(2, share), 1), heldBy(holds(3, share), 1), holds(1, share)},
				[]snapshot.Queued{asks(4, accExcl), askedBy(asks(5, accExcl), 1)}),
			want: []want{
				{slot: 4, position: 1, hard: []int32{1}, cycle: true},
				{slot: 5, position: 2, soft: []int32{4}, cycle: true},
			},
		},
		{
			name: "a group in two queues is one node",
			scene: new(scene).
				lock([]snapshot.Holder{holds(7, excl)}, []snapshot.Queued{askedBy(asks(2, excl), 1)}).
				lock([]snapshot.Holder{holds(8, excl)}, []snapshot.Queued{askedBy(asks(3, excl), 1)}),
			want: []want{
				{slot: 2, position: 1, hard: []int32{7}, roots: []int32{7, 8}},
				{slot: 3, position: 1, hard: []int32{8}, roots: []int32{7, 8}},
			},
		},
		{
			name: "prepared transactions are roots, told apart by slot",
			scene: new(scene).lock(
				[]snapshot.Holder{prepared(200, 900, excl), prepared(201, 901, excl)},
				[]snapshot.Queued{asks(1, excl)}),
			want: []want{{slot: 1, position: 1, hard: []int32{200, 201}, roots: []int32{200, 201}}},
		},
		{
			name: "an unknown mode conflicts with nothing",
			scene: new(scene).lock(
				[]snapshot.Holder{holds(1, accExcl)},
				[]snapshot.Queued{asks(2, 99), asks(3, accExcl)}),
			want: []want{
				{slot: 2, position: 1},
				{slot: 3, position: 2, hard: []int32{1}, roots: []int32{1}},
			},
		},
	}
	b := NewBuilder(lockmgrtest.Conflicts())
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := b.Build(&test.scene.g)
			if diff := difference(g, reference(&test.scene.g, lockmgrtest.Conflicts())); diff != "" {
				t.Errorf("differs from the reference: %s", diff)
			}
			var got []want
			slots := func(list []Blocker) (slots []int32) {
				for _, b := range list {
					slots = append(slots, g.Groups[b.Group].Slot)
				}
				return slots
			}
			for _, w := range g.Waiters {
				var roots []int32
				for _, r := range w.Roots {
					roots = append(roots, g.Groups[r].Slot)
				}
				got = append(got, want{w.Slot, w.Position, slots(w.Hard), slots(w.Soft), roots, w.InCycle()})
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, test.want)
			}
		})
	}
}

func TestPreparedIsDescribed(t *testing.T) {
	s := new(scene).lock([]snapshot.Holder{prepared(200, 900, 8)}, []snapshot.Queued{asks(1, 8)})
	g := NewBuilder(lockmgrtest.Conflicts()).Build(&s.g)
	want := Group{Slot: 200, IsPrepared: true, Xid: 900, Database: 5, Role: 10}
	if got := g.Groups[g.Waiters[0].Roots[0]]; !reflect.DeepEqual(got, want) {
		t.Errorf("root is %+v, want %+v", got, want)
	}
}

func TestMembersOfAGroup(t *testing.T) {
	s := new(scene).
		lock([]snapshot.Holder{holds(1, 1), heldBy(holds(9, 1), 1), heldBy(holds(4, 1), 1)}, []snapshot.Queued{asks(2, 8)}).
		lock([]snapshot.Holder{holds(2, 8), heldBy(holds(4, 1), 1)}, []snapshot.Queued{askedBy(asks(5, 1), 1)})
	b := NewBuilder(lockmgrtest.Conflicts())
	g := b.Build(&s.g)
	if got := g.Groups[g.Waiters[1].Group].Members; !slices.Equal(got, []int32{1004, 1005, 1009}) {
		t.Errorf("members %v, want each once, without the leader", got)
	}
	if got := g.Groups[g.Waiters[0].Group].Members; got != nil {
		t.Errorf("members %v of a process alone", got)
	}
	s = new(scene).lock([]snapshot.Holder{holds(1, 1)}, []snapshot.Queued{asks(2, 8)})
	g = b.Build(&s.g)
	if got := g.Groups[g.Waiters[0].Hard[0].Group].Members; got != nil {
		t.Errorf("members %v are left over from the walk before", got)
	}
	many := []snapshot.Holder{holds(1, 1)}
	for n := range int32(100) {
		many = append(many, heldBy(holds(10+n, 1), 1))
	}
	g = b.Build(&new(scene).lock(many, []snapshot.Queued{asks(2, 8)}).g)
	if got := len(g.Groups[g.Waiters[0].Hard[0].Group].Members); got != history.MaxListed {
		t.Errorf("%d members are listed, want %d", got, history.MaxListed)
	}
}

func TestListsAreCapped(t *testing.T) {
	b := NewBuilder(lockmgrtest.Conflicts())
	s := storm(50, 60)
	g := b.Build(&s.g)
	w := g.Waiters[59]
	if w.HardCount != 50 || len(w.Hard) != history.MaxListed || w.SoftCount != 59 || len(w.Soft) != history.MaxListed || len(w.Roots) != history.MaxListed {
		t.Errorf("counts %d and %d, lists of %d, %d, %d", w.HardCount, w.SoftCount, len(w.Hard), len(w.Soft), len(w.Roots))
	}
	if nearest := g.Groups[w.Soft[0].Group].Pid; nearest != g.Waiters[58].Pid {
		t.Errorf("nearest soft blocker is %d, want %d", nearest, g.Waiters[58].Pid)
	}
	if diff := difference(g, reference(&s.g, lockmgrtest.Conflicts())); diff != "" {
		t.Error(diff)
	}
}

func TestCycleIdentity(t *testing.T) {
	deadlock := func() *scene {
		return new(scene).
			lock([]snapshot.Holder{holds(1, 8)}, []snapshot.Queued{asks(2, 8)}).
			lock([]snapshot.Holder{holds(2, 8)}, []snapshot.Queued{asks(1, 8)})
	}
	swapped := new(scene).
		lock([]snapshot.Holder{holds(2, 8)}, []snapshot.Queued{asks(1, 8)}).
		lock([]snapshot.Holder{holds(1, 8)}, []snapshot.Queued{asks(2, 8)})
	later := deadlock()
	later.g.Queue[1].WaitStart++
	b := NewBuilder(lockmgrtest.Conflicts())
	cycle := func(s *scene) uint64 {
		g := b.Build(&s.g)
		if g.Waiters[0].Cycle != g.Waiters[1].Cycle {
			t.Error("two members of one cycle give it different names")
		}
		return g.Waiters[0].Cycle
	}
	want := cycle(deadlock())
	if got := cycle(swapped); got != want {
		t.Error("the order of the locks changes the identity of a cycle")
	}
	if got := cycle(later); got == want {
		t.Error("another wait start leaves the identity of a cycle unchanged")
	}
}

// storm is one lock with holders that all conflict and waiters that all do.
func storm(holders, waiters int) *scene {
	var held []snapshot.Holder
	var queue []snapshot.Queued
	for i := range holders {
		held = append(held, holds(int32(i), 5))
	}
	for i := range waiters {
		queue = append(queue, asks(int32(holders+i), 7))
	}
	return new(scene).lock(held, queue)
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	b := NewBuilder(lockmgrtest.Conflicts())
	s := storm(30, 300)
	s.lock([]snapshot.Holder{holds(400, 8), prepared(900, 1, 1)}, []snapshot.Queued{asks(2, 8), asks(3, 1)})
	b.Build(&s.g)
	if allocs := testing.AllocsPerRun(50, func() { b.Build(&s.g) }); allocs != 0 {
		t.Errorf("%v allocations in each Build", allocs)
	}
}

// TestNotQuadratic counts the edges that are searched rather than the time.
func TestNotQuadratic(t *testing.T) {
	b := NewBuilder(lockmgrtest.Conflicts())
	s := storm(1000, 2000)
	b.Build(&s.g)
	if n := len(b.search.edges); n > 1000+2000*(2+9) {
		t.Errorf("%d edges for 1000 holders and 2000 waiters", n)
	}
}

// TestLongChain would overflow a recursive search long before the heap ends.
func TestLongChain(t *testing.T) {
	const n = 200_000
	s := new(scene)
	for i := range int32(n) {
		s.lock([]snapshot.Holder{holds(i, 8)}, []snapshot.Queued{asks(i+1, 8)})
	}
	g := NewBuilder(lockmgrtest.Conflicts()).Build(&s.g)
	last := g.Waiters[n-1]
	if len(last.Roots) != 1 || g.Groups[last.Roots[0]].Slot != 0 || last.InCycle() {
		t.Errorf("end of the chain: %+v", last)
	}
}

// decode makes a small graph, sensible or not, of any bytes.
func decode(data []byte) *snapshot.Graph {
	next := func() byte {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return b
	}
	slot := func() int32 {
		b := next()
		if b >= 250 {
			return []int32{-1, -1 << 31, 1<<31 - 1, 1 << 30, -77, 0}[b-250]
		}
		return int32(b % 12)
	}
	g := &snapshot.Graph{}
	locks, holders, queue := int(next()%6), int(next()%40), int(next()%40)
	wild := next() >= 200
	rangeOf := func(from, n int) (uint32, uint32) {
		if wild && next() >= 128 {
			return binary.LittleEndian.Uint32([]byte{next(), 0, next() / 128, next() / 128 * 255}),
				binary.LittleEndian.Uint32([]byte{next(), 0, 0, next() / 128 * 255})
		}
		length := int(next()) % (n - from + 1)
		return uint32(from), uint32(length)
	}
	fromH, fromQ := 0, 0
	for i := range locks {
		l := snapshot.Lock{Lock: uint64(i)}
		l.FirstHolder, l.NHolders = rangeOf(fromH, holders)
		l.FirstQueued, l.NQueued = rangeOf(fromQ, queue)
		fromH = min(holders, fromH+int(min(l.NHolders, 100)))
		fromQ = min(queue, fromQ+int(min(l.NQueued, 100)))
		g.Locks = append(g.Locks, l)
	}
	for range holders {
		h := snapshot.Holder{Slot: slot(), HoldMask: uint32(next()) << 1}
		h.LeaderSlot = h.Slot
		if next() >= 200 {
			h.LeaderSlot = slot()
		}
		h.Pid, h.LeaderPid = 1000+h.Slot, 1000+h.LeaderSlot
		if next() >= 240 {
			h.Pid, h.LeaderPid, h.Flags, h.Xid = 0, 0, snapshot.HolderPrepared, uint32(next())
		}
		g.Holders = append(g.Holders, h)
	}
	for range queue {
		q := snapshot.Queued{Slot: slot(), WaitStart: snapshot.Micros(next())}
		q.LeaderSlot = q.Slot
		if next() >= 200 {
			q.LeaderSlot = slot()
		}
		q.Pid, q.LeaderPid = 1000+q.Slot, 1000+q.LeaderSlot
		q.Mode = int32(next()%8) + 1
		if next() >= 240 {
			q.Mode = slot() * 3
		}
		g.Queue = append(g.Queue, q)
	}
	return g
}

func FuzzBuild(f *testing.F) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g := decode(data)
		got := NewBuilder(lockmgrtest.Conflicts()).Build(g)
		if diff := difference(got, reference(g, lockmgrtest.Conflicts())); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRandom is the fuzz target's check on ever new input, with one Builder
// throughout: nothing may be left over from the graph before.
func TestRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	b := NewBuilder(lockmgrtest.Conflicts())
	data := make([]byte, 600)
	cycles, groups := 0, 0
	for round := range 3000 {
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		g := decode(data)
		got := b.Build(g)
		if diff := difference(got, reference(g, lockmgrtest.Conflicts())); diff != "" {
			t.Fatalf("seed %d, round %d: %s", seed, round, diff)
		}
		if slices.ContainsFunc(got.Waiters, func(w Waiter) bool { return w.InCycle() }) {
			cycles++
		}
		groups += len(got.Groups)
	}
	if cycles == 0 || groups == 0 {
		t.Errorf("seed %d: %d graphs with cycles, %d groups in all: the input tests nothing", seed, cycles, groups)
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, size := range []struct{ holders, waiters int }{{1, 100}, {1, 2000}, {1000, 2000}} {
		b.Run(sprintf("holders=%d/waiters=%d", size.holders, size.waiters), func(b *testing.B) {
			builder := NewBuilder(lockmgrtest.Conflicts())
			s := storm(size.holders, size.waiters)
			b.ReportAllocs()
			for b.Loop() {
				builder.Build(&s.g)
			}
		})
	}
}
