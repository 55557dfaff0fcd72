package store

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/queue"
	"pg_lock_history/gosrc/snapshot"
)

const dayOne = snapshot.Micros(800_000_000_000_000)

func item(run, number int64, gaps ...int64) queue.Item {
	b := &history.Batch{Run: run, Number: number, CompleteTo: dayOne.Add(time.Duration(number) * time.Second)}
	for _, lost := range gaps {
		b.Gaps = append(b.Gaps, history.Gap{Began: b.CompleteTo, Ended: b.CompleteTo, Reason: history.GapLate, Lost: lost})
	}
	return queue.Item{Batch: b, From: b.CompleteTo.Add(-time.Second)}
}

// told is a list of batches as run:number(gaps).
func told(items []queue.Item) string {
	var out []string
	for _, it := range items {
		var gaps []string
		for _, g := range it.Batch.Gaps {
			gaps = append(gaps, fmt.Sprint(g.Lost))
		}
		out = append(out, fmt.Sprintf("%d:%d(%s)", it.Batch.Run, it.Batch.Number, strings.Join(gaps, ",")))
	}
	return strings.Join(out, " ")
}

func TestCompose(t *testing.T) {
	gap := []history.Gap{{Began: dayOne, Ended: dayOne, Reason: history.GapWriterBlocked, Lost: 99}}
	type items = []queue.Item
	tests := []struct {
		name   string
		back   handedBack
		queued items
		want   string
	}{
		{"nothing", handedBack{}, nil, ""},
		{"hand, then queue", handedBack{items: items{item(0, 4, 1)}}, items{item(0, 5, 2)}, "7:4(1) 7:5(2)"},
		{"earlier lives stay what they are", handedBack{items: items{item(3, 4)}}, items{item(3, 5), item(5, 1), item(0, 1)}, "3:4() 3:5() 5:1() 7:1()"},
		// The hand may be in the tables already; the gap is not.
		{"gap behind the hand", handedBack{items: items{item(0, 4)}, gaps: gap}, items{item(0, 5, 2), item(0, 6)}, "7:4() 7:5(99,2) 7:6()"},
		{"gap with the hand alone", handedBack{items: items{item(0, 4)}, gaps: gap, number: 3}, nil, "7:4() 7:5(99)"},
		{"gap not with an earlier life", handedBack{items: items{item(3, 9)}, gaps: gap, number: 2}, items{item(3, 10)}, "3:9() 3:10() 7:3(99)"},
		{"gap alone", handedBack{gaps: gap, number: 12}, nil, "7:13(99)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := told(tt.queued)
			if got := told(compose(tt.back, tt.queued, 7)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if told(tt.queued) != before {
				t.Error("batches of others were changed")
			}
		})
	}
}

// leave ends the store as the worker does.
func (l *lab) leave(within time.Duration) Left {
	l.t.Helper()
	began := time.Now()
	left := l.store.Leave(within)
	if took := time.Since(began); took > within+handBackTime+100*time.Millisecond {
		l.t.Errorf("leaving took %s, it was to take %s at most", took, within)
	}
	l.stop()
	return left
}

// nextLife is a worker started again, with what the last one left.
func (l *lab) nextLife(left Left) {
	l.restore = left.Items
	l.now = l.now.Add(time.Minute)
	l.cfg.Server.WorkerStart = l.now
	l.start()
}

func late(lost int64) history.Batch {
	return history.Batch{Waiting: true, Gaps: []history.Gap{{Began: 1, Ended: 2, Reason: history.GapLate, Lost: lost}}}
}

const lateGaps = `SELECT coalesce(string_agg(lost::text, ',' ORDER BY lost), '') FROM lock_history.gap WHERE reason = 'late'`

func (l *lab) allSettled() {
	l.t.Helper()
	l.until("nothing of earlier lives is left", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.settled > 0 })
}

func TestLiveLeaveWritesWhatItCan(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, late(1)))
	l.push(time.Second, late(2))
	l.push(time.Second, late(3))
	left := l.leave(patience)
	if len(left.Items) != 0 || !left.Entered || left.NoTables {
		t.Errorf("left %s, %+v; want it all written", told(left.Items), left)
	}
	l.expect("1,2,3", lateGaps)
}

