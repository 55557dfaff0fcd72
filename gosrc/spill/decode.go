package spill

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

// decode verifies the whole of raw, read from the file of that inode, before it
// uses any of it.
func decode(raw []byte, inode uint64, self Identity) (*Content, error) {
	if len(raw) < headerBytes+crcBytes || string(raw[:len(magic)]) != magic {
		return nil, damaged("%d bytes do not begin as it should", len(raw))
	}
	version := binary.BigEndian.Uint32(raw[len(magic):])
	length := binary.BigEndian.Uint64(raw[len(magic)+4:])
	if have := uint64(len(raw) - headerBytes - crcBytes); have != length {
		return nil, damaged("%d bytes where there should be %d", have, length)
	}
	body := raw[headerBytes : len(raw)-crcBytes]
	want := binary.BigEndian.Uint32(raw[len(raw)-crcBytes:])
	if got := crc32.Checksum(raw[:len(raw)-crcBytes], castagnoli); got != want {
		return nil, damaged("its checksum is %08x where it should be %08x", got, want)
	}
	if version != format {
		return nil, &Refusal{
			Reason: fmt.Sprintf("%s has format %d, this version reads %d", FileName, version, format),
			Hint:   "It was written by another version of pg_lock_history. " + hintLost,
		}
	}
	d := &decoder{rest: body}
	owner := Identity{SystemIdentifier: d.uint64()}
	written := d.uint64()
	owner.Node, owner.ExtensionVersion = d.ownText(), d.ownText()
	if d.bad {
		return nil, damaged("it does not say whose it is")
	}
	if owner.SystemIdentifier != self.SystemIdentifier {
		return nil, &Refusal{
			Reason: fmt.Sprintf("%s is of another server: system identifier %d, here %d", FileName, owner.SystemIdentifier, self.SystemIdentifier),
			Hint:   "It was copied from there; what it holds belongs to the history of that server.",
		}
	}
	// The very file that was written, not a copy of it: the node has a new name.
	if owner.Node != self.Node && (written != inode || inode == 0) {
		return nil, &Refusal{
			Reason: fmt.Sprintf("%s is a copy of the file of node %q, this is node %q", FileName, owner.Node, self.Node),
			Hint: "A copied data directory: nothing needs to be done. " +
				"One that was moved to another disk, with a new port, host name or pg_lock_history.node_name: rename the file back and start once under the old name to have it read.",
		}
	}
	c := d.content()
	if d.bad || len(d.rest) > 0 {
		return nil, damaged("it cannot be read (written by version %s), %d bytes before its end", owner.ExtensionVersion, len(d.rest))
	}
	if owner.Node != self.Node {
		c.Formerly = owner.Node
	}
	return c, nil
}

// decoder reads from the front of rest. After the first thing that cannot be,
// bad is set and everything reads as zero.
type decoder struct {
	rest     []byte
	bad      bool
	texts    []string
	sessions []*snapshot.Session
}

func (d *decoder) fail() {
	d.bad = true
}

func (d *decoder) bytes(n uint64) []byte {
	if d.bad || n > uint64(len(d.rest)) {
		d.fail()
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) uint64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) uint() uint64 {
	if d.bad {
		return 0
	}
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) int() int64 {
	v := d.uint()
	return int64(v>>1) ^ -int64(v&1)
}

func (d *decoder) uint32() uint32 {
	v := d.uint()
	if v > math.MaxUint32 {
		d.fail()
	}
	return uint32(v)
}

func (d *decoder) int32() int32 {
	v := d.int()
	if v != int64(int32(v)) {
		d.fail()
	}
	return int32(v)
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) bool() bool { return d.byte() != 0 }

// count reads the length of a list whose elements take at least least bytes:
// what cannot follow is not made room for.
func (d *decoder) count(least int) int {
	n := d.uint()
	if n > uint64(len(d.rest)/least) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) time(base snapshot.Micros) snapshot.Micros {
	v := d.uint()
	if v == 0 {
		return 0
	}
	v--
	return base + snapshot.Micros(int64(v>>1)^-int64(v&1))
}

