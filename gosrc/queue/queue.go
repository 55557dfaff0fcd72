package queue

import (
	"slices"
	"sync"
	"time"
	"unsafe"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// Limit bounds what the queue holds.
type Limit struct {
	Bytes int64         // estimated memory, taken batches included
	Age   time.Duration // from the newest batch back; 0 for no bound
}

// Lost tells what was dropped since the last Take.
type Lost struct {
	Batches int
	Rows    int64
	Began   snapshot.Micros
	Ended   snapshot.Micros
	Ticket  uint64 // highest flush() ticket among them
}

// Item is one batch and the moment from which on it holds the facts.
type Item struct {
	Batch *history.Batch
	From  snapshot.Micros // the CompleteTo of the batch before it
	Bytes int64
}

// Queue is safe for one producer and one consumer, and for readers of its
// counters. mu protects all below it and is held for a few moves only.
type Queue struct {
	ready chan struct{}

	mu       sync.Mutex
	limit    Limit
	items    []Item // restored ones first
	restored int    // how many of items are
	queued   int64  // bytes in items
	taken    int64  // bytes handed out and not released
	lost     Lost
	complete snapshot.Micros // CompleteTo of the last batch pushed
}

// New returns an empty queue.
func New(limit Limit) *Queue {
	return &Queue{limit: limit, ready: make(chan struct{}, 1)}
}

// SetLimit changes the bounds; a smaller one acts at the next Push.
func (q *Queue) SetLimit(limit Limit) {
	q.mu.Lock()
	q.limit = limit
	q.mu.Unlock()
}

// Push hands b over. It never waits; when there is no room the oldest batches
// are dropped, but not b itself: however large, it is in memory already.
func (q *Queue) Push(b *history.Batch) {
	item := Item{Batch: b, Bytes: size(b)}

	q.mu.Lock()
	item.From = q.complete
	if item.From == 0 || item.From > b.CompleteTo {
		item.From = b.CompleteTo // first batch, or the clock was set back
	}
	q.complete = b.CompleteTo
	q.items = append(q.items, item)
	q.queued += item.Bytes
	q.boundLocked()
	q.mu.Unlock()
	q.signal()
}

// Restore puts batches of earlier lives ahead of everything, oldest first, as
// Take has handed them out there. They are bounded by bytes like all others,
// and not by age: they are old, and what is in line behind them is not.
func (q *Queue) Restore(items []Item) {
	if len(items) == 0 {
		return
	}
	items = slices.Clone(items)
	var bytes int64
	for i := range items {
		items[i].Bytes = size(items[i].Batch)
		bytes += items[i].Bytes
	}
	q.mu.Lock()
	q.items = slices.Insert(q.items, q.restored, items...)
	q.restored += len(items)
	q.queued += bytes
	q.boundLocked()
	q.mu.Unlock()
	q.signal()
}

func (q *Queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default: // the consumer has not yet seen the last one
	}
}

// boundLocked drops what is over the bounds, and never the newest batch: by bytes
// the oldest of all, by age the oldest of this life.
func (q *Queue) boundLocked() {
	for len(q.items) > 1 && q.queued+q.taken > q.limit.Bytes {
		q.dropLocked(0)
	}
	for q.limit.Age > 0 && len(q.items) > q.restored && q.complete.Sub(q.items[q.restored].Batch.CompleteTo) > q.limit.Age {
		q.dropLocked(q.restored)
	}
}

func (q *Queue) dropLocked(at int) {
	old := q.items[at]
	if at == 0 {
		q.items[0] = Item{} // let go of the batch
		q.items = q.items[1:]
	} else {
		q.items = slices.Delete(q.items, at, at+1)
	}
	if at < q.restored {
		q.restored--
	}
	q.queued -= old.Bytes

	rows := int64(old.Batch.Rows())
	if old.Batch.Ticket > q.lost.Ticket {
		q.lost.Ticket = old.Batch.Ticket
	}
	if rows == 0 {
		return // a time of which there was nothing to tell is not lost
	}
	if q.lost.Batches == 0 || old.From < q.lost.Began {
		q.lost.Began = old.From
	}
	q.lost.Ended = max(q.lost.Ended, old.Batch.CompleteTo)
	q.lost.Batches++
	q.lost.Rows += rows
}

