package episode

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// The model plays sessions that lock, wait, get, give back and give up at
// random microseconds, looks at them every 10 ms as the probes do, and keeps
// the books itself, in the simplest way: everything about every wait.

type modelWait struct {
	slot      int32
	lock      int
	start     snapshot.Micros
	outcome   history.Outcome // true one; StillWaiting until it ended
	samples   int64
	lastTick  snapshot.Micros
	walked    bool
	edges     map[modelEdge]snapshot.Micros // live, since when
	past      []edgeSpan
	gaveUp    snapshot.Micros // true end of one that failed, as recorded
	end       snapshot.Micros // as it can be known
	handedOut bool
}

type modelEdge struct {
	kind history.EdgeKind
	slot int32
}

type edgeSpan struct {
	modelEdge
	from, to snapshot.Micros
}

type model struct {
	r      *rand.Rand
	wait   []*modelWait // by process, nil while running
	last   []*modelWait
	holder []int32   // by lock, -1 when free
	queue  [][]int32 // by lock

	records []snapshot.Failure // left by those who gave up, not yet read
}

func newModel(r *rand.Rand, processes, locks int) *model {
	m := &model{r: r, wait: make([]*modelWait, processes), last: make([]*modelWait, processes), holder: make([]int32, locks), queue: make([][]int32, locks)}
	for i := range m.holder {
		m.holder[i] = -1
	}
	return m
}

// act lets one random process do something at the given time.
func (m *model) act(at snapshot.Micros) {
	slot := int32(m.r.IntN(len(m.wait)))
	lock := m.r.IntN(len(m.holder))
	switch w := m.wait[slot]; {
	case w != nil && m.r.IntN(8) == 0: // gives up
		m.queue[w.lock] = slices.DeleteFunc(m.queue[w.lock], func(n int32) bool { return n == slot })
		reason := []snapshot.FailReason{snapshot.FailFailed, snapshot.FailLockTimeout, snapshot.FailStatementTimeout,
			snapshot.FailCancelled, snapshot.FailTerminated, snapshot.FailServerStop}[m.r.IntN(6)]
		m.over(slot, outcomeOf(reason))
		w.gaveUp = at
		m.records = append(m.records, snapshot.Failure{Slot: slot, Pid: 1000 + slot, WaitStart: w.start, FailedAt: at, Mode: 8, Reason: reason})
	case w != nil:
	case m.holder[lock] == slot: // gives back
		m.holder[lock] = -1
		if q := m.queue[lock]; len(q) > 0 {
			m.queue[lock] = q[1:]
			m.holder[lock] = q[0]
			m.over(q[0], history.Granted)
		}
	case m.holder[lock] < 0:
		m.holder[lock] = slot
	default:
		m.queue[lock] = append(m.queue[lock], slot)
		m.wait[slot] = &modelWait{slot: slot, lock: lock, start: at, edges: map[modelEdge]snapshot.Micros{}}
	}
}

func (m *model) over(slot int32, outcome history.Outcome) {
	m.last[slot], m.wait[slot] = m.wait[slot], nil
	m.last[slot].outcome = outcome
}

// root follows the holders; -1 when that goes round.
func (m *model) root(lock int) int32 {
	n := m.holder[lock]
	for range m.wait {
		if m.wait[n] == nil {
			return n
		}
		n = m.holder[m.wait[n].lock]
	}
	return -1
}

// blockers returns what a walk would see of w.
func (m *model) blockers(w *modelWait) map[modelEdge]bool {
	seen := map[modelEdge]bool{{history.Hard, m.holder[w.lock]}: true}
	if at := slices.Index(m.queue[w.lock], w.slot); at > 0 {
		seen[modelEdge{history.Soft, m.queue[w.lock][at-1]}] = true
	}
	if root := m.root(w.lock); root >= 0 {
		seen[modelEdge{history.Root, root}] = true
	}
	return seen
}

func TestAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var alone, merged, edges int
	for round := range uint64(30) {
		config := testConfig
		if round%3 == 2 {
			config.MaxRowsPerSecond, config.MaxShortKeys = 3, 2
		}
		t.Run(fmt.Sprintf("round=%d", round), func(t *testing.T) {
			closed, sums := againstModel(t, rand.New(rand.NewPCG(seed, round)), config)
			alone += len(closed)
			merged += int(sums)
			for _, e := range closed {
				edges += len(e.Edges)
			}
		})
	}
	if alone < 1000 || merged < 500 || edges < 3*alone {
		t.Errorf("%d alone with %d edges, %d merged: the histories test little", alone, edges, merged)
	}
}

