package live

import (
	"net/netip"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/object"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/snapshot"
)

// Names tells what is known by now; "" and 0 are not known.
type Names interface {
	object.Known
	Database(oid uint32) string
	Role(oid uint32) string
	PreparedAt(xid uint32) snapshot.Micros
}

// maxApplicationName is as in the tables.
const maxApplicationName = 256

// spareEntries is how many unused entries a cache may have beside as many as
// are in use: clearing up costs a pass over all.
const spareEntries = 64

// sessionWords are the texts of one value of session details.
type sessionWords struct {
	query, application, address string
	used                        uint64 // by which graph
}

// lockKey is one lock as one kind of waiters sees it.
type lockKey struct{ tag, row lockmgr.Tag }

// lockWords is what is said of it.
type lockWords struct {
	names   object.Names // that text was made of
	text    string
	columns object.Columns
	used    uint64
}

// words keeps texts that would otherwise be made again for each graph.
type words struct {
	names    Names
	settings Settings

	graph     uint64 // number of the graph at work
	sessions  map[*snapshot.Session]*sessionWords
	locks     map[lockKey]*lockWords
	databases map[uint32]string // of the graph at work
	roles     map[uint32]string
}

func newWords(names Names, s Settings) words {
	return words{names: names, settings: s,
		sessions: make(map[*snapshot.Session]*sessionWords), locks: make(map[lockKey]*lockWords),
		databases: make(map[uint32]string), roles: make(map[uint32]string)}
}

// begin starts another graph, or another wait: names may be known now.
func (w *words) begin() {
	w.graph++
	clear(w.databases)
	clear(w.roles)
}

// tidy forgets what the graph at work did not use, when that is much.
func (w *words) tidy() {
	tidy(w.sessions, func(s *sessionWords) bool { return s.used == w.graph })
	tidy(w.locks, func(l *lockWords) bool { return l.used == w.graph })
}

func tidy[K comparable, V any](cache map[K]V, used func(V) bool) {
	n := 0
	for _, v := range cache {
		if used(v) {
			n++
		}
	}
	if len(cache) <= 2*n+spareEntries {
		return
	}
	for k, v := range cache {
		if !used(v) {
			delete(cache, k)
		}
	}
}

func (w *words) clear() {
	clear(w.sessions)
	clear(w.locks)
}

func (w *words) ofSession(s *snapshot.Session) *sessionWords {
	known := w.sessions[s]
	if known == nil {
		known = &sessionWords{
			query:       w.settings.Statements.Keep(s.Query, s.Wraparound),
			application: querytext.Sanitize(s.ApplicationName, maxApplicationName),
		}
		if a, err := netip.ParseAddr(s.ClientAddr); err == nil { // else a socket, or none
			known.address = a.WithZone("").Unmap().String()
		}
		w.sessions[s] = known
	}
	known.used = w.graph
	return known
}

// ofLock asks for the names each time: those of two waits for one lock differ
// when it was renamed between them.
func (w *words) ofLock(e *history.Episode) *lockWords {
	key := lockKey{e.Tag, e.Row}
	known := w.locks[key]
	names := object.NamesOf(e, w.names)
	if known == nil || known.names != names {
		known = &lockWords{names: names, text: object.Text(e.Tag, names),
			columns: object.ColumnsOf(e.Tag, w.settings.ServerVersion).WithRow(e.Row)}
		w.locks[key] = known
	}
	known.used = w.graph
	return known
}

func (w *words) database(oid uint32) string { return memo(w.databases, oid, w.names.Database) }

func (w *words) role(oid uint32) string { return memo(w.roles, oid, w.names.Role) }

// memo asks for a name once in each graph.
func memo(known map[uint32]string, oid uint32, ask func(uint32) string) string {
	if oid == 0 {
		return ""
	}
	name, ok := known[oid]
	if !ok {
		name = ask(oid)
		known[oid] = name
	}
	return name
}
