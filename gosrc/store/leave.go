package store

import (
	"context"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/queue"
)

// handBackTime is how long the writer may take to hand back what it holds once
// it was told to give up. It needs no server for that.
const handBackTime = 30 * time.Millisecond

// Left is what is not in the tables when the process ends.
type Left struct {
	// Items are batches of this life and of earlier ones, oldest first. All say
	// their run. The commit of the first ones may be in doubt: whoever writes
	// them leaves out those whose number the run row has.
	Items []queue.Item
	// Entered: the run of this life, and those before it, are in the tables.
	Entered bool
	// NoTables: the extension is not there. Nobody asked for history, or who did
	// has dropped it: there are no items, and the history is complete up to nothing.
	NoTables bool
}

// handedBack is what the writer held when it ended.
type handedBack struct {
	items    []queue.Item // its hand
	gaps     []history.Gap
	number   int64 // the highest of this life that it has let go of
	entered  bool
	noTables bool
}

// Leave ends the writing for good: what can be written within the given time
// is, the rest is handed back, with all that is in the queue. It is called once,
// when nothing is pushed any more.
func (s *Store) Leave(within time.Duration) Left {
	s.Stopping()
	giveUp := time.AfterFunc(within, func() { close(s.giveUp) })
	defer giveUp.Stop()
	late := time.NewTimer(within + handBackTime)
	defer late.Stop()
	var b handedBack
	back := false
	select {
	case b = <-s.back:
		back = true
	case <-late.C:
	}
	items, lost := s.queue.Take(1 << 62)
	for more := items; len(more) > 0; items = append(items, more...) {
		more, _ = s.queue.Take(1 << 62) // of the next run
	}
	if b.noTables {
		return Left{NoTables: true}
	}
	if lost.Rows > 0 {
		b.gaps = append(b.gaps, lostGap(lost))
	}
	run := int64(s.config.Load().Server.WorkerStart)
	if !back {
		// What it holds is its own until it comes back, which it does not.
		g := history.Gap{Began: s.Status().LastFlush, Reason: history.GapWriterBlocked,
			Detail: "the writer did not come back at the end; what it held may be lost"}
		g.Ended = g.Began
		if len(items) > 0 {
			g.Ended = items[0].From
		}
		if g.Began != 0 || g.Ended != 0 {
			g.Began, g.Ended = max(min(g.Began, g.Ended), 1), max(g.Began, g.Ended)
			b.gaps = append(b.gaps, g)
		}
	}
	return Left{Items: compose(b, items, run), Entered: b.entered}
}

// compose makes one list of what the writer held and what was queued behind
// it. The gaps go with a batch whose number cannot be in the tables: the first
// of this life that was not in the writer's hand, or one after all others.
func compose(b handedBack, queued []queue.Item, run int64) []queue.Item {
	all := append(append([]queue.Item(nil), b.items...), queued...)
	number := b.number
	last := b.items
	home := -1
	for i := range all {
		if batch := all[i].Batch; batch.Run == 0 {
			number = max(number, batch.Number)
			if home < 0 && i >= len(last) {
				home = i
			}
		}
	}
	if len(b.gaps) > 0 {
		if home < 0 {
			g := b.gaps[len(b.gaps)-1]
			all = append(all, queue.Item{From: g.Began, Batch: &history.Batch{Number: number + 1, CompleteTo: g.Ended}})
			home = len(all) - 1
		}
		all[home].Batch = withGaps(all[home].Batch, b.gaps)
	}
	for i := range all {
		if all[i].Batch.Run == 0 {
			own := *all[i].Batch
			own.Run = run
			all[i].Batch = &own
		}
	}
	return all
}

// withGaps returns b with gaps before its own.
func withGaps(b *history.Batch, gaps []history.Gap) *history.Batch {
	c := *b
	c.Gaps = append(append([]history.Gap(nil), gaps...), b.Gaps...)
	return &c
}

// leave is the end of the writing goroutine: it writes what it can, hands back
// what it could not, and only then takes leave of the server, which may be slow
// to answer.
func (w *writer) leave(ctx context.Context) {
	w.guard(func() { w.finish(ctx) })
	w.back <- w.handBack() // has room for the one there is
	w.disconnect()
	w.st.State, w.st.Hint = StateStopped, ""
	w.publish()
}

func (w *writer) handBack() handedBack {
	b := handedBack{gaps: w.gaps, number: w.number, entered: w.entered, noTables: w.absent}
	if w.session != nil {
		b.number = max(b.number, w.session.batch)
		if missed := w.session.missed; missed != nil {
			b.gaps = append(append([]history.Gap(nil), *missed), b.gaps...)
		}
	}
	if h := w.hand; h != nil {
		switch b.items = append([]queue.Item(nil), h.items...); {
		case len(h.gaps) == 0:
		case len(b.items) == 0:
			b.gaps = append(h.gaps, b.gaps...)
		default:
			b.items[0].Batch = withGaps(b.items[0].Batch, h.gaps)
		}
	}
	if held := w.held; held != nil {
		if w.hand != nil && w.hand.dropped {
			held.Lost -= w.hand.rows // it is kept after all
		}
		if held.Lost > 0 {
			b.gaps = append(b.gaps, *held)
		}
	}
	return b
}

// settle says, once, that nothing is left of what earlier lives had not
// written: it is in the tables, or counted in a gap that is, or there are none.
func (w *writer) settle() {
	if w.settled || !w.entered && !w.absent || len(w.gaps) > 0 ||
		w.queue.Restored() > 0 || w.hand != nil && w.hand.run != 0 {
		return
	}
	w.settled = true
	if w.restored != nil {
		w.restored()
	}
}

func lostGap(lost queue.Lost) history.Gap {
	return history.Gap{Began: lost.Began, Ended: lost.Ended, Reason: history.GapWriterBlocked, Lost: lost.Rows,
		Detail: "the writer could not write and the queue was full"}
}