// What the tables do not take is handed back, and written by the next life
// under its own run, with the gap between the two.
func TestLiveNextLife(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, late(1)))
	first := l.cfg.Server.WorkerStart
	locker := connect(t, l.dsn)
	l.mustOn(locker, `BEGIN; LOCK TABLE lock_history.gap IN ACCESS EXCLUSIVE MODE`)
	l.push(time.Second, late(2))
	l.until("it is in the writer's hand", func() bool { return l.queue.Len() == 0 })
	end := l.push(time.Second, late(3))
	left := l.leave(20 * time.Millisecond)
	if want := fmt.Sprintf("%d:2(2) %d:3(3)", first, first); told(left.Items) != want || !left.Entered {
		t.Fatalf("left %s, %+v; want %s", told(left.Items), left, want)
	}
	l.mustOn(locker, `COMMIT`)
	l.expect("1", lateGaps)

	l.earlier = []history.Run{{ID: int64(first), CompleteTo: end}}
	l.nextLife(left)
	l.allSettled()
	l.expect("1,2,3", lateGaps)
	l.expect("t t", `SELECT concat_ws(' ', batch = 3, heartbeat = $2::timestamptz) FROM lock_history.run WHERE run = $1::bigint`, int64(first), end.Time())
	l.expect("t t <null>", `SELECT concat_ws(' ', began = $1::timestamptz, ended = $2::timestamptz, coalesce(detail, '<null>'))
		FROM lock_history.gap WHERE reason = 'stopped'`, end.Time(), l.cfg.Server.WorkerStart.Time())
	l.expect("0", `SELECT count(*) FROM lock_history.gap WHERE lost IN (2, 3) AND run <> $1::bigint`, int64(first))
	l.flushed(l.push(time.Second, late(4)))
	l.expect("1,2,3,4", lateGaps)
	l.leave(patience)

	// Once more, as after a crash before the file was removed.
	l.nextLife(left)
	l.allSettled()
	l.expect("1,2,3,4", lateGaps)
	l.flushed(l.push(time.Second, late(5)))
	if l.queue.Bytes() != 0 || l.settled != 1 {
		t.Errorf("%d bytes are held, told %d times that nothing is left", l.queue.Bytes(), l.settled)
	}
	// Tables made anew begin with the life that made them.
	l.must(`DROP EXTENSION pg_lock_history CASCADE`)
	l.must(`CREATE EXTENSION pg_lock_history`)
	l.flushed(l.push(time.Second, late(6)))
	l.expect("6", lateGaps)
	l.expect("1", `SELECT count(*) FROM lock_history.run`)
}

// Batches that are partly in: those with a number up to the run's are left out.
func TestLiveLoadedInPart(t *testing.T) {
	l := newLab(t, true)
	first := int64(l.now.Add(-time.Hour))
	at := func(n int64, lost int64) queue.Item {
		it := item(first, n, lost)
		it.Batch.CompleteTo += l.now - dayOne
		return it
	}
	l.earlier = []history.Run{{ID: first, CompleteTo: l.now}}
	l.restore = []queue.Item{at(3, 103), at(4, 104)}
	l.start()
	l.push(time.Second, history.Batch{}) // takes the gap between the lives along
	l.allSettled()
	l.leave(patience)
	l.expect("103,104", lateGaps)
	l.nextLife(Left{Items: []queue.Item{at(4, 104), at(5, 105), at(6, 106)}})
	l.allSettled()
	l.expect("103,104,105,106", lateGaps)
	l.expect("6", `SELECT batch FROM lock_history.run WHERE run = $1::bigint`, first)
}

// Lives that could not write at all: their rows are made, with the gaps between.
func TestLiveRunsThatNeverWrote(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(time.Second, late(1)))
	l.leave(patience)

	hour := func(n int) snapshot.Micros { return l.now.Add(time.Duration(n) * time.Hour) }
	l.earlier = []history.Run{{ID: int64(hour(1)), CompleteTo: hour(2)}, {ID: int64(hour(4)), CompleteTo: hour(6)}}
	old := item(int64(hour(4)), 1, 4)
	old.Batch.CompleteTo = hour(5)
	l.restore = []queue.Item{old}
	base := l.now
	l.now = hour(10)
	l.cfg.Server.WorkerStart = l.now
	l.start()
	l.allSettled()
	l.expect("0-1 2-4 6-10", `SELECT string_agg(extract(epoch FROM began - $1::timestamptz)::int / 3600 || '-' || extract(epoch FROM ended - $1::timestamptz)::int / 3600, ' ' ORDER BY began)
		FROM lock_history.gap WHERE reason = 'stopped'`, base.Time())
	l.expect("1,4", lateGaps)
	l.expect("4", `SELECT count(*) FROM lock_history.run`)
}

// Another history than then knows nothing of the run.
func TestLiveNoRowOfTheRun(t *testing.T) {
	l := newLab(t, true)
	l.restore = []queue.Item{item(int64(dayOne), 5, 5), item(int64(dayOne), 6, 6)}
	locker := connect(t, l.dsn)
	l.mustOn(locker, `BEGIN; LOCK TABLE lock_history.gap IN SHARE MODE`)
	l.start()
	l.until("it is in the writer's hand and cannot be written", func() bool { return l.store.Status().State == StateWriting && l.queue.Len() == 0 })
	if l.settled != 0 {
		t.Error("what is not written is said to be")
	}
	l.mustOn(locker, `COMMIT`)
	l.allSettled()
	l.expect("5,6", lateGaps)
	l.expect("6 true", `SELECT batch || ' ' || (heartbeat = $2::timestamptz) FROM lock_history.run WHERE run = $1::bigint`,
		int64(dayOne), dayOne.Add(6*time.Second).Time())
}

