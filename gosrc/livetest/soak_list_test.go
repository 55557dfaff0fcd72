package livetest

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// soakList is the list of waits that the soak makes itself, beside the history.
// Clients write what they asked for and how it ended; looks at pg_locks add when
// the server says that it began. Its methods may be called from anywhere.
type soakList struct {
	mu       sync.Mutex
	attempts []*attempt
	releases []*release
	tempi    []tempo
	byHand   []loss
	scenes   int
}

func (l *soakList) newScene() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scenes++
	return l.scenes
}

// begin notes that a is about to be sent.
func (l *soakList) begin(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.sent = time.Now()
	l.attempts = append(l.attempts, a)
}

// end notes how it ended.
func (l *soakList) end(a *attempt, err error, broken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.done = time.Now()
	if err == nil {
		return
	}
	a.failure = failureOf(err)
	a.lost = a.failure.code == "" && broken
	if a.failure.code == "" && !broken {
		a.failure.message = err.Error()
	}
}

// release notes what may give locks of a scene back.
func (l *soakList) release(scene int, what func()) { l.givesBack(scene, 0, what) }

// leave hangs up. What the session holds is given back when its process notices.
func (l *soakList) leave(scene int, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		hangUp(conn) // it holds nothing
		return
	}
	l.givesBack(scene, noticesWithin, func() { hangUp(conn) })
}

func (l *soakList) givesBack(scene int, after time.Duration, what func()) {
	r := &release{scene: scene, from: time.Now()}
	l.mu.Lock()
	l.releases = append(l.releases, r)
	l.mu.Unlock()
	what()
	l.mu.Lock()
	defer l.mu.Unlock()
	r.to = time.Now().Add(after)
}

// noticesWithin is how long a process may take to notice that its client has gone:
// others are at work, and its transaction is rolled back then.
const noticesWithin = 500 * time.Millisecond

func (l *soakList) setTempo(t tempo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.from = time.Now()
	l.tempi = append(l.tempi, t)
}

func (l *soakList) removeByHand(from, to time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byHand = append(l.byHand, loss{from, to})
}

// take copies what waits that began after since may need, and forgets the rest.
func (l *soakList) take(since time.Time, e *soakEvidence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	attempts := l.attempts[:0]
	for _, a := range l.attempts {
		if a.done.IsZero() || a.done.After(since) {
			attempts = append(attempts, a)
			e.attempts = append(e.attempts, *a)
		}
	}
	clear(l.attempts[len(attempts):])
	l.attempts = attempts
	releases := l.releases[:0]
	for _, r := range l.releases {
		if r.to.IsZero() || r.to.After(since) {
			releases = append(releases, r)
			e.releases = append(e.releases, *r)
		}
	}
	clear(l.releases[len(releases):])
	l.releases = releases
	// The settings of before hold until the first change.
	for len(l.tempi) > 1 && l.tempi[1].from.Before(since.Add(-time.Minute)) {
		l.tempi = l.tempi[1:]
	}
	e.tempi = append(e.tempi, l.tempi...)
	e.byHand = append(e.byHand, l.byHand...)
}

// watchServer keeps looking at who waits, through all restarts, until ctx is done.
func watchServer(ctx context.Context, w *watcher, dial func(context.Context) (*pgx.Conn, error)) {
	defer close(w.ended)
	tick := time.NewTicker(soakPollEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		conn, err := dial(ctx)
		for err == nil && ctx.Err() == nil {
			w.look(ctx, conn)
			if w.takeError() != nil {
				break
			}
			<-tick.C
		}
		if conn != nil {
			hangUp(conn)
		}
		<-tick.C
	}
}

// soakPollEvery is how often the list of waits is made: a look takes all partitions
// of the lock manager, and this one goes on for an hour.
const soakPollEvery = 20 * time.Millisecond

// takeError returns what went wrong with the last look. That one saw nothing, so
// what waited before goes on until the next.
func (w *watcher) takeError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.err
	w.err = nil
	return err
}

// hangUp ends a connection on which an answer may still be under way.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
