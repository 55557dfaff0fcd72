package store

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/historytest"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/queue"
	"pg_lock_history/gosrc/snapshot"
)

// another is a second server that writes to the history of l: from elsewhere, and
// with a clock that is ahead of the history's.
func (l *lab) another(name string, ahead time.Duration) *lab {
	o := &lab{t: l.t, dsn: l.dsn, db: l.db, cfg: l.cfg, changed: make(chan struct{}), ahead: ahead}
	o.now = snapshot.FromTime(time.Now().Add(ahead))
	o.cfg.NodeName, o.cfg.ConnInfo, o.cfg.LocalConnInfo = name, l.dsn, l.dsn
	o.cfg.Server.SocketDirectories = nil
	o.cfg.Server.WorkerStart = o.now
	o.cfg.Server.PostmasterStart = 0 // another one
	o.cfg.Server.SystemIdentifier = 4711
	return o
}

func tagOf(n uint32) lockmgr.Tag { return lockmgr.Tag{Field1: n, Type: lockmgr.TransactionID} }

func TestLiveClockOfANode(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(0, aGap(1)))
	nodes := []struct {
		name  string
		ahead time.Duration
	}{{"an hour ahead", time.Hour}, {"an hour behind", -time.Hour}, {"a month ahead", 30 * 24 * time.Hour}, {"a month behind", -30 * 24 * time.Hour}}
	for i, n := range nodes {
		o := l.another(n.name, n.ahead)
		o.start()
		e := o.wait(int32(70+i), tagOf(740), o.session(50, "BEGIN"))
		e.Start = o.now
		o.flushed(o.push(time.Millisecond, history.Batch{Open: []history.Episode{e}, Waiting: true}))
		l.flushed(l.push(time.Second, aGap(1))) // and the others in between
		l.expect("true", `SELECT clock_offset BETWEEN $2::interval - clock_error - interval '50 ms' AND $2::interval + clock_error + interval '50 ms'
			FROM lock_history.nodes WHERE node = $1`, n.name, fmt.Sprintf("%f s", n.ahead.Seconds()))
		l.expect("recording t t", `SELECT concat_ws(' ', state, lag < '1 min', last_seen BETWEEN now() - interval '1 min' AND now()) FROM lock_history.nodes WHERE node = $1`, n.name)
		l.expect("open t", `SELECT coalesce(outcome, 'open') || ' ' || CASE WHEN duration BETWEEN '0' AND '1 min' THEN 't' ELSE duration::text END FROM lock_history.waits WHERE node = $1`, n.name)
		l.expect("0", `SELECT count(*) FROM lock_history.gaps WHERE node = $1`, n.name)
	}
	l.expect("1", `SELECT count(*) FROM lock_history.ring WHERE opened_at IS NOT NULL`)
}

// A wait that goes on must not stay behind in a segment that another node has closed,
// and what is later there, by the clock of the one that wrote it, is still found.
func TestLiveAnotherNodeTurnsTheRing(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(0, aGap(1)))
	o := l.another("ahead", 2*l.share())
	o.start()
	to := o.push(time.Second, history.Batch{Open: []history.Episode{o.wait(70, tagOf(740), o.session(50, "BEGIN"))}, Waiting: true})
	o.flushed(to)
	o.store.RewriteOpen()
	day := l.share()
	l.flushed(l.push(day+time.Minute, aGap(1)))
	l.expect("0 1", `SELECT concat_ws(' ', min(seg) FILTER (WHERE closed_at IS NOT NULL), max(seg) FILTER (WHERE opened_at IS NOT NULL AND closed_at IS NULL)) FROM lock_history.ring`)
	l.expect("true", `SELECT closed_at >= $1 FROM lock_history.ring_segment WHERE seg = 0`, to.Time())
	o.flushed(o.push(time.Second, aGap(1)))
	if !o.store.RewriteOpen() {
		t.Error("another node has turned the ring, and open waits are not asked for")
	}
	l.expect("1", `SELECT last_seg FROM lock_history.run JOIN lock_history.node USING (node_id) WHERE node = 'ahead'`)
}

// A segment that another node closes while a batch is on its way into it gets
// nothing more of it, and is not added up by minute while one is at it.
func TestLiveClosedUnderAWriter(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(0, aGap(1)))
	o := l.another("slow", 0)
	o.start()
	o.flushed(o.push(time.Second, aGap(1)))
	busy := connect(t, l.dsn)
	l.mustOn(busy, `BEGIN`)
	l.mustOn(busy, `LOCK TABLE lock_history.gap_0 IN SHARE MODE; LOCK TABLE lock_history.second_0 IN ROW EXCLUSIVE MODE`)
	to := o.push(time.Second, aGap(5))
	o.until("its writer waits", func() bool {
		return o.store.Status().Errors > 0 || l.query(`SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'lock_history.gap_0'::regclass)`) == "true"
	})
	l.must(`UPDATE lock_history.ring SET closed_at = CASE seg WHEN 0 THEN now() END, opened_at = CASE seg WHEN 0 THEN opened_at ELSE now() END,
		round = round + seg, is_empty = false WHERE seg IN (0, 1)`)
	l.until("it is not added up", func() bool {
		_, err := l.db.Exec(t.Context(), `SELECT lock_history.roll_up(0::smallint, 0::smallint, '10 min')`)
		if err == nil {
			t.Fatal("segment 0 has been rolled up while somebody writes into it")
		}
		return strings.Contains(err.Error(), "second_0")
	})
	l.mustOn(busy, `COMMIT`)
	o.flushed(to)
	l.expect("1", `SELECT string_agg(seg::text, ',') FROM lock_history.gap WHERE lost = 5`)
	l.flushed(l.push(time.Second, aGap(1)))
	l.rolled()
}