// ownText is one that stands where it is used.
func (d *decoder) ownText() string { return string(d.bytes(d.uint())) }

func (d *decoder) text() string {
	id := d.uint()
	if d.bad || id >= uint64(len(d.texts)) {
		d.fail()
		return ""
	}
	return d.texts[id]
}

func (d *decoder) session() *snapshot.Session {
	id := d.uint()
	if id == 0 {
		return nil
	}
	if id > uint64(len(d.sessions)) {
		d.fail()
		return nil
	}
	return d.sessions[id-1]
}

// list reads as many elements as the count before them says.
func list[T any](d *decoder, least int, read func(*T)) []T {
	n := d.count(least)
	if n == 0 {
		return nil
	}
	out := make([]T, n)
	for i := range out {
		if read(&out[i]); d.bad {
			return nil
		}
	}
	return out
}

// The least bytes that the elements of each list take: one for each varint,
// flag or time, eight for each hash.
const (
	leastText    = 1
	leastSession = 21
	leastRun     = 2
	leastBatch   = 15
	leastEpisode = 8 + 24
	leastEdge    = 5
	leastShort   = 8 + 13
	leastGap     = 6
	leastHealth  = 18

	leastSecond   = 2 + 4 + 1 + 2 + 1 + 2
	leastLoad     = 8
	leastFastPath = 5

	leastHungry          = 2 + 2 + 1
	leastHungryStatement = 9

	leastContention = 6
	leastLengths    = 2
	leastBar        = 5
	leastLWLock     = 3 + leastContention
	leastPage       = 8 + leastContention

	leastDeadlock = 8 + 2
	leastConflict = 4
	leastMember   = 8 + 23

	leastStatement = 9

	leastAnomaly = 3*8 + 8
)

func (d *decoder) content() *Content {
	d.texts = list(d, leastText, func(s *string) { *s = d.ownText() })
	d.sessions = list(d, leastSession, func(s **snapshot.Session) { *s = d.readSession() })
	return &Content{
		Runs: list(d, leastRun, func(r *history.Run) { r.ID, r.CompleteTo = d.int(), snapshot.Micros(d.int()) }),
		Entries: list(d, leastBatch, func(e *Entry) {
			e.Batch, e.From = d.batch()
			if e.Batch.Run == 0 {
				d.fail() // would pass as one of this life
			}
		}),
	}
}

func (d *decoder) readSession() *snapshot.Session {
	s := &snapshot.Session{Slot: d.int32(), Pid: d.int32(), LeaderPid: d.int32(), State: snapshot.State(d.int32()),
		Database: d.uint32(), Role: d.uint32(), Prepared: d.uint32()}
	f := d.byte()
	s.Wraparound, s.QueryCut = f&1 != 0, f&2 != 0
	s.SeenAt = snapshot.Micros(d.int())
	for _, m := range []*snapshot.Micros{&s.BackendStart, &s.XactStart, &s.QueryStart, &s.StateChange} {
		*m = d.time(s.SeenAt)
	}
	s.QueryID = d.int()
	for _, text := range []*string{&s.BackendType, &s.ApplicationName, &s.ClientAddr, &s.Query} {
		*text = d.text()
	}
	s.Members = list(d, 1, func(pid *int32) { *pid = d.int32() })
	s.StatementsLeftOut = d.int()
	s.Statements = list(d, leastStatement, func(t *snapshot.Statement) {
		t.FirstSeen, t.LastSeen, t.QueryStart = d.time(s.SeenAt), d.time(s.SeenAt), d.time(s.SeenAt)
		t.QueryID, t.Samples, t.State = d.int(), d.int(), snapshot.State(d.int32())
		t.WaitEventType, t.WaitEvent, t.Query = d.text(), d.text(), d.text()
	})
	return s
}