// Without tables facts are let go, those of earlier lives too; tables made
// later begin with this life.
func TestLiveLeftWithoutTables(t *testing.T) {
	l := newLab(t, false)
	before := l.now.Add(-time.Hour)
	l.earlier = []history.Run{{ID: int64(before), CompleteTo: before.Add(time.Minute)}}
	l.restore = []queue.Item{item(int64(before), 5, 5)}
	l.start()
	l.allSettled()
	l.must(`CREATE EXTENSION pg_lock_history`)
	l.store.Poke()
	l.until("it records", func() bool { return l.store.Status().State == StateRecording })
	l.flushed(l.push(time.Second, late(1)))
	l.expect("1", lateGaps)
	l.expect("1", `SELECT count(*) FROM lock_history.run`)
	l.must(`DROP EXTENSION pg_lock_history CASCADE`)
	l.push(time.Second, late(2))
	l.until("it waits", func() bool { return l.store.Status().State == StateWaiting })
	l.push(time.Second, late(3))
	if left := l.leave(patience); !left.NoTables || len(left.Items) != 0 {
		t.Errorf("left %s, %+v; want nothing: nobody has a history", told(left.Items), left)
	}
}

// What found no room is told by this life, and until it is, nothing is settled.
func TestLiveRestoredWithoutRoom(t *testing.T) {
	l := newLab(t, true)
	q := queue.New(queue.Limit{Bytes: 1 << 30})
	q.Push(item(0, 1, 1).Batch)
	l.bytes = q.Bytes() * 5 / 2
	l.restore = []queue.Item{item(int64(dayOne), 1, 101), item(int64(dayOne), 2, 102), item(int64(dayOne), 3, 103)}
	l.start()
	l.until("what had room is written", func() bool { return l.query(lateGaps) == "102,103" && l.queue.Bytes() == 0 })
	if l.settled != 0 {
		t.Error("the loss is not in the tables, and said to be settled")
	}
	l.push(time.Second, late(1))
	l.allSettled()
	l.expect("1 t", `SELECT lost || ' ' || left((run = $1::bigint)::text, 1) FROM lock_history.gap WHERE reason = 'writer blocked'`, int64(l.cfg.Server.WorkerStart))
}

// At the end nobody looks names up any more, so nobody is waited for.
func TestLiveLeaveDoesNotWaitForNames(t *testing.T) {
	l := newLab(t, true)
	dir := shortDir(t)
	mute, err := net.Listen("unix", filepath.Join(dir, fmt.Sprintf(".s.PGSQL.%d", l.cfg.Server.Port))) // never answers
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	l.cfg.LocalConnInfo = fmt.Sprintf("host=%s port=%d sslmode=disable", dir, l.cfg.Server.Port)
	l.start()
	l.flushed(l.push(time.Second, late(1)))
	for oid := range uint32(2) { // the first is being looked up, nobody has begun with the second
		e := l.wait(60+int32(oid), lockmgr.Tag{Field1: 4_000_000_000 + oid, Field2: 5}, l.session(50, "BEGIN"))
		l.push(time.Second, history.Batch{Open: []history.Episode{e}})
		if oid == 0 {
			l.until("the first is taken", func() bool { return l.queue.Len() == 0 })
		}
	}
	began := time.Now()
	if left := l.leave(patience); len(left.Items) != 0 {
		t.Errorf("left %s", told(left.Items))
	}
	if took := time.Since(began); took > nameWait {
		t.Errorf("it took %s", took)
	}
	l.expect("60,61", `SELECT string_agg(wait_id::text, ',' ORDER BY wait_id) FROM lock_history.open`)
}

// A server that cannot be reached: all is handed back, in time, and the lives
// before it are still owed.
func TestLiveLeaveUnreachable(t *testing.T) {
	l := newLab(t, true)
	l.cfg.ConnInfo = "host=192.0.2.1 connect_timeout=60" // nobody answers there, ever
	l.restore = []queue.Item{item(3, 1, 1)}
	l.start()
	l.push(time.Second, late(2))
	left := l.leave(20 * time.Millisecond)
	if want := fmt.Sprintf("3:1(1) %d:1(2)", int64(l.cfg.Server.WorkerStart)); told(left.Items) != want || left.Entered || l.settled != 0 {
		t.Errorf("left %s, %+v, settled %d; want %s", told(left.Items), left, l.settled, want)
	}
}

