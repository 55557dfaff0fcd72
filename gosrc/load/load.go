package load

import (
	"cmp"
	"slices"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

const (
	// maxLoads bounds what is told apart in one second: 8 bytes of the table
	// each. Raising it costs disk where statements differ.
	maxLoads = 200
	// maxKeys bounds what is told apart before that; what comes later has no
	// statement, and beyond twice as much no database and role either. What is
	// left then, of events and kinds of processes, is few.
	maxKeys = 5000
	// maxNames bounds the names remembered. Numbers of the server are few, but
	// those of extensions are given out while it runs.
	maxNames = 2000
)

// Namer knows the server's names for its numbers; "" for none.
type Namer interface {
	Name(kind snapshot.NameKind, number uint32) (string, error)
}

type key struct {
	event    uint32
	mode     snapshot.LWLockMode
	kind     snapshot.BackendType
	database uint32
	role     uint32
	queryID  int64
}

type nameKey struct {
	kind   snapshot.NameKind
	number uint32
}

// Meter adds up the second that goes on. Used by one thread.
type Meter struct {
	names   Namer
	known   map[nameKey]string
	sums    map[key]int64 // microseconds of session time
	own     int64         // of these not counted: our own
	lwlocks map[lwlockKey]contention
	pages   map[pageKey]contention
	lengths lengths
	shown   shown // the last second handed out
	failed  int64 // names that could not be had
	insist  bool  // the second is told whatever was in it
}

// shown are the counts that a second is written for even if nobody was active.
type shown struct{ clients, idle int64 }

// New returns a meter that asks names for names.
func New(names Namer) *Meter {
	return &Meter{names: names, known: make(map[nameKey]string), sums: make(map[key]int64),
		lwlocks: make(map[lwlockKey]contention), pages: make(map[pageKey]contention),
		lengths: lengths{sums: make(map[lengthKey]lengthSum)}}
}

// Add adds one run of the second that goes on.
func (m *Meter) Add(r *snapshot.Run) {
	k := key{event: r.WaitEvent, mode: r.LWLockMode, kind: r.BackendType, database: r.Database, role: r.Role, queryID: r.QueryID}
	if _, ok := m.sums[k]; !ok && len(m.sums) >= maxKeys {
		k.queryID = 0
		if _, ok := m.sums[k]; !ok && len(m.sums) >= 2*maxKeys {
			k.database, k.role = 0, 0
		}
	}
	m.sums[k] += r.TimeUs
	if r.EndedUs > 0 && r.WaitEvent != 0 {
		m.addLength(r)
	}
	if r.Flags&snapshot.RunLWLock != 0 {
		m.addLWLock(r)
	}
	if r.Flags&snapshot.RunPage != 0 {
		m.addPage(r)
	}
}

// AddOwn takes note of a run of ours, which is no load.
func (m *Meter) AddOwn(r *snapshot.Run) { m.own += r.TimeUs }

// Active reports whether somebody was in the second that goes on.
func (m *Meter) Active() bool { return len(m.sums) > 0 }

// Insist has the second that goes on told for what else was in it.
func (m *Meter) Insist() { m.insist = true }

// Close ends the second. It reports false when there is nothing to tell, and
// then the second has no more than its time: nobody was active, and as many
// sessions are there as in the last one that was told.
func (m *Meter) Close(s *snapshot.Second) (history.Second, bool) {
	m.rollMinute(s.Second)
	own := m.own
	insist := m.insist
	m.own, m.insist = 0, false
	now := shown{clients: count(s.ClientsUs, s.SampledUs), idle: count(s.IdleInTransactionUs, s.SampledUs)}
	if len(m.sums) == 0 && now == m.shown && !insist || s.SampledUs <= 0 {
		clear(m.sums)
		clear(m.lwlocks)
		clear(m.pages)
		return history.Second{At: s.Second, Sampled: micros(s.SampledUs)}, false
	}
	m.shown = now
	out := history.Second{
		At:                s.Second,
		Sampled:           micros(s.SampledUs),
		Clients:           micros(s.ClientsUs),
		Active:            micros(max(s.ActiveUs-own, 0)),
		IdleInTransaction: micros(s.IdleInTransactionUs),
		Waiting:           micros(s.WaitingUs),
		Loads:             m.loads(),
		LWLocks:           m.takeLWLocks(),
		Pages:             m.takePages(),
	}
	clear(m.sums)
	return out, true
}

// count rounds: half a session more or less is another number of sessions.
func count(us, sampled int64) int64 {
	if sampled <= 0 {
		return 0
	}
	return (us + sampled/2) / sampled
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func (m *Meter) loads() []history.Load {
	m.merge(func(k key) key { k.queryID = 0; return k })
	m.merge(func(k key) key { k.role, k.database = 0, 0; return k })
	out := make([]history.Load, 0, len(m.sums))
	for k, us := range m.sums {
		l := history.Load{EventType: history.CPU, Event: history.CPU, Mode: k.mode,
			BackendType: m.backendType(k.kind), Database: k.database, Role: k.role, QueryID: k.queryID,
			Time: micros(us)}
		if k.event != 0 {
			l.EventType, l.Event = m.name(snapshot.NameEventType, k.event), m.name(snapshot.NameEvent, k.event)
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b history.Load) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.EventType, b.EventType), cmp.Compare(a.Event, b.Event),
			cmp.Compare(a.QueryID, b.QueryID), cmp.Compare(a.Database, b.Database), cmp.Compare(a.Role, b.Role))
	})
	return out
}

// merge adds up the smallest under what less makes of their keys, when there are
// too many.
func (m *Meter) merge(less func(key) key) {
	if len(m.sums) <= maxLoads {
		return
	}
	type sum struct {
		key key
		us  int64
	}
	all := make([]sum, 0, len(m.sums))
	for k, us := range m.sums {
		all = append(all, sum{k, us})
	}
	slices.SortFunc(all, func(a, b sum) int {
		return cmp.Or(cmp.Compare(b.us, a.us), cmp.Compare(a.key.event, b.key.event), cmp.Compare(a.key.queryID, b.key.queryID))
	})
	for _, s := range all[maxLoads/2:] {
		delete(m.sums, s.key)
		m.sums[less(s.key)] += s.us
	}
}

func (m *Meter) backendType(t snapshot.BackendType) string {
	if t == snapshot.TypeUnknown {
		return ""
	}
	return m.name(snapshot.NameBackendType, uint32(t))
}

func (m *Meter) name(kind snapshot.NameKind, number uint32) string {
	k := nameKey{kind, number}
	if name, ok := m.known[k]; ok {
		return name
	}
	name, err := m.names.Name(kind, number)
	if err != nil || name == "" {
		m.failed++
		name = "???" // as the server itself says for what it cannot name
	}
	if len(m.known) >= maxNames {
		clear(m.known)
	}
	m.known[k] = name
	return name
}

// Failed returns how many names could not be had.
func (m *Meter) Failed() int64 { return m.failed }