func againstModel(t *testing.T, r *rand.Rand, config Config) ([]history.Episode, int64) {
	m := newModel(r, 3+r.IntN(15), 1+r.IntN(4))
	s := newStage(config)
	pause := time.Duration(1+r.IntN(30)) * time.Millisecond

	var (
		now       = base
		next      = base // of the next act
		known     = map[int32]*modelWait{}
		ended     []*modelWait
		closed    []history.Episode
		opened    = map[int64]bool{}
		merged    int64
		short     time.Duration
		shortRows int64
		failed    int64 // of these, as the rows say
		unseen    int64 // failures of waits that no sweep saw
		waitedFor = map[*modelWait]bool{}
		seen      = map[[2]int64]bool{} // the same by slot and start

		unseenTime time.Duration
	)
	drain := func() {
		d := s.Drain(now, DrainOptions{RewriteOpen: r.IntN(4) == 0})
		closed = append(closed, d.Closed...)
		merged += d.Merged
		for _, row := range d.Short {
			shortRows += row.Waits
			short += row.Total
			failed += row.Failed
			if row.Longest > row.Total || row.Waits <= 0 {
				t.Errorf("row does not add up: %+v", row)
			}
		}
		for _, e := range d.Open {
			opened[e.WaitID] = true
			w := known[e.Waiter.Slot]
			if w == nil || w.start != e.Start || now.Sub(e.Start) < config.MinDuration {
				t.Errorf("open %+v is not waiting, or not long enough", e)
				continue
			}
			w.handedOut = true
		}
		if len(d.Open) > config.MaxRowsPerSecond {
			t.Errorf("%d open rows, at most %d", len(d.Open), config.MaxRowsPerSecond)
		}
	}

	for step := range 1500 {
		previous := now
		now = now.Add(tick)
		for next < now {
			m.act(next)
			next = next.Add(time.Microsecond + time.Duration(r.ExpFloat64()*float64(pause)))
		}
		// The sweep.
		var found []snapshot.Wait
		changed := false
		for slot := range int32(len(m.wait)) {
			w := m.wait[slot]
			if k := known[slot]; k != nil && k != w {
				changed = true
				status := snapshot.EndedLeft
				if w == nil { // of its last wait, which may be a later one
					status = snapshot.EndedFailed
					if m.last[slot].outcome == history.Granted {
						status = snapshot.EndedGranted
					}
				}
				row := waiting(slot, uint64(k.lock+1), k.start)
				row.Status = status
				found = append(found, row)
				k.end = k.lastTick.Add(tick / 2)
				if w != nil {
					k.end = min(k.end, w.start)
				}
				if k.gaveUp != 0 {
					k.end = k.gaveUp
				}
				for e, from := range k.edges {
					k.past = append(k.past, edgeSpan{e, from, k.end})
				}
				ended = append(ended, k)
				delete(known, slot)
			}
			if w != nil {
				changed = changed || known[slot] == nil
				known[slot] = w
				w.samples++
				w.lastTick = now
				waitedFor[w] = true
				seen[[2]int64{int64(slot), int64(w.start)}] = true
				found = append(found, waiting(slot, uint64(w.lock+1), w.start))
			}
		}
		// Somebody who has not waited again may still be about to write his record.
		var read, late []snapshot.Failure
		for _, f := range m.records {
			if m.wait[f.Slot] == nil && m.last[f.Slot].start == f.WaitStart && r.IntN(4) == 0 {
				late = append(late, f)
				continue
			}
			read = append(read, f)
			if !seen[[2]int64{int64(f.Slot), int64(f.WaitStart)}] {
				unseen++
				unseenTime += f.FailedAt.Sub(f.WaitStart)
			}
		}
		m.records = late
		s.Sweep(Sweep{At: now, Previous: previous, Ticks: 1, Found: found, Failed: read})
		if s.Waiting() != len(known) {
			t.Fatalf("step %d: %d waiting, want %d", step, s.Waiting(), len(known))
		}
		// The walk, sometimes kept from it by a busy partition.
		if (changed || step%10 == 0) && r.IntN(5) > 0 {
			var queues []queueOf
			for lock, q := range m.queue {
				if len(q) == 0 {
					continue
				}
				queue := queueOf{lock: uint64(lock + 1), holders: []int32{m.holder[lock]}}
				for _, slot := range q {
					queue.waiters = append(queue.waiters, waiting(slot, uint64(lock+1), m.wait[slot].start))
				}
				queues = append(queues, queue)
			}
			s.walk(now, queues...)
			for _, w := range known {
				from := now
				if !w.walked {
					from = w.start
				}
				w.walked = true
				seen := m.blockers(w)
				for e, since := range w.edges {
					if !seen[e] {
						w.past = append(w.past, edgeSpan{e, since, now})
						delete(w.edges, e)
					}
				}
				for e := range seen {
					if _, there := w.edges[e]; !there {
						w.edges[e] = from
					}
				}
			}
		}
		if step%100 == 99 {
			drain()
		}
	}
	now = now.Add(tick)
	for _, f := range m.records {
		if !seen[[2]int64{int64(f.Slot), int64(f.WaitStart)}] {
			unseen++
			unseenTime += f.FailedAt.Sub(f.WaitStart)
		}
	}
	var still []snapshot.Wait
	for slot := range int32(len(m.wait)) {
		if w := known[slot]; w != nil {
			still = append(still, waiting(slot, uint64(w.lock+1), w.start))
		}
	}
	s.Sweep(Sweep{At: now, Previous: now.Add(-tick), Found: still, Failed: m.records})
	if s.Undecided() {
		t.Error("waits are undecided when all records were read")
	}
	drain()

	// Every wait that a sweep saw is closed, merged, or still there; once.
	byStart := map[[2]int64]*modelWait{}
	for _, w := range ended {
		byStart[[2]int64{int64(w.slot), int64(w.start)}] = w
	}
	if len(waitedFor)+int(unseen) != len(closed)+int(merged)+s.Waiting() || merged != shortRows {
		t.Fatalf("%d waits were seen; %d closed, %d merged in rows of %d, %d still waiting",
			len(waitedFor), len(closed), merged, shortRows, s.Waiting())
	}
	limited := config.MaxRowsPerSecond < testConfig.MaxRowsPerSecond
	inSecond := map[snapshot.Micros]int{}
	for _, e := range closed {
		key := [2]int64{int64(e.Waiter.Slot), int64(e.Start)}
		w := byStart[key]
		if w == nil {
			t.Fatalf("closed %+v is no wait, or closed twice", e)
		}
		delete(byStart, key)
		delete(opened, e.WaitID)
		if e.End != w.end || e.Outcome != w.outcome || e.Samples != w.samples || e.Tag.Field2 != uint32(w.lock+1) {
			t.Errorf("got end %v %v, %d samples, lock %d; want %v %v, %d, %d", e.End.Sub(base), e.Outcome, e.Samples,
				e.Tag.Field2, w.end.Sub(base), w.outcome, w.samples, w.lock+1)
		}
		if !w.handedOut {
			if e.End.Sub(e.Start) < config.MinDuration || !w.walked {
				t.Errorf("%v long, walked %t, and kept alone", e.End.Sub(e.Start), w.walked)
			}
			inSecond[secondOf(e.End)]++
		}
		if got, want := spansOf(e), w.spans(); len(want) <= maxPast && !slices.Equal(got, want) {
			t.Errorf("edges of %+v\n%v\nwant\n%v", e.Waiter, got, want)
		}
	}
	for second, n := range inSecond {
		if n > config.MaxRowsPerSecond {
			t.Errorf("%d rows in second %v", n, second.Sub(base))
		}
	}
	want, wantFailed := unseenTime, unseen
	for _, w := range byStart {
		want += w.end.Sub(w.start)
		if w.outcome.IsFailure() {
			wantFailed++
		}
		if w.handedOut || !limited && w.walked && w.end.Sub(w.start) >= config.MinDuration {
			t.Errorf("%+v was merged", w)
		}
	}
	if failed != wantFailed {
		t.Errorf("%d short waits failed, want %d", failed, wantFailed)
	}
	if short != want {
		t.Errorf("short waits last %v in all, want %v", short, want)
	}
	for _, w := range known {
		delete(opened, waitID(config.Node, w.start, w.slot, 1000+w.slot))
	}
	if len(opened) != 0 {
		t.Errorf("%d were handed out as open and never closed", len(opened))
	}
	return closed, merged
}

func (w *modelWait) spans() []edgeSpan {
	spans := slices.Clone(w.past)
	for i := range spans {
		spans[i].to = min(spans[i].to, w.end)
		spans[i].from = min(spans[i].from, spans[i].to)
	}
	return sortSpans(spans)
}

func spansOf(e history.Episode) (spans []edgeSpan) {
	for _, edge := range e.Edges {
		spans = append(spans, edgeSpan{modelEdge{edge.Kind, edge.Blocker.Slot}, edge.From, edge.To})
	}
	return sortSpans(spans)
}

func sortSpans(spans []edgeSpan) []edgeSpan {
	slices.SortFunc(spans, func(a, b edgeSpan) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.from, b.from), cmp.Compare(a.slot, b.slot), cmp.Compare(a.to, b.to))
	})
	return spans
}
