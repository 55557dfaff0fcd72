package queue

import (
	"strings"
	"sync"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

const t0 = snapshot.Micros(800_000_000_000_000)

// batch n is complete n seconds after t0 and has one row for each of rows.
func batch(n, rows int) *history.Batch {
	return &history.Batch{
		Number:     int64(n),
		CompleteTo: t0.Add(time.Duration(n) * time.Second),
		Gaps:       make([]history.Gap, rows),
	}
}

func numbers(items []Item) (ns []int64) {
	for _, it := range items {
		ns = append(ns, it.Batch.Number)
	}
	return ns
}

func TestBounds(t *testing.T) {
	one := size(batch(1, 1))
	tests := []struct {
		name  string
		limit Limit
		push  []*history.Batch
		want  []int64
		lost  Lost
	}{
		{"all fit", Limit{Bytes: 3 * one}, []*history.Batch{batch(1, 1), batch(2, 1), batch(3, 1)}, []int64{1, 2, 3}, Lost{}},
		{"oldest goes by bytes", Limit{Bytes: 2 * one}, []*history.Batch{batch(1, 1), batch(2, 1), batch(3, 1)}, []int64{2, 3},
			Lost{Batches: 1, Rows: 1, Began: t0.Add(time.Second), Ended: t0.Add(time.Second)}},
		{"range of what went", Limit{Bytes: one}, []*history.Batch{batch(1, 1), batch(2, 1), batch(3, 1)}, []int64{3},
			Lost{Batches: 2, Rows: 2, Began: t0.Add(time.Second), Ended: t0.Add(2 * time.Second)}},
		{"oldest goes by age", Limit{Bytes: 100 * one, Age: 60 * time.Second}, []*history.Batch{batch(1, 1), batch(2, 1), batch(62, 1)}, []int64{2, 62},
			Lost{Batches: 1, Rows: 1, Began: t0.Add(time.Second), Ended: t0.Add(time.Second)}},
		{"a single one too large", Limit{Bytes: one}, []*history.Batch{batch(1, 1), batch(2, 50)}, []int64{2},
			Lost{Batches: 1, Rows: 1, Began: t0.Add(time.Second), Ended: t0.Add(time.Second)}},
		{"and the next makes room", Limit{Bytes: 2 * one}, []*history.Batch{batch(1, 50), batch(2, 1)}, []int64{2},
			Lost{Batches: 1, Rows: 50, Began: t0.Add(time.Second), Ended: t0.Add(time.Second)}},
		{"an empty one is no loss", Limit{Bytes: one}, []*history.Batch{batch(1, 0), batch(2, 1)}, []int64{2}, Lost{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := New(tt.limit)
			for _, b := range tt.push {
				q.Push(b)
			}
			if got := q.Dropped(); got != tt.lost.Rows {
				t.Errorf("%d rows dropped so far, want %d", got, tt.lost.Rows)
			}
			items, lost := q.Take(1 << 40)
			if q.Dropped() != 0 {
				t.Errorf("%d rows dropped that Take has told", q.Dropped())
			}
			if got := numbers(items); !equal(got, tt.want) {
				t.Errorf("batches %v, want %v", got, tt.want)
			}
			if lost != tt.lost {
				t.Errorf("lost %+v, want %+v", lost, tt.lost)
			}
			q.Release(items)
			if q.Bytes() != 0 || q.Len() != 0 {
				t.Errorf("%d bytes and %d batches are left", q.Bytes(), q.Len())
			}
			if _, again := q.Take(1); again != (Lost{}) {
				t.Errorf("lost was told twice: %+v", again)
			}
		})
	}
}

func TestTicketOfDroppedBatchIsKept(t *testing.T) {
	b := batch(1, 0)
	b.Ticket = 7
	q := New(Limit{Bytes: size(b)})
	q.Push(b)
	q.Push(batch(2, 1))
	if _, lost := q.Take(1); lost.Ticket != 7 {
		t.Errorf("ticket %d, want 7", lost.Ticket)
	}
}

func TestTakenCountsUntilReleased(t *testing.T) {
	one := size(batch(1, 1))
	q := New(Limit{Bytes: 2 * one})
	q.Push(batch(1, 1))
	items, _ := q.Take(1)
	q.Push(batch(2, 1))
	q.Push(batch(3, 1)) // no room for 2 and 3 beside the one taken
	if q.Bytes() != 2*one {
		t.Errorf("%d bytes, want %d", q.Bytes(), 2*one)
	}
	q.Release(items)
	items, lost := q.Take(1 << 20)
	if got := numbers(items); !equal(got, []int64{3}) || lost.Rows != 1 {
		t.Errorf("got %v and lost %+v, want batch 3 and one row lost", got, lost)
	}
}

func TestTakeIsBounded(t *testing.T) {
	one := size(batch(1, 1))
	q := New(Limit{Bytes: 100 * one})
	for n := range 5 {
		q.Push(batch(n+1, 1))
	}
	if items, _ := q.Take(2*one + 1); len(items) != 2 {
		t.Errorf("took %d batches, want 2", len(items))
	}
	if items, _ := q.Take(1); len(items) != 1 {
		t.Errorf("took %d batches, want at least one", len(items))
	}
}

func TestFromIsTheEndOfTheOneBefore(t *testing.T) {
	q := New(Limit{Bytes: 1 << 20})
	q.Push(batch(5, 1))
	q.Push(batch(7, 1))
	q.Push(batch(6, 1)) // the clock was set back
	items, _ := q.Take(1 << 20)
	want := []snapshot.Micros{t0.Add(5 * time.Second), t0.Add(5 * time.Second), t0.Add(6 * time.Second)}
	for i := range items {
		if items[i].From != want[i] {
			t.Errorf("batch %d: from %d, want %d", i, items[i].From, want[i])
		}
	}
}

func TestSizeCountsTextsOnce(t *testing.T) {
	s := &snapshot.Session{Query: strings.Repeat("x", 10_000)}
	b := &history.Batch{Open: []history.Episode{
		{Waiter: s, Edges: []history.Edge{{Blocker: s}}}, {Waiter: s},
	}}
	if got := size(b); got < 10_000 || got > 12_000 {
		t.Errorf("size = %d, want a little over 10000", got)
	}
}

func TestSizeCountsStatements(t *testing.T) {
	with := func(query string) int64 {
		s := &snapshot.Session{Statements: []snapshot.Statement{{Query: query}}}
		return size(&history.Batch{Closed: []history.Episode{{Edges: []history.Edge{{Blocker: s}, {Blocker: s}}}}})
	}
	if grown := with(strings.Repeat("x", 1000)) - with(""); grown != 1000 {
		t.Errorf("1000 bytes of a blocker's statement count as %d", grown)
	}
}

// One producer, one consumer, under the race detector: nothing is lost or
// doubled, and the signal never goes missing.
func TestConcurrent(t *testing.T) {
	const total = 2000
	q := New(Limit{Bytes: 64 * size(batch(1, 1))})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; n <= total; n++ {
			q.Push(batch(n, 1))
		}
	})
	var got int64
	for got < total {
		<-q.Ready()
		for {
			items, lost := q.Take(16 * 1024)
			got += int64(len(items)) + lost.Rows
			q.Release(items)
			if len(items) == 0 {
				break
			}
		}
	}
	wg.Wait()
	if got != total || q.Bytes() != 0 {
		t.Errorf("accounted for %d of %d, %d bytes left", got, total, q.Bytes())
	}
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// What earlier lives left is written first; it is old, and not dropped for that.
func TestRestore(t *testing.T) {
	one := size(batch(1, 1))
	old := func(run int64, n, rows int) Item {
		b := batch(n, rows)
		b.Run = run
		return Item{Batch: b, From: b.CompleteTo.Add(-time.Second)}
	}
	tests := []struct {
		name    string
		limit   Limit
		restore []Item
		push    []*history.Batch
		want    [][]int64 // by hands: never of two runs
		lost    Lost
	}{
		{"ahead, each run by itself", Limit{Bytes: 100 * one}, []Item{old(5, 3, 1), old(5, 4, 1), old(6, 1, 1)}, []*history.Batch{batch(100, 1)},
			[][]int64{{3, 4}, {1}, {100}}, Lost{}},
		{"not by age", Limit{Bytes: 100 * one, Age: time.Minute}, []Item{old(5, 1, 1)}, []*history.Batch{batch(1000, 1), batch(1100, 1)},
			[][]int64{{1}, {1100}}, Lost{Batches: 1, Rows: 1, Began: t0.Add(1000 * time.Second), Ended: t0.Add(1000 * time.Second)}},
		{"by bytes, at once", Limit{Bytes: 2 * one}, []Item{old(5, 1, 1), old(5, 2, 1), old(5, 3, 1)}, nil,
			[][]int64{{2, 3}}, Lost{Batches: 1, Rows: 1, Began: t0, Ended: t0.Add(time.Second)}},
		{"by bytes, before those of this life", Limit{Bytes: 2 * one}, []Item{old(5, 1, 1), old(5, 2, 1)}, []*history.Batch{batch(100, 1)},
			[][]int64{{2}, {100}}, Lost{Batches: 1, Rows: 1, Began: t0, Ended: t0.Add(time.Second)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := New(tt.limit)
			q.Restore(tt.restore)
			for _, b := range tt.push {
				q.Push(b)
			}
			select {
			case <-q.Ready():
			default:
				t.Error("the consumer is not told")
			}
			var lost Lost
			for _, want := range tt.want {
				items, l := q.Take(1 << 40)
				if got := numbers(items); !equal(got, want) {
					t.Errorf("batches %v, want %v", got, want)
				}
				if lost == (Lost{}) {
					lost = l
				}
				q.Release(items)
			}
			if lost != tt.lost {
				t.Errorf("lost %+v, want %+v", lost, tt.lost)
			}
			if q.Bytes() != 0 || q.Len() != 0 || q.Restored() != 0 {
				t.Errorf("%d bytes, %d batches, %d restored are left", q.Bytes(), q.Len(), q.Restored())
			}
		})
	}
}

func TestRestoredAreCountedUntilTaken(t *testing.T) {
	q := New(Limit{Bytes: 1 << 20})
	for n := range 3 {
		b := batch(n+1, 1)
		b.Run = 5
		q.Restore([]Item{{Batch: b, From: t0}})
	}
	q.Push(batch(9, 1))
	if q.Restored() != 3 {
		t.Errorf("%d are restored, want 3", q.Restored())
	}
	if items, _ := q.Take(1); len(items) != 1 || items[0].Batch.Number != 1 || q.Restored() != 2 {
		t.Errorf("took %v, %d are restored, want the first and 2", numbers(items), q.Restored())
	}
	_, _ = q.Take(1 << 20)
	if items, _ := q.Take(1 << 20); q.Restored() != 0 || !equal(numbers(items), []int64{9}) {
		t.Errorf("took %v, %d are restored, want our own and none", numbers(items), q.Restored())
	}
}
