package main

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/queue"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/sampler"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/spill"
	"pg_lock_history/gosrc/store"
)

// maxAge bounds how long facts are kept while the writer cannot write.
const maxAge = time.Minute

// limitMemory has the collector work harder near the limit. It is soft: the
// queue is what is bounded.
func limitMemory(c config.Config) { debug.SetMemoryLimit(c.MemoryLimit) }

// queueBytes leaves half of the memory to everything that is not queued facts.
func queueBytes(c config.Config) int64 { return c.MemoryLimit / 2 }

// sink is the store, with the queue before it, as the sampler sees it.
type sink struct {
	queue   *queue.Queue
	store   *store.Store
	cfg     config.Config // the latest; main thread only, as closing
	closing bool
	left    []byte        // of the anomaly detector by the life before, in the spill file; main thread only
	ticket  atomic.Uint64 // highest flush() ticket done; written by the store's goroutine

	// Where the answer goes when the store asks for a client slot, which the
	// main thread alone can see; nil when it does not. A newer question takes
	// the place of one that was not answered in time.
	slotAnswer atomic.Pointer[chan bool]
}

// newSink begins with what earlier lives of the worker have left.
func newSink(c config.Config, log *report.Log, wake func(), earlier *spill.Content, restored func()) *sink {
	s := &sink{cfg: c}
	s.queue = queue.New(s.limit())
	if earlier == nil {
		earlier = &spill.Content{}
	}
	items := make([]queue.Item, len(earlier.Entries))
	for i, e := range earlier.Entries {
		items[i] = queue.Item{Batch: e.Batch, From: e.From}
		if len(e.Batch.Detector) > 0 {
			s.left = e.Batch.Detector // newer than what the tables have
		}
	}
	s.queue.Restore(items)
	s.store = store.New(store.Options{
		Config: c,
		Queue:  s.queue,
		Log:    log,
		Wake:   wake,
		MayDial: func() <-chan bool {
			answer := make(chan bool, 1)
			s.slotAnswer.Store(&answer)
			wake()
			return answer
		},
		Flushed: func(ticket uint64) {
			s.ticket.Store(ticket)
			wake()
		},
		Earlier:  earlier.Runs,
		Restored: restored,
	})
	return s
}

// limit bounds the queue. Once the server is stopping nothing in it gets old in
// vain: the last client may stay for long, and the spill file takes it all.
func (s *sink) limit() queue.Limit {
	l := queue.Limit{Bytes: queueBytes(s.cfg), Age: maxAge}
	if s.closing {
		l.Age = 0
	}
	return l
}

func (s *sink) Push(b *history.Batch)     { s.queue.Push(b) }
func (s *sink) Queued() int64             { return s.queue.Bytes() }
func (s *sink) RewriteOpen() bool         { return s.store.RewriteOpen() }
func (s *sink) IsOurs(pid int32) bool     { return s.store.IsOurs(pid) }
func (s *sink) Ours(pids []int32) []int32 { return s.store.Ours(pids) }
func (s *sink) Poke()                     { s.store.Poke() }

func (s *sink) DetectorState() (state []byte, known bool) {
	if left := s.left; left != nil {
		s.left = nil
		return left, true
	}
	return s.store.DetectorState()
}

func (s *sink) Close() {
	s.closing = true
	s.queue.SetLimit(s.limit())
	s.store.Stopping()
}

func (s *sink) AskedForSlot() bool { return s.slotAnswer.Load() != nil }

func (s *sink) TellSlot(spare bool) {
	if answer := s.slotAnswer.Swap(nil); answer != nil {
		*answer <- spare
	}
}

func (s *sink) Configure(c config.Config) {
	s.cfg = c
	limitMemory(c)
	s.queue.SetLimit(s.limit())
	s.store.Configure(c)
}

func (s *sink) WantTag(t lockmgr.Tag)           { s.store.Names().WantTag(t) }
func (s *sink) WantFile(f snapshot.File)        { s.store.Names().WantFile(f) }
func (s *sink) WantSession(p *snapshot.Session) { s.store.Names().WantSession(p) }

func (s *sink) Status() sampler.SinkStatus {
	st := s.store.Status()
	return sampler.SinkStatus{
		State:       st.State,
		Target:      st.Target,
		LastFlush:   st.LastFlush,
		LastError:   st.LastError,
		LastErrorAt: st.LastErrorAt,
		Hint:        st.Hint,
		Errors:      int64(st.Errors),
		RowsWritten: int64(st.RowsWritten),
		RowsDropped: int64(st.RowsDropped),
		Dropping:    s.queue.Dropped(),
		Ticket:      s.ticket.Load(),
	}
}
