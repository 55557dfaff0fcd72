package fastpath

import (
	"cmp"
	"slices"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

const (
	// maxStatements bounds the statements told of one minute, 25 bytes of the
	// table each.
	maxStatements = 50
	// maxKeys bounds the statements told apart within a minute; what comes later
	// is not told.
	maxKeys = 2000

	minute = snapshot.Micros(time.Minute / time.Microsecond)
)

type statement struct {
	database, role uint32
	queryID        int64
}

// sums of one statement in the minute that goes on.
type sums struct {
	history.HungryStatement
	inSecond int32 // processes in the second that goes on
}

// Meter adds up the second and the minute that go on. Used by one thread.
type Meter struct {
	slots history.Slots

	// The second. Rows of one process follow one another.
	databases map[uint32]*history.FastPath
	pid       int32 // of the last row
	isFull    bool  // that process has been counted as full

	told   []history.FastPath // of the last second told
	toldAt snapshot.Micros

	// The minute; began is 0 while there is nothing to tell of it.
	began      snapshot.Micros
	last       snapshot.Micros
	statements map[statement]*sums
}

// New returns an empty meter.
func New() *Meter {
	return &Meter{databases: make(map[uint32]*history.FastPath), statements: make(map[statement]*sums)}
}

// Add adds what was seen of one process in the second that goes on.
func (m *Meter) Add(u *snapshot.SlotUse, slots history.Slots) {
	m.slots = slots
	d := m.databases[u.Database]
	if d == nil {
		d = &history.FastPath{Database: u.Database, Spilled: history.NotLooked}
		m.databases[u.Database] = d
	}
	if u.Pid != m.pid {
		m.pid, m.isFull = u.Pid, false
		d.Sessions++
	}
	if u.LooksFull > 0 && !m.isFull {
		m.isFull = true
		d.Full++
	}
	d.SlotsMax = max(d.SlotsMax, int32(u.SlotsUsed))
	d.Spilled = max(d.Spilled, u.Spilled)
	if u.LooksFull > 0 || 2*int32(u.SlotsUsed) >= slots.Each {
		m.addStatement(u)
	}
}

func (m *Meter) addStatement(u *snapshot.SlotUse) {
	k := statement{u.Database, u.Role, u.QueryID}
	s := m.statements[k]
	if s == nil {
		if len(m.statements) >= maxKeys {
			return
		}
		s = &sums{HungryStatement: history.HungryStatement{Database: u.Database, Role: u.Role, QueryID: u.QueryID, Spilled: history.NotLooked}}
		m.statements[k] = s
	}
	s.Locks = max(s.Locks, int32(u.SlotsUsed)+max(u.Spilled, 0))
	s.SlotsMax = max(s.SlotsMax, int32(u.SlotsUsed))
	s.Spilled = max(s.Spilled, u.Spilled)
	s.Looks += int32(u.Looks)
	s.LooksFull += int32(u.LooksFull)
	s.inSecond++
}

// Close ends the second. It returns what there is to tell of it, nothing when
// nobody was active and all is as it was in the last one told, less than a
// minute ago.
func (m *Meter) Close(second snapshot.Micros, active bool) []history.FastPath {
	if len(m.databases) == 0 {
		m.told = nil
		return nil
	}
	m.pid = 0
	if m.began == 0 {
		m.began = second
	}
	m.last = second
	for _, s := range m.statements {
		s.Sessions, s.inSecond = max(s.Sessions, s.inSecond), 0
	}
	out := make([]history.FastPath, 0, len(m.databases))
	for _, d := range m.databases {
		out = append(out, *d)
	}
	clear(m.databases)
	slices.SortFunc(out, func(a, b history.FastPath) int { return cmp.Compare(a.Database, b.Database) })
	if !active && slices.Equal(out, m.told) && second-m.toldAt < minute && second >= m.toldAt {
		return nil
	}
	m.told, m.toldAt = out, second
	return out
}

// Slots returns how large the fast path of each process is, as last seen.
func (m *Meter) Slots() history.Slots { return m.slots }

// Minute returns the statements of the minute before at when that is over, of
// the one that goes on, too, if all is asked for; false when there are none.
func (m *Meter) Minute(at snapshot.Micros, all bool) (history.LockHungry, bool) {
	if m.began == 0 || !all && at-at%minute == m.began-m.began%minute {
		return history.LockHungry{}, false
	}
	out := history.LockHungry{At: m.began, Last: m.last, Slots: m.slots, Statements: make([]history.HungryStatement, 0, len(m.statements))}
	for _, s := range m.statements {
		out.Statements = append(out.Statements, s.HungryStatement)
	}
	m.began = 0
	clear(m.statements)
	slices.SortFunc(out.Statements, func(a, b history.HungryStatement) int {
		return cmp.Or(cmp.Compare(b.Locks, a.Locks), cmp.Compare(b.Looks, a.Looks), cmp.Compare(a.QueryID, b.QueryID),
			cmp.Compare(a.Database, b.Database), cmp.Compare(a.Role, b.Role))
	})
	out.Statements = out.Statements[:min(len(out.Statements), maxStatements)]
	return out, len(out.Statements) > 0
}
