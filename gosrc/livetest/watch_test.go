package livetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// pollEvery is how often the list of waits is made: it is the window in which
// the end of a wait is known.
const pollEvery = 4 * time.Millisecond

// lockName names a lock by all columns of pg_locks that do.
const lockName = `concat_ws('/', l.locktype, l.database, l.relation, l.page, l.tuple, l.virtualxid, l.transactionid, l.classid, l.objid, l.objsubid)`

const pollSQL = `SELECT l.pid, coalesce((SELECT a.leader_pid FROM pg_stat_get_activity(l.pid) AS a), l.pid),
		l.waitstart, l.locktype, l.mode, ` + lockName + `
	FROM pg_locks AS l WHERE NOT l.granted`

// seenWait is a wait in the independent list.
type seenWait struct {
	pid, leader          int32
	start                time.Time // as the server says
	locktype, mode, lock string
	seen                 time.Time // begin of the last look that saw it
	gone                 time.Time // end of the first one that did not; zero while it lasts
}

type waitName struct {
	pid   int32
	start int64 // µs
}

// look is what one look saw.
type look struct {
	began   time.Time
	waiting map[int32]bool // leaders of whom a process waits
	nascent bool           // somebody waits since when is not known yet
}

// watcher makes the list. One goroutine of its own writes it; it ends with ctx.
type watcher struct {
	ended chan struct{}

	mu     sync.Mutex
	next   chan struct{} // closed with the next look
	last   look
	waits  map[waitName]*seenWait
	recent []*seenWait // those that go on
	err    error
}

func startWatcher(t *testing.T, ctx context.Context, dsn string) *watcher {
	conn := connect(t, ctx, dsn)
	w := &watcher{ended: make(chan struct{}), next: make(chan struct{}), waits: make(map[waitName]*seenWait)}
	go func() {
		defer close(w.ended)
		defer conn.Close(context.WithoutCancel(ctx))
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			w.look(ctx, conn)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return w
}

func (w *watcher) look(ctx context.Context, conn *pgx.Conn) {
	began := time.Now()
	l := look{began: began, waiting: make(map[int32]bool)}
	var rows []seenWait
	result, err := conn.Query(ctx, pollSQL)
	if err == nil {
		for result.Next() {
			var s seenWait
			var start *time.Time
			if err = result.Scan(&s.pid, &s.leader, &start, &s.locktype, &s.mode, &s.lock); err != nil {
				break
			}
			if start == nil {
				l.nascent = true
				continue
			}
			s.start = *start
			rows = append(rows, s)
			l.waiting[s.leader] = true
		}
		result.Close()
		if err == nil {
			err = result.Err()
		}
	}
	ended := time.Now()

	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			w.err = err
		}
	} else {
		w.last = l
		var still []*seenWait
		for i := range rows {
			name := waitName{rows[i].pid, rows[i].start.UnixMicro()}
			s := w.waits[name]
			if s == nil {
				s = &rows[i]
				w.waits[name] = s
				still = append(still, s)
			}
			s.seen = began
		}
		for _, s := range w.recent {
			if s.seen.Equal(began) {
				still = append(still, s)
			} else {
				s.gone = ended
			}
		}
		w.recent = still
	}
	close(w.next)
	w.next = make(chan struct{})
}

// fresh returns a look that began after the call.
func (w *watcher) fresh(t *testing.T) look {
	t.Helper()
	called := time.Now()
	for {
		w.mu.Lock()
		last, next, err := w.last, w.next, w.err
		w.mu.Unlock()
		if err != nil {
			t.Fatalf("list of waits: %v", err)
		}
		if last.began.After(called) {
			return last
		}
		select {
		case <-next:
		case <-w.ended:
			t.Fatal("list of waits: the time is up")
		}
	}
}

// processes returns who of a session waits, in order of pid.
func (w *watcher) processes(leader int32) []int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pids []int32
	for _, s := range w.recent {
		if s.leader == leader {
			pids = append(pids, s.pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// take returns the waits listed so far, all of which must have ended.
func (w *watcher) take() []seenWait {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []seenWait
	for name, s := range w.waits {
		if !s.gone.IsZero() {
			all = append(all, *s)
			delete(w.waits, name)
		}
	}
	return all
}