// What the queue dropped is told with what is left.
func TestLiveLeaveTellsWhatWasDropped(t *testing.T) {
	l := newLab(t, true)
	l.cfg.ConnInfo = "host=192.0.2.1 connect_timeout=60"
	l.start()
	l.push(time.Second, late(1))
	l.queue.SetLimit(queue.Limit{Bytes: l.queue.Bytes()})
	l.push(time.Second, late(2))
	left := l.leave(20 * time.Millisecond)
	if len(left.Items) != 1 || len(left.Items[0].Batch.Gaps) != 2 || left.Items[0].Batch.Gaps[0].Reason != history.GapWriterBlocked || left.Items[0].Batch.Gaps[0].Lost != 1 {
		t.Errorf("left %s: want the second batch, and a gap for the first", told(left.Items))
	}
}

// shortDir is one for sockets, whose paths must be short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// doubt stands between the store and the server, passes all on, and from a
// word on loses the answers.
type doubt struct {
	net.Listener
	upstream string

	mu   sync.Mutex
	lose bool // the answer to the next COMMIT, and the connection with it
	lost chan struct{}
}

func newDoubt(t *testing.T, dir, upstream string, port int) *doubt {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(dir, fmt.Sprintf(".s.PGSQL.%d", port)))
	if err != nil {
		t.Fatal(err)
	}
	d := &doubt{Listener: ln, upstream: filepath.Join(upstream, fmt.Sprintf(".s.PGSQL.%d", port)), lost: make(chan struct{})}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	wg.Go(func() { // ends when the listener is closed
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { d.serve(client) }) // ends with its client
		}
	})
	return d
}

func (d *doubt) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", d.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	answers := make(chan struct{})
	gone := make(chan struct{})
	go func() { // ends when the server hangs up
		defer close(answers)
		buf := make([]byte, 1<<16)
		for {
			n, err := server.Read(buf)
			select {
			case <-gone: // the client hears nothing any more
			default:
				if n > 0 {
					_, _ = client.Write(buf[:n])
				}
			}
			if err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			d.mu.Lock()
			if d.lose && strings.Contains(strings.ToLower(string(buf[:n])), "commit\x00") { // not "begin isolation level read committed"
				d.lose = false
				close(gone)
				close(d.lost)
			}
			d.mu.Unlock()
			_, _ = server.Write(buf[:n])
		}
		if err == io.EOF || err != nil {
			break
		}
		select {
		case <-gone:
			_ = client.Close() // between the COMMIT and its answer
		default:
		}
	}
	_ = server.(*net.UnixConn).CloseWrite() // the server does what it was asked to
	<-answers
}

// The connection is lost between a COMMIT and its answer, and the process ends:
// the next life finds out that the commit has gone through.
func TestLiveCommitInDoubtAtTheEnd(t *testing.T) {
	l := newLab(t, true)
	dir := shortDir(t)
	d := newDoubt(t, dir, l.cfg.Server.SocketDirectories[1], l.cfg.Server.Port)
	straight := l.cfg.Server.SocketDirectories
	l.cfg.Server.SocketDirectories = []string{dir}
	l.start()
	l.flushed(l.push(time.Second, late(1)))
	first := l.cfg.Server.WorkerStart
	d.mu.Lock()
	d.lose = true
	d.mu.Unlock()
	end := l.push(time.Second, late(2))
	select {
	case <-d.lost:
	case <-time.After(patience):
		t.Fatal("no COMMIT came by")
	}
	_ = d.Close() // no way back to the server in this life
	left := l.leave(20 * time.Millisecond)
	if want := fmt.Sprintf("%d:2(2)", first); told(left.Items) != want {
		t.Fatalf("left %s, want %s: nobody knows whether it is in", told(left.Items), want)
	}
	l.until("the commit has gone through", func() bool { return l.query(lateGaps) == "1,2" })

	l.cfg.Server.SocketDirectories = straight
	l.earlier = []history.Run{{ID: int64(first), CompleteTo: end}}
	l.nextLife(left)
	l.allSettled()
	l.expect("1,2", lateGaps)
}

// The writer's session ends a hundred times: everything is there once.
func TestLiveSessionEndedOften(t *testing.T) {
	l := newLab(t, true)
	l.start()
	killer := connect(t, l.dsn)
	var end snapshot.Micros
	for i := range 100 {
		end = l.push(time.Second, late(int64(i)))
		l.mustOn(killer, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND datname = current_database()`)
	}
	l.flushed(end)
	l.expect("100 100", `SELECT count(*) || ' ' || count(DISTINCT lost) FROM lock_history.gap WHERE reason = 'late'`)
}