// Take hands out batches of one run from the old end, at least one when there
// is any and no more than maxBytes otherwise, and what was dropped before them.
func (q *Queue) Take(maxBytes int64) ([]Item, Lost) {
	q.mu.Lock()
	defer q.mu.Unlock()

	var n int
	var bytes int64
	for n < len(q.items) && (n == 0 ||
		bytes+q.items[n].Bytes <= maxBytes && q.items[n].Batch.Run == q.items[0].Batch.Run) {
		bytes += q.items[n].Bytes
		n++
	}
	items := make([]Item, n)
	copy(items, q.items)
	clear(q.items[:n])
	q.items = q.items[n:]
	q.restored -= min(n, q.restored)
	q.queued -= bytes
	q.taken += bytes
	lost := q.lost
	q.lost = Lost{}
	return items, lost
}

// Dropped returns the rows dropped since the last Take.
func (q *Queue) Dropped() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost.Rows
}

// Release says that items got by Take are not held any more.
func (q *Queue) Release(items []Item) {
	var bytes int64
	for i := range items {
		bytes += items[i].Bytes
	}
	q.mu.Lock()
	q.taken -= bytes
	q.mu.Unlock()
}

// Ready is signalled after each Push; one signal may stand for several.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Bytes returns the estimated memory of all that is queued or taken.
func (q *Queue) Bytes() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queued + q.taken
}

// Restored returns the number of restored batches that are still queued.
func (q *Queue) Restored() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.restored
}

// Len returns the number of batches queued.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// size estimates the memory behind b. Sessions are shared between the
// episodes of a batch and counted once; those shared between batches are
// counted in each, so the estimate errs to the safe side.
func size(b *history.Batch) int64 {
	total := int64(unsafe.Sizeof(*b))
	seen := make(map[*snapshot.Session]struct{})
	session := func(s *snapshot.Session) {
		if s == nil {
			return
		}
		if _, ok := seen[s]; ok {
			return
		}
		seen[s] = struct{}{}
		total += int64(unsafe.Sizeof(*s)) + int64(len(s.Query)+len(s.ApplicationName)+len(s.BackendType)+len(s.ClientAddr)+4*len(s.Members))
		for i := range s.Statements {
			total += int64(unsafe.Sizeof(s.Statements[i])) + int64(len(s.Statements[i].Query))
		}
	}
	for _, list := range [][]history.Episode{b.Closed, b.Open} {
		for i := range list {
			e := &list[i]
			total += int64(unsafe.Sizeof(*e)) +
				int64(cap(e.Edges))*int64(unsafe.Sizeof(history.Edge{})) + int64(cap(e.SoftPids))*4
			session(e.Waiter)
			for j := range e.Edges {
				session(e.Edges[j].Blocker)
			}
		}
	}
	for i := range b.Deadlocks {
		d := &b.Deadlocks[i]
		total += int64(unsafe.Sizeof(*d)) + int64(cap(d.Members))*int64(unsafe.Sizeof(history.DeadlockMember{}))
		for j := range d.Members {
			session(d.Members[j].Session)
		}
	}
	total += int64(cap(b.Conflicts)) * int64(unsafe.Sizeof(history.Conflict{}))
	for i := range b.Conflicts {
		session(b.Conflicts[i].Session)
	}
	for _, s := range b.Texts {
		session(s)
	}
	for i := range b.Seconds {
		total += int64(unsafe.Sizeof(b.Seconds[i])) + int64(cap(b.Seconds[i].Loads))*int64(unsafe.Sizeof(history.Load{})) +
			int64(cap(b.Seconds[i].FastPath))*int64(unsafe.Sizeof(history.FastPath{})) +
			int64(cap(b.Seconds[i].LWLocks))*int64(unsafe.Sizeof(history.LWLock{})) +
			int64(cap(b.Seconds[i].Pages))*int64(unsafe.Sizeof(history.Page{}))
	}
	for i := range b.Hungry {
		total += int64(unsafe.Sizeof(b.Hungry[i])) + int64(cap(b.Hungry[i].Statements))*int64(unsafe.Sizeof(history.HungryStatement{}))
	}
	for i := range b.Lengths {
		total += int64(unsafe.Sizeof(b.Lengths[i])) + int64(cap(b.Lengths[i].Bars))*int64(unsafe.Sizeof(history.LengthBar{}))
	}
	total += int64(len(b.Short)) * int64(unsafe.Sizeof(history.ShortWait{}))
	for i := range b.Anomalies {
		total += int64(unsafe.Sizeof(b.Anomalies[i])) + int64(len(b.Anomalies[i].LeadingEvent))
	}
	total += int64(cap(b.Detector))
	total += int64(len(b.Gaps)) * int64(unsafe.Sizeof(history.Gap{}))
	total += int64(len(b.Health)) * int64(unsafe.Sizeof(history.Health{}))
	return total
}