func (d *decoder) batch() (*history.Batch, snapshot.Micros) {
	b := &history.Batch{Run: d.int(), Number: d.int(), CompleteTo: snapshot.Micros(d.int())}
	from := d.time(b.CompleteTo)
	b.Waiting = d.bool()
	b.OldestOpen = d.time(b.CompleteTo)
	b.Closed = list(d, leastEpisode, func(e *history.Episode) { d.episode(e, b.CompleteTo) })
	b.OpenAsOf = d.time(b.CompleteTo)
	b.Open = list(d, leastEpisode, func(e *history.Episode) { d.episode(e, b.CompleteTo) })
	b.Short = list(d, leastShort, func(s *history.ShortWait) { d.short(s, b.CompleteTo) })
	b.Deadlocks = list(d, leastDeadlock, func(l *history.Deadlock) { d.deadlock(l, b.CompleteTo) })
	b.Conflicts = list(d, leastConflict, func(c *history.Conflict) {
		c.At, c.Kind, c.Ended, c.Session = d.time(b.CompleteTo), snapshot.Conflict(d.int32()), d.bool(), d.session()
		if c.Session == nil {
			d.fail() // nobody looks for it
		}
	})
	b.Seconds = list(d, leastSecond, func(s *history.Second) {
		s.At, s.Sampled = d.time(b.CompleteTo), time.Duration(d.int())
		for _, t := range []*time.Duration{&s.Clients, &s.Active, &s.IdleInTransaction, &s.Waiting} {
			*t = time.Duration(d.int())
		}
		s.Loads = list(d, leastLoad, func(l *history.Load) {
			l.EventType, l.Event, l.Mode, l.BackendType = d.text(), d.text(), snapshot.LWLockMode(d.int32()), d.text()
			l.Database, l.Role, l.QueryID, l.Time = d.uint32(), d.uint32(), d.int(), time.Duration(d.int())
		})
		s.Slots = d.slots()
		s.FastPath = list(d, leastFastPath, func(f *history.FastPath) {
			f.Database, f.Sessions, f.SlotsMax, f.Full, f.Spilled = d.uint32(), d.int32(), d.int32(), d.int32(), d.int32()
		})
		s.LWLocks = list(d, leastLWLock, func(l *history.LWLock) {
			l.Tranche, l.Instance, l.Mode = d.text(), d.text(), snapshot.LWLockMode(d.int32())
			d.contention(&l.Contention)
		})
		s.Pages = list(d, leastPage, func(p *history.Page) {
			p.Found = d.bool()
			for _, n := range []*uint32{&p.File.Tablespace, &p.File.Database, &p.File.Relfile, &p.Block, (*uint32)(&p.Role)} {
				*n = d.uint32()
			}
			p.Fork, p.Mode = d.int32(), snapshot.LWLockMode(d.int32())
			d.contention(&p.Contention)
		})
	})
	b.Lengths = list(d, leastLengths, func(l *history.WaitLengths) {
		l.Minute = d.time(b.CompleteTo)
		l.Bars = list(d, leastBar, func(b *history.LengthBar) {
			b.EventType, b.Event, b.Bucket, b.Waits, b.Time = d.text(), d.text(), d.int32(), d.int(), time.Duration(d.int())
		})
	})
	b.Hungry = list(d, leastHungry, func(h *history.LockHungry) {
		h.At, h.Last, h.Slots = d.time(b.CompleteTo), d.time(b.CompleteTo), d.slots()
		h.Statements = list(d, leastHungryStatement, func(s *history.HungryStatement) {
			s.Database, s.Role, s.QueryID = d.uint32(), d.uint32(), d.int()
			for _, n := range []*int32{&s.Locks, &s.SlotsMax, &s.Spilled, &s.Looks, &s.LooksFull, &s.Sessions} {
				*n = d.int32()
			}
		})
	})
	b.Anomalies = list(d, leastAnomaly, func(a *history.Anomaly) { d.anomaly(a, b.CompleteTo) })
	if n := d.uint(); n > 0 {
		b.Detector = append([]byte(nil), d.bytes(n)...)
	}
	b.Texts = list(d, 1, func(s **snapshot.Session) {
		if *s = d.session(); *s == nil {
			d.fail() // nobody looks for it
		}
	})
	b.Gaps = list(d, leastGap, func(g *history.Gap) {
		g.Began, g.Ended = d.time(b.CompleteTo), d.time(b.CompleteTo)
		g.Reason, g.Lost, g.Detail = history.GapReason(d.text()), d.int(), d.text()
		g.Part = history.Part(d.text())
	})
	b.Health = list(d, leastHealth, func(h *history.Health) {
		for _, p := range healthFields(h) {
			*p = d.int()
		}
	})
	return b, from
}