// A server that has been removed begins anew when it is there again.
func TestLiveForgottenNode(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(0, aGap(1)))
	o := l.another("back", 0)
	o.start()
	o.flushed(o.push(time.Second, aGap(5)))
	l.must(`UPDATE lock_history.run SET written_at = written_at - interval '1 hour'`)
	l.must(`SELECT lock_history.forget_node('back')`)
	o.flushed(o.push(time.Second, aGap(6)))
	l.expect("6", `SELECT string_agg(lost::text, ',') FROM lock_history.gaps WHERE node = 'back' AND reason = 'late'`)
	l.expect("recording 1", `SELECT state || ' ' || lives FROM lock_history.nodes WHERE node = 'back'`)
}

// What a life long ago has left does not turn the ring back.
func TestLiveOldFactsDoNotTurnTheRing(t *testing.T) {
	l := newLab(t, true)
	l.start()
	l.flushed(l.push(0, aGap(1)))
	o := l.another("late", 0)
	old := o.now.Add(-3 * l.share())
	left := aGap(7)
	left.Run, left.Number, left.CompleteTo = int64(old), 1, old.Add(time.Second)
	o.nextLife(Left{Items: []queue.Item{{Batch: &left, From: old}}})
	o.allSettled()
	o.flushed(o.push(time.Second, aGap(1)))
	l.flushed(l.push(time.Second, aGap(1)))
	l.expect("1", `SELECT count(*) FROM lock_history.ring WHERE opened_at IS NOT NULL`)
	l.expect("1", `SELECT count(*) FROM lock_history.gap WHERE lost = 7`)
}

// Many write at once while the ring turns: nobody loses anything, waits for
// another for long, or has anything to complain of. PLH_WRITERS and PLH_BATCHES
// make it larger.
func TestLiveManyWriters(t *testing.T) {
	writers, batches, rows := 20, 15, 40
	if n, err := strconv.Atoi(os.Getenv("PLH_WRITERS")); err == nil {
		writers = n
	}
	if n, err := strconv.Atoi(os.Getenv("PLH_BATCHES")); err == nil {
		batches = n
	}
	l := newLab(t, true)
	l.cfg.MaxSize = int64(writers*batches*rows) * 1500 // most of it will be used: some turns, and nothing is thrown away
	nodes := make([]*lab, writers)
	for i := range nodes {
		nodes[i] = l.another(fmt.Sprintf("node %d", i), time.Duration(i-writers/2)*time.Minute)
		nodes[i].start()
	}
	database := l.databaseOID()
	began := time.Now()
	last := make([]snapshot.Micros, writers)
	for n := range batches {
		for i, o := range nodes {
			b := history.Batch{Seconds: []history.Second{historytest.NewMix(uint64(i), 20, 5).Second(o.now)}}
			blocker := &snapshot.Session{Slot: 1, Pid: int32(1000 + n), State: snapshot.StateIdleInTransaction, Database: database, Role: 10,
				BackendStart: o.now, SeenAt: o.now, BackendType: "client backend", Query: strings.Repeat("x", 900)}
			for j := range rows {
				b.Closed = append(b.Closed, history.Episode{WaitID: int64(n*rows + j), Tag: tagOf(uint32(j)), Mode: 5, Start: o.now, End: o.now.Add(time.Millisecond),
					Outcome: history.Granted, Samples: 1, HardCount: 1, Edges: []history.Edge{{Kind: history.Hard, Modes: 2, From: o.now, Blocker: blocker}},
					Waiter: &snapshot.Session{Slot: 2, Pid: int32(j), State: snapshot.StateActive, Database: database, Role: 10,
						BackendStart: o.now, SeenAt: o.now, BackendType: "client backend", Query: "UPDATE t"}})
			}
			last[i] = o.push(time.Second, b)
		}
		for i, o := range nodes { // all write at the same time
			o.flushed(last[i])
		}
	}
	took := time.Since(began)
	for _, o := range nodes {
		st := o.store.Status()
		if st.RowsDropped != 0 || st.State != StateRecording {
			t.Errorf("%s: %+v", o.cfg.NodeName, st)
		}
		for _, m := range o.texts {
			if !strings.HasPrefix(m, "lock history is written to") {
				t.Errorf("%s has told: %s", o.cfg.NodeName, m)
			}
		}
	}
	l.expect(fmt.Sprint(writers*batches*rows, " ", writers*batches*rows), `SELECT count(*) || ' ' || count(DISTINCT (node_id, wait_id)) FROM lock_history.episode WHERE seg < 8`)
	l.expect("true", `SELECT count(*) > 2 FROM lock_history.ring WHERE opened_at IS NOT NULL`)
	l.expect("1", `SELECT count(*) FROM lock_history.ring WHERE opened_at IS NOT NULL AND closed_at IS NULL`)
	l.expect("0", `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
	l.expect(fmt.Sprint(writers, " true"), `SELECT count(*) || ' ' || bool_and(rows > 0 AND state = 'recording') FROM lock_history.nodes`)
	t.Logf("%d writers, %d transactions in %s, %s", writers, writers*batches, took.Round(time.Millisecond),
		l.query(`SELECT count(*) FILTER (WHERE opened_at IS NOT NULL) || ' segments, ' || sum((SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c
			WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'r' AND c.relname ~ ('^[a-z_]+_' || seg || '$'))) FROM lock_history.ring`))
}

// A way that is gone without a word is given up within the time of silence.
func TestPatientDial(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := patientDial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got, idle int
	err = raw.Control(func(fd uintptr) {
		got, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
		idle, _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
	})
	if err != nil || got != int(silence/time.Millisecond) || idle != 10 {
		t.Errorf("TCP_USER_TIMEOUT %d ms, TCP_KEEPIDLE %d s, %v", got, idle, err)
	}
}
