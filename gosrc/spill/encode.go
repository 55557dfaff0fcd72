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

const (
	magic  = "PLHspill"
	format = 6

	headerBytes = len(magic) + 4 + 8
	crcBytes    = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// lostDetail stands in the gap for what had no time or no room.
const lostDetail = "the worker stopped, and the spill file had no room or no time for all that was not written"

// lostRoom is kept free for that gap, which must fit when nothing else does.
const lostRoom = 256

// encoder builds the parts of the body. Sessions and texts are numbered as
// they come, and written in that order.
type encoder struct {
	o        *Options
	texts    []byte
	textIDs  map[string]uint64
	sessions []byte
	ids      map[*snapshot.Session]uint64 // 0 is no session
	batches  []byte
}

// encode returns the file in parts, to be written one after the other to the
// file whose inode it is.
func encode(self Identity, inode uint64, c *Content, o *Options) ([][]byte, Written) {
	e := &encoder{o: o, textIDs: make(map[string]uint64), ids: make(map[*snapshot.Session]uint64)}
	var w Written

	head := binary.BigEndian.AppendUint64(nil, self.SystemIdentifier)
	head = binary.BigEndian.AppendUint64(head, inode)
	head = appendText(head, self.Node)
	head = appendText(head, self.ExtensionVersion)
	runs := binary.AppendUvarint(nil, uint64(len(c.Runs)))
	for _, r := range c.Runs {
		runs = binary.AppendVarint(runs, r.ID)
		runs = binary.AppendVarint(runs, int64(r.CompleteTo))
	}
	fixed := int64(headerBytes + crcBytes + len(head) + len(runs) + 3*binary.MaxVarintLen64 + lostRoom)

	n := 0
	for n < len(c.Entries) && (o.EncodeBy.IsZero() || time.Now().Before(o.EncodeBy)) {
		before := e.mark()
		entry := &c.Entries[n]
		e.batch(entry.Batch, entry.From)
		if o.MaxBytes > 0 && fixed+e.size() > o.MaxBytes {
			e.reset(before)
			break
		}
		w.Rows += entry.Batch.Rows()
		n++
	}
	if lost, rows := lostEntry(c.Entries[n:]); rows > 0 {
		e.batch(lost.Batch, lost.From)
		w.Lost = rows
		n++
	}

	body := [][]byte{head,
		binary.AppendUvarint(nil, uint64(len(e.textIDs))), e.texts,
		binary.AppendUvarint(nil, uint64(len(e.ids))), e.sessions,
		runs, binary.AppendUvarint(nil, uint64(n)), e.batches}
	length := 0
	for _, part := range body {
		length += len(part)
	}
	header := append([]byte(magic), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(header[len(magic):], format)
	header = binary.BigEndian.AppendUint64(header, uint64(length))

	parts := append([][]byte{header}, body...)
	var crc uint32
	for _, part := range parts {
		crc = crc32.Update(crc, castagnoli, part)
	}
	parts = append(parts, binary.BigEndian.AppendUint32(nil, crc))
	w.Bytes = int64(headerBytes + length + crcBytes)
	return parts, w
}

// lostEntry stands for rest, under the number of its last batch.
func lostEntry(rest []Entry) (Entry, int) {
	if len(rest) == 0 {
		return Entry{}, 0
	}
	last := rest[len(rest)-1].Batch
	rows := 0
	ended := rest[0].From
	for i := range rest {
		rows += rest[i].Batch.Rows()
		ended = max(ended, rest[i].Batch.CompleteTo)
	}
	return Entry{From: rest[0].From, Batch: &history.Batch{
		Run: last.Run, Number: last.Number, CompleteTo: last.CompleteTo,
		Gaps: []history.Gap{{Began: rest[0].From, Ended: ended, Reason: history.GapWriterBlocked, Lost: int64(rows), Detail: lostDetail}},
	}}, rows
}

// state is where an encoder can go back to.
type state struct{ texts, textIDs, sessions, ids, batches int }

func (e *encoder) mark() state {
	return state{len(e.texts), len(e.textIDs), len(e.sessions), len(e.ids), len(e.batches)}
}

func (e *encoder) reset(s state) {
	e.texts, e.sessions, e.batches = e.texts[:s.texts], e.sessions[:s.sessions], e.batches[:s.batches]
	for text, id := range e.textIDs {
		if id >= uint64(s.textIDs) {
			delete(e.textIDs, text)
		}
	}
	for session, id := range e.ids {
		if id > uint64(s.ids) {
			delete(e.ids, session)
		}
	}
}

func (e *encoder) size() int64 { return int64(len(e.texts) + len(e.sessions) + len(e.batches)) }

func (e *encoder) uint(v uint64) { e.batches = binary.AppendUvarint(e.batches, v) }
func (e *encoder) int(v int64)   { e.batches = binary.AppendVarint(e.batches, v) }

func (e *encoder) bool(v bool) {
	if v {
		e.batches = append(e.batches, 1)
	} else {
		e.batches = append(e.batches, 0)
	}
}

func (e *encoder) time(m, base snapshot.Micros) { e.batches = appendTime(e.batches, m, base) }
func (e *encoder) text(s string)                { e.uint(e.textID(s)) }

func (e *encoder) textID(s string) uint64 {
	id, ok := e.textIDs[s]
	if !ok {
		id = uint64(len(e.textIDs))
		e.textIDs[s] = id
		e.texts = appendText(e.texts, s)
	}
	return id
}

func (e *encoder) session(s *snapshot.Session) {
	if s == nil {
		e.uint(0)
		return
	}
	id, ok := e.ids[s]
	if !ok {
		id = uint64(len(e.ids)) + 1
		e.ids[s] = id
		e.addSession(s)
	}
	e.uint(id)
}

func (e *encoder) addSession(s *snapshot.Session) {
	kept := func(query string) string {
		if e.o.Text != nil {
			return e.o.Text(s, query)
		}
		return query
	}
	b := e.sessions
	b = binary.AppendVarint(b, int64(s.Slot))
	b = binary.AppendVarint(b, int64(s.Pid))
	b = binary.AppendVarint(b, int64(s.LeaderPid))
	b = binary.AppendVarint(b, int64(s.State))
	b = binary.AppendUvarint(b, uint64(s.Database))
	b = binary.AppendUvarint(b, uint64(s.Role))
	b = binary.AppendUvarint(b, uint64(s.Prepared))
	b = append(b, flags(s.Wraparound, s.QueryCut))
	b = binary.AppendVarint(b, int64(s.SeenAt))
	for _, m := range []snapshot.Micros{s.BackendStart, s.XactStart, s.QueryStart, s.StateChange} {
		b = appendTime(b, m, s.SeenAt)
	}
	b = binary.AppendVarint(b, s.QueryID)
	for _, text := range []string{s.BackendType, s.ApplicationName, s.ClientAddr, kept(s.Query)} {
		b = binary.AppendUvarint(b, e.textID(text))
	}
	b = binary.AppendUvarint(b, uint64(len(s.Members)))
	for _, pid := range s.Members {
		b = binary.AppendVarint(b, int64(pid))
	}
	b = binary.AppendVarint(b, s.StatementsLeftOut)
	b = binary.AppendUvarint(b, uint64(len(s.Statements)))
	for i := range s.Statements {
		t := &s.Statements[i]
		for _, m := range []snapshot.Micros{t.FirstSeen, t.LastSeen, t.QueryStart} {
			b = appendTime(b, m, s.SeenAt)
		}
		b = binary.AppendVarint(b, t.QueryID)
		b = binary.AppendVarint(b, t.Samples)
		b = binary.AppendVarint(b, int64(t.State))
		for _, text := range []string{t.WaitEventType, t.WaitEvent, kept(t.Query)} {
			b = binary.AppendUvarint(b, e.textID(text))
		}
	}
	e.sessions = b
}

func flags(bits ...bool) (b byte) {
	for i, bit := range bits {
		if bit {
			b |= 1 << i
		}
	}
	return b
}

func (e *encoder) batch(b *history.Batch, from snapshot.Micros) {
	e.int(b.Run)
	e.int(b.Number)
	e.int(int64(b.CompleteTo))
	e.time(from, b.CompleteTo)
	e.bool(b.Waiting)
	e.time(b.OldestOpen, b.CompleteTo)
	e.uint(uint64(len(b.Closed)))
	for i := range b.Closed {
		e.episode(&b.Closed[i], b.CompleteTo)
	}
	e.time(b.OpenAsOf, b.CompleteTo)
	e.uint(uint64(len(b.Open)))
	for i := range b.Open {
		e.episode(&b.Open[i], b.CompleteTo)
	}
	e.uint(uint64(len(b.Short)))
	for i := range b.Short {
		e.short(&b.Short[i], b.CompleteTo)
	}
	e.uint(uint64(len(b.Deadlocks)))
	for i := range b.Deadlocks {
		e.deadlock(&b.Deadlocks[i], b.CompleteTo)
	}
	e.uint(uint64(len(b.Conflicts)))
	for i := range b.Conflicts {
		c := &b.Conflicts[i]
		e.time(c.At, b.CompleteTo)
		e.int(int64(c.Kind))
		e.bool(c.Ended)
		e.session(c.Session)
	}
	e.uint(uint64(len(b.Seconds)))
	for i := range b.Seconds {
		e.second(&b.Seconds[i], b.CompleteTo)
	}
	e.uint(uint64(len(b.Lengths)))
	for i := range b.Lengths {
		e.lengths(&b.Lengths[i], b.CompleteTo)
	}
	e.uint(uint64(len(b.Hungry)))
	for i := range b.Hungry {
		e.hungry(&b.Hungry[i], b.CompleteTo)
	}
	e.uint(uint64(len(b.Anomalies)))
	for i := range b.Anomalies {
		e.anomaly(&b.Anomalies[i], b.CompleteTo)
	}
	e.uint(uint64(len(b.Detector)))
	e.batches = append(e.batches, b.Detector...)
	e.uint(uint64(len(b.Texts)))
	for _, s := range b.Texts {
		e.session(s)
	}
	e.uint(uint64(len(b.Gaps)))
	for i := range b.Gaps {
		e.gap(&b.Gaps[i], b.CompleteTo)
	}
	e.uint(uint64(len(b.Health)))
	for i := range b.Health {
		e.health(&b.Health[i])
	}
}

func (e *encoder) episode(p *history.Episode, base snapshot.Micros) {
	e.batches = binary.BigEndian.AppendUint64(e.batches, uint64(p.WaitID)) // a hash
	e.session(p.Waiter)
	e.tag(p.Tag)
	e.tag(p.Row)
	e.int(int64(p.Mode))
	e.time(p.Start, base)
	e.time(p.End, base)
	e.int(int64(p.Outcome))
	e.int(p.Samples)
	e.int(p.QueueKey)
	e.bool(p.InCycle)
	e.int(int64(p.HardCount))
	e.int(int64(p.SoftCount))
	e.uint(uint64(len(p.Edges)))
	for i := range p.Edges {
		edge := &p.Edges[i]
		e.int(int64(edge.Kind))
		e.uint(uint64(edge.Modes))
		e.time(edge.From, base)
		e.time(edge.To, base)
		e.session(edge.Blocker)
	}
	e.uint(uint64(len(p.SoftPids)))
	for _, pid := range p.SoftPids {
		e.int(int64(pid))
	}
}

func (e *encoder) tag(t lockmgr.Tag) {
	for _, n := range [...]uint32{t.Field1, t.Field2, t.Field3, uint32(t.Field4), uint32(t.Type), uint32(t.Method)} {
		e.uint(uint64(n))
	}
}

func (e *encoder) short(s *history.ShortWait, base snapshot.Micros) {
	e.time(s.Second, base)
	e.uint(uint64(s.Database))
	e.uint(uint64(s.LockType))
	e.bool(s.Other)
	e.uint(uint64(s.Relation))
	e.int(int64(s.Mode))
	e.int(s.QueryID)
	e.batches = binary.BigEndian.AppendUint64(e.batches, s.TextHash)
	e.int(int64(s.RootPid))
	e.time(s.RootBackendStart, base)
	e.int(s.Waits)
	e.int(int64(s.Total))
	e.int(int64(s.Longest))
	e.int(s.Failed)
}

func (e *encoder) deadlock(d *history.Deadlock, base snapshot.Micros) {
	e.batches = binary.BigEndian.AppendUint64(e.batches, uint64(d.ID)) // a hash
	e.time(d.At, base)
	e.uint(uint64(len(d.Members)))
	for i := range d.Members {
		m := &d.Members[i]
		e.session(m.Session)
		e.batches = append(e.batches, flags(m.IsVictim, m.HasTag, m.HasHeld))
		e.int(int64(m.WaitsFor))
		e.batches = binary.BigEndian.AppendUint64(e.batches, uint64(m.WaitID)) // a hash
		e.tag(m.Tag)
		e.tag(m.Row)
		e.int(int64(m.Mode))
		e.tag(m.HeldTag)
		e.int(int64(m.HeldMode))
	}
}

func (e *encoder) second(s *history.Second, base snapshot.Micros) {
	e.time(s.At, base)
	e.int(int64(s.Sampled))
	for _, d := range [...]time.Duration{s.Clients, s.Active, s.IdleInTransaction, s.Waiting} {
		e.int(int64(d))
	}
	e.uint(uint64(len(s.Loads)))
	for i := range s.Loads {
		l := &s.Loads[i]
		e.text(l.EventType)
		e.text(l.Event)
		e.int(int64(l.Mode))
		e.text(l.BackendType)
		e.uint(uint64(l.Database))
		e.uint(uint64(l.Role))
		e.int(l.QueryID)
		e.int(int64(l.Time))
	}
	e.slots(s.Slots)
	e.uint(uint64(len(s.FastPath)))
	for i := range s.FastPath {
		f := &s.FastPath[i]
		e.uint(uint64(f.Database))
		for _, n := range [...]int32{f.Sessions, f.SlotsMax, f.Full, f.Spilled} {
			e.int(int64(n))
		}
	}
	e.uint(uint64(len(s.LWLocks)))
	for i := range s.LWLocks {
		l := &s.LWLocks[i]
		e.text(l.Tranche)
		e.text(l.Instance)
		e.int(int64(l.Mode))
		e.contention(&l.Contention)
	}
	e.uint(uint64(len(s.Pages)))
	for i := range s.Pages {
		p := &s.Pages[i]
		e.bool(p.Found)
		for _, n := range [...]uint32{p.File.Tablespace, p.File.Database, p.File.Relfile, p.Block, uint32(p.Role)} {
			e.uint(uint64(n))
		}
		e.int(int64(p.Fork))
		e.int(int64(p.Mode))
		e.contention(&p.Contention)
	}
}

func (e *encoder) slots(s history.Slots) {
	e.int(int64(s.Each))
	e.int(int64(s.MaxLocks))
}

func (e *encoder) hungry(h *history.LockHungry, base snapshot.Micros) {
	e.time(h.At, base)
	e.time(h.Last, base)
	e.slots(h.Slots)
	e.uint(uint64(len(h.Statements)))
	for i := range h.Statements {
		s := &h.Statements[i]
		e.uint(uint64(s.Database))
		e.uint(uint64(s.Role))
		e.int(s.QueryID)
		for _, n := range [...]int32{s.Locks, s.SlotsMax, s.Spilled, s.Looks, s.LooksFull, s.Sessions} {
			e.int(int64(n))
		}
	}
}

func (e *encoder) anomaly(a *history.Anomaly, base snapshot.Micros) {
	e.text(a.WaitEventType)
	e.time(a.StartedAt, base)
	e.time(a.DetectedAt, base)
	e.time(a.EndedAt, base)
	e.text(string(a.End))
	for _, v := range [...]float64{a.Observed, a.Expected, a.Band} {
		e.batches = binary.BigEndian.AppendUint64(e.batches, math.Float64bits(v))
	}
	e.text(a.LeadingEvent)
	e.int(int64(a.RootPid))
	e.batches = append(e.batches, flags(a.Told, a.Notify))
}

func (e *encoder) lengths(l *history.WaitLengths, base snapshot.Micros) {
	e.time(l.Minute, base)
	e.uint(uint64(len(l.Bars)))
	for i := range l.Bars {
		b := &l.Bars[i]
		e.text(b.EventType)
		e.text(b.Event)
		e.int(int64(b.Bucket))
		e.int(b.Waits)
		e.int(int64(b.Time))
	}
}

func (e *encoder) contention(c *history.Contention) {
	e.int(int64(c.Time))
	e.int(c.Waits)
	e.int(int64(c.WaitersMax))
	for _, t := range [...]time.Duration{c.Ahead, c.Exclusive, c.Shared} {
		e.int(int64(t))
	}
}

func (e *encoder) gap(g *history.Gap, base snapshot.Micros) {
	e.time(g.Began, base)
	e.time(g.Ended, base)
	e.text(string(g.Reason))
	e.int(g.Lost)
	e.text(g.Detail)
	e.text(string(g.Part))
}

func (e *encoder) health(h *history.Health) {
	for _, p := range healthFields(h) {
		e.int(*p)
	}
}

// healthFields names all fields of h in the order of the file.
func healthFields(h *history.Health) []*int64 {
	d := func(p *time.Duration) *int64 { return (*int64)(p) }
	return []*int64{(*int64)(&h.Minute), &h.TicksDue, &h.TicksDone, &h.TicksLate, &h.TicksMissed, d(&h.Period),
		d(&h.ProbeP50), d(&h.ProbeP99), d(&h.ProbeMax), d(&h.HoldP99), d(&h.HoldMax), &h.PartitionsTaken, &h.PartitionsBusy,
		d(&h.CPU), &h.RowsWritten, &h.RowsMerged, &h.RowsDropped, &h.Errors}
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// appendTime writes m as the difference to base, which is small; 0, not known,
// is one byte. No two times of one server are 2^63 us apart.
func appendTime(b []byte, m, base snapshot.Micros) []byte {
	if m == 0 {
		return append(b, 0)
	}
	d := int64(m - base)
	return binary.AppendUvarint(b, (uint64(d)<<1^uint64(d>>63))+1)
}

func damaged(why string, args ...any) *Refusal {
	return &Refusal{Reason: FileName + " is damaged: " + fmt.Sprintf(why, args...), Hint: hintLost}
}
