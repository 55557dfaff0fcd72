package episode

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

func TestHandOver(t *testing.T) {
	// Process 2 waits behind 1, which waits for 9 until it gets the lock itself.
	const lock = 7
	w1, w2 := waiting(1, lock, ms(1)), waiting(2, lock, ms(2))
	before := queueOf{lock, []int32{9}, []snapshot.Wait{w1, w2}}
	after := queueOf{lock, []int32{1}, []snapshot.Wait{w2}}
	tests := []struct {
		name     string
		handOver time.Duration
		granted  snapshot.Micros // when 1 got the lock
		end      snapshot.Micros // sweep that misses 2
		want     []string        // edges of 2: kind, pid, from, to
		count    int32
	}{
		{
			name: "the last moments of a long wait are left out", handOver: 20 * time.Millisecond,
			granted: ms(4000), end: ms(4010),
			want:  []string{"1 1009 2-4005", "2 1001 2-4005", "3 1009 2-4005"},
			count: 1,
		},
		{
			name: "a blocker that stays is kept", handOver: 20 * time.Millisecond,
			granted: ms(4000), end: ms(4300),
			want:  []string{"1 1009 2-4000", "2 1001 2-4000", "3 1009 2-4000", "1 1001 4000-4295", "3 1001 4000-4295"},
			count: 1,
		},
		{
			name: "so is everything in a short wait", handOver: 20 * time.Millisecond,
			granted: ms(120), end: ms(140),
			want:  []string{"1 1009 2-120", "2 1001 2-120", "3 1009 2-120", "1 1001 120-135", "3 1001 120-135"},
			count: 1,
		},
		{
			name: "up to a hundredth of the wait", handOver: 20 * time.Millisecond,
			granted: ms(8000), end: ms(8070),
			want:  []string{"1 1009 2-8065", "2 1001 2-8065", "3 1009 2-8065"},
			count: 1,
		},
		{
			name: "switched off", handOver: 0,
			granted: ms(4000), end: ms(4010),
			want:  []string{"1 1009 2-4000", "2 1001 2-4000", "3 1009 2-4000", "1 1001 4000-4005", "3 1001 4000-4005"},
			count: 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := testConfig
			c.HandOver = tt.handOver
			s := newStage(c)
			s.sweep(ms(10), w1, w2)
			s.walk(ms(10), before)
			s.sweep(tt.granted, ended(1, lock, ms(1), snapshot.EndedGranted), w2)
			s.walk(tt.granted, after)
			s.sweep(tt.end, ended(2, lock, ms(2), snapshot.EndedGranted))
			for _, e := range s.Drain(tt.end, DrainOptions{}).Closed {
				if e.Waiter.Pid != w2.Pid {
					continue
				}
				var got []string
				for _, edge := range e.Edges {
					got = append(got, fmt.Sprintf("%d %d %v-%v", edge.Kind, edge.Blocker.Pid, (edge.From-base)/1000, (edge.To-base)/1000))
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("edges\n%q, want\n%q", got, tt.want)
				}
				if e.HardCount != tt.count {
					t.Errorf("%d hard blockers at most, want %d", e.HardCount, tt.count)
				}
				return
			}
			t.Fatal("the wait of process 2 is not among the closed ones")
		})
	}
}

// A reader behind a queued ALTER TABLE has no hard blocker at all.
func TestHandOverTakesBackTheCount(t *testing.T) {
	w := &wait{start: ms(0), end: ms(1000), live: []liveEdge{
		{edgeKey: edgeKey{kind: history.Hard, slot: 1}, from: ms(990), blocker: &snapshot.Session{}},
		{edgeKey: edgeKey{kind: history.Root, slot: 1}, from: ms(990), blocker: &snapshot.Session{}},
	}, past: []history.Edge{
		{Kind: history.Soft, From: ms(0), To: ms(990), Blocker: &snapshot.Session{}},
		{Kind: history.Root, From: ms(0), To: ms(990), Blocker: &snapshot.Session{}},
	}}
	w.noteRaise(ms(990), 20*time.Millisecond)
	w.hardCount = 1
	w.leaveOutHandover(20 * time.Millisecond)
	if w.hardCount != 0 || len(w.live) != 0 || len(w.past) != 2 || w.past[0].To != w.end {
		t.Errorf("%d hard blockers, %d live and %d past edges to %v; want none, 0, 2 to the end", w.hardCount, len(w.live), len(w.past), w.past[0].To)
	}
}
