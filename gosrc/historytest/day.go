package historytest

import (
	"fmt"
	"strings"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

// Waiters is how many sessions stand in one incident of a Day.
const Waiters = 20

// Day makes the facts of a loaded server, minute by minute.
type Day struct {
	*Mix
	relation uint32
	waits    int64
	pid      int32
}

// NewDay returns a day of a server with so many distinct statements, whose
// incidents are about one relation.
func NewDay(seed uint64, statements int, database, relation uint32) *Day {
	return &Day{Mix: NewMix(seed, statements, database), relation: relation}
}

// Minute returns the facts of the minute that begins at at, with so many
// incidents that begin in it; all of them end in it, too, within half a minute.
func (d *Day) Minute(at snapshot.Micros, incidents int) *history.Batch {
	b := &history.Batch{CompleteTo: at.Add(time.Minute), Health: []history.Health{{
		Minute: at, TicksDue: 6000, TicksDone: 6000, Period: 10 * time.Millisecond,
		ProbeP50: 12 * time.Microsecond, ProbeP99: 150 * time.Microsecond, ProbeMax: 400 * time.Microsecond,
		HoldP99: 20 * time.Microsecond, HoldMax: 90 * time.Microsecond, PartitionsTaken: 40, CPU: 600 * time.Millisecond, RowsWritten: 50}}}
	for n := range 60 {
		second := at.Add(time.Duration(n) * time.Second)
		s := d.Second(second)
		d.contend(&s)
		b.Seconds = append(b.Seconds, s)
		for key := range 2 {
			b.Short = append(b.Short, history.ShortWait{
				ShortWaitKey: history.ShortWaitKey{Second: second, Database: d.database, LockType: uint8(lockmgr.Tuple), Relation: d.relation,
					Mode: 7, QueryID: d.ids[key], RootPid: d.nextPid(), RootBackendStart: at},
				Waits: 1 + d.Int64N(20), Total: 90 * time.Millisecond, Longest: 30 * time.Millisecond})
		}
	}
	lengths := history.WaitLengths{Minute: at}
	for _, e := range events()[2:] { // what stands there twice adds up
		for bucket := range int32(8) {
			lengths.Bars = append(lengths.Bars, history.LengthBar{EventType: e.EventType, Event: e.Event, Bucket: bucket,
				Waits: 1 + d.Int64N(500), Time: time.Duration(1+d.Int64N(1000)) * time.Millisecond})
		}
	}
	b.Lengths = append(b.Lengths, lengths)
	for range incidents {
		began := at.Add(time.Duration(d.Int64N(int64(30 * time.Second))))
		b.Closed = append(b.Closed, d.Incident(began, Waiters, 200*time.Millisecond+time.Duration(d.Float64()*d.Float64()*25e9))...)
	}
	return b
}

// contend adds the locks and pages that were fought over in a second.
func (d *Day) contend(s *history.Second) {
	c := func() history.Contention {
		t := time.Duration(1+d.Int64N(900)) * time.Millisecond
		return history.Contention{Time: t, Waits: 1 + d.Int64N(50), WaitersMax: 1 + d.Int32N(20), Ahead: t, Exclusive: t / 2, Shared: t}
	}
	for n := range 3 {
		s.LWLocks = append(s.LWLocks, history.LWLock{Tranche: "LockManager", Instance: fmt.Sprintf("partition %d", d.IntN(16)), Mode: snapshot.LWExclusive, Contention: c()})
		s.Pages = append(s.Pages, history.Page{Found: true, File: snapshot.File{Tablespace: 1663, Database: d.database, Relfile: d.relation},
			Block: uint32(n), Mode: snapshot.LWExclusive, Contention: c()})
	}
	s.Slots = history.Slots{Each: 16, MaxLocks: 64}
	s.FastPath = []history.FastPath{{Database: d.database, Sessions: 40, SlotsMax: 16, Full: 3, Spilled: 20}}
}

// Incident returns the waits of so many sessions that all wait until the end:
// the first for a lock that a session idle in its transaction holds, the others
// behind the first.
func (d *Day) Incident(began snapshot.Micros, waiters int, lasts time.Duration) []history.Episode {
	tag := lockmgr.Tag{Field1: d.database, Field2: d.relation, Type: lockmgr.Relation, Method: lockmgr.DefaultMethod}
	root := d.session(began, "UPDATE stock SET reserved = reserved + 1")
	root.State, root.ApplicationName = snapshot.StateIdleInTransaction, "batch"
	for n := range 8 {
		root.Statements = append(root.Statements, snapshot.Statement{FirstSeen: began, LastSeen: began, QueryStart: began, QueryID: int64(n),
			Samples: int64(n), State: snapshot.StateActive, Query: strings.Repeat(fmt.Sprintf("SELECT %032x ", n), 4)})
	}
	end := began.Add(lasts)
	var first *snapshot.Session
	var all []history.Episode
	for place := range waiters {
		d.waits++
		start := min(began.Add(time.Duration(place)*5*time.Millisecond), end)
		e := history.Episode{
			WaitID: d.waits, Tag: tag, Mode: 1, Start: start, End: end, Outcome: history.Granted, Samples: 1 + int64(lasts/(10*time.Millisecond)), QueueKey: int64(place),
			Waiter: d.session(start, fmt.Sprintf("UPDATE orders SET state = $1 /* %s */ WHERE id = %d", strings.Repeat(fmt.Sprintf("%032x", d.IntN(500)), 6), d.waits)),
		}
		if place == 0 {
			first, e.Mode = e.Waiter, lockmgr.MaxMode
			e.HardCount = 1
			e.Edges = []history.Edge{{Kind: history.Hard, Modes: lockmgr.MaxMode.Bit(), From: start, Blocker: root}}
		} else {
			e.SoftCount, e.SoftPids = 1, []int32{first.Pid}
			e.Edges = []history.Edge{{Kind: history.Soft, Modes: lockmgr.MaxMode.Bit(), From: start, Blocker: first}}
		}
		e.Edges = append(e.Edges, history.Edge{Kind: history.Root, From: start, Blocker: root})
		all = append(all, e)
	}
	return all
}

// Opened returns the same waits as a flush saw them that came while they lasted.
func Opened(waits []history.Episode) []history.Episode {
	open := make([]history.Episode, len(waits))
	for i := range waits {
		open[i] = waits[i]
		open[i].End, open[i].Outcome = 0, history.StillWaiting
	}
	return open
}

func (d *Day) nextPid() int32 {
	d.pid = (d.pid + 1) % 30000
	return 1000 + d.pid
}

func (d *Day) session(at snapshot.Micros, query string) *snapshot.Session {
	pid := d.nextPid()
	return &snapshot.Session{Slot: pid % 1000, Pid: pid, State: snapshot.StateActive, Database: d.database, Role: 10,
		BackendStart: at.Add(-time.Hour), XactStart: at, QueryStart: at, StateChange: at, SeenAt: at,
		QueryID: d.ids[d.IntN(len(d.ids))], BackendType: "client backend", ApplicationName: "shop", ClientAddr: "192.0.2.7", Query: query}
}
