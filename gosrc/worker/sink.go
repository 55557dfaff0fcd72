package main

import (
	"sync/atomic"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/queue"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/sampler"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/store"
)

// maxAge bounds how long facts are kept while the writer cannot write.
const maxAge = time.Minute

// limit leaves half of the memory to everything that is not queued facts.
func limit(c config.Config) queue.Limit { return queue.Limit{Bytes: c.MemoryLimit / 2, Age: maxAge} }

// sink is the store, with the queue before it, as the sampler sees it.
type sink struct {
	queue  *queue.Queue
	store  *store.Store
	ticket atomic.Uint64 // highest flush() ticket done; written by the store's goroutine

	// Where the answer goes when the store asks for a client slot, which the
	// main thread alone can see; nil when it does not. A newer question takes
	// the place of one that was not answered in time.
	slotAnswer atomic.Pointer[chan bool]
}

func newSink(c config.Config, log *report.Log, wake func()) *sink {
	s := &sink{queue: queue.New(limit(c))}
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
	})
	return s
}

func (s *sink) Push(b *history.Batch) { s.queue.Push(b) }
func (s *sink) Queued() int64         { return s.queue.Bytes() }
func (s *sink) RewriteOpen() bool     { return s.store.RewriteOpen() }
func (s *sink) Poke()                 { s.store.Poke() }
func (s *sink) Close()                { s.store.Stopping() }

func (s *sink) AskedForSlot() bool { return s.slotAnswer.Load() != nil }

func (s *sink) TellSlot(spare bool) {
	if answer := s.slotAnswer.Swap(nil); answer != nil {
		*answer <- spare
	}
}

func (s *sink) Configure(c config.Config) {
	s.queue.SetLimit(limit(c))
	s.store.Configure(c)
}

func (s *sink) WantTag(t lockmgr.Tag)           { s.store.Names().WantTag(t) }
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
		Ticket:      s.ticket.Load(),
	}
}