func (d *decoder) slots() history.Slots { return history.Slots{Each: d.int32(), MaxLocks: d.int32()} }

func (d *decoder) contention(c *history.Contention) {
	c.Time, c.Waits, c.WaitersMax = time.Duration(d.int()), d.int(), d.int32()
	for _, t := range []*time.Duration{&c.Ahead, &c.Exclusive, &c.Shared} {
		*t = time.Duration(d.int())
	}
}

func (d *decoder) episode(e *history.Episode, base snapshot.Micros) {
	e.WaitID = int64(d.uint64())
	e.Waiter = d.session()
	e.Tag, e.Row = d.tag(), d.tag()
	e.Mode = lockmgr.Mode(d.int32())
	e.Start, e.End = d.time(base), d.time(base)
	e.Outcome = history.Outcome(d.int32())
	e.Samples, e.QueueKey, e.InCycle = d.int(), d.int(), d.bool()
	e.HardCount, e.SoftCount = d.int32(), d.int32()
	e.Edges = list(d, leastEdge, func(g *history.Edge) {
		g.Kind, g.Modes = history.EdgeKind(d.int32()), d.uint32()
		g.From, g.To, g.Blocker = d.time(base), d.time(base), d.session()
	})
	e.SoftPids = list(d, 1, func(pid *int32) { *pid = d.int32() })
}

func (d *decoder) tag() lockmgr.Tag {
	return lockmgr.Tag{Field1: d.uint32(), Field2: d.uint32(), Field3: d.uint32(), Field4: uint16(d.uint32()),
		Type: lockmgr.Type(d.uint32()), Method: uint8(d.uint32())}
}

func (d *decoder) short(s *history.ShortWait, base snapshot.Micros) {
	s.Second = d.time(base)
	s.Database, s.LockType, s.Other, s.Relation = d.uint32(), uint8(d.uint32()), d.bool(), d.uint32()
	s.Mode, s.QueryID, s.TextHash = lockmgr.Mode(d.int32()), d.int(), d.uint64()
	s.RootPid, s.RootBackendStart = d.int32(), d.time(base)
	s.Waits, s.Total, s.Longest, s.Failed = d.int(), time.Duration(d.int()), time.Duration(d.int()), d.int()
}

func (d *decoder) anomaly(a *history.Anomaly, base snapshot.Micros) {
	a.WaitEventType = d.text()
	a.StartedAt, a.DetectedAt, a.EndedAt = d.time(base), d.time(base), d.time(base)
	a.End = history.AnomalyEnd(d.text())
	for _, v := range [...]*float64{&a.Observed, &a.Expected, &a.Band} {
		*v = math.Float64frombits(d.uint64())
	}
	a.LeadingEvent, a.RootPid = d.text(), d.int32()
	f := d.byte()
	a.Told, a.Notify = f&1 != 0, f&2 != 0
}

func (d *decoder) deadlock(l *history.Deadlock, base snapshot.Micros) {
	l.ID, l.At = int64(d.uint64()), d.time(base)
	l.Members = list(d, leastMember, func(m *history.DeadlockMember) {
		m.Session = d.session()
		f := d.byte()
		m.IsVictim, m.HasTag, m.HasHeld = f&1 != 0, f&2 != 0, f&4 != 0
		m.WaitsFor, m.WaitID = d.int32(), int64(d.uint64())
		m.Tag, m.Row, m.Mode = d.tag(), d.tag(), lockmgr.Mode(d.int32())
		m.HeldTag, m.HeldMode = d.tag(), lockmgr.Mode(d.int32())
		if m.Session == nil {
			d.fail() // nobody looks for it
		}
	})
}
