package episode

import (
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// The last moments of a wait are a hand-over: when the queue moves, whoever
// was ahead has the lock for a moment, and a walk may catch that. A reader who
// stood for minutes behind a queued ALTER TABLE would then be told that the
// ALTER held the lock, and that it was a root. What blocked for the last few
// milliseconds of a long wait is left out, and what blocked until then goes on
// to the end; the wait itself is as it was.
const (
	// handoverShare: one that lasted more than this part of the wait counts.
	handoverShare = 10
	// handoverPart of the wait, and no more than handoverMost, may be left out
	// even when it is more than Config.HandOver.
	handoverPart = 100
	handoverMost = 100 * time.Millisecond
)

// raise remembers how many hard blockers there were before the number rose.
type raise struct {
	before int32
	at     snapshot.Micros
}

// noteRaise is called before hardCount grows, with the time of the walk.
func (w *wait) noteRaise(at snapshot.Micros, handOver time.Duration) {
	if w.raised.at == 0 || at.Sub(w.raised.at) > max(handOver, handoverMost) {
		w.raised = raise{before: w.hardCount, at: at}
	}
}

// leaveOutHandover takes the blockers of the last moments out of an ended wait.
func (w *wait) leaveOutHandover(handOver time.Duration) {
	if handOver <= 0 {
		return
	}
	total := w.end.Sub(w.start)
	limit := min(max(handOver, min(total/handoverPart, handoverMost)), total/handoverShare)
	since := w.end.Add(-limit)
	late := func(e *liveEdge) bool { return e.from > since && e.from > w.start }

	var first snapshot.Micros // of those left out, 0 for none
	left := 0
	for i := range w.live {
		switch e := &w.live[i]; {
		case !late(e):
			left++
		case first == 0 || e.from < first:
			first = e.from
		}
	}
	if first == 0 {
		return
	}
	for i := range w.past {
		if w.past[i].To >= first {
			left++
		}
	}
	if left == 0 {
		return // nothing else is known for that time
	}

	kept := w.live[:0]
	for i := range w.live {
		if !late(&w.live[i]) {
			kept = append(kept, w.live[i])
		}
	}
	clear(w.live[len(kept):])
	w.live = kept
	past := w.past[:0]
	for _, e := range w.past {
		switch {
		case e.From > since && e.From > w.start:
			continue // came and went within the hand-over
		case e.To >= first:
			e.To = w.end
		}
		past = append(past, e)
	}
	clear(w.past[len(past):])
	w.past = past
	if w.raised.at != 0 && w.raised.at >= first {
		w.hardCount = max(w.raised.before, w.liveHard())
	}
}

// liveHard counts the hard blockers that are left; the count was of all.
func (w *wait) liveHard() (n int32) {
	for i := range w.live {
		if w.live[i].kind == history.Hard {
			n++
		}
	}
	return n
}
