package object

import (
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

// Known answers by what has been looked up; "" is not known.
type Known interface {
	// Tag returns the names of a lock that were still seen after since.
	Tag(t lockmgr.Tag, since snapshot.Micros) Names
	Gid(xid uint32) string
}

// NamesOf returns what the text of the lock that e waits for is made of, by the
// names that it had then. It allocates nothing.
func NamesOf(e *history.Episode, known Known) Names {
	named := e.Tag
	if e.Row.Type == lockmgr.Tuple {
		named = e.Row // a transaction has no names of its own
	}
	n := known.Tag(named, e.Start)
	n.Row = e.Row
	if hasHolder(e.Tag.Type) {
		n.HolderPid, n.HolderGid = holderOf(e, known)
	}
	return n
}

// hasHolder reports whether a lock of that type stands for a transaction, so
// that one session has it, and its number alone says nothing to anybody.
func hasHolder(t lockmgr.Type) bool {
	return t == lockmgr.TransactionID || t == lockmgr.VirtualXID || t == lockmgr.SpecToken
}

// holderOf returns who was first seen to hold what e waits for.
func holderOf(e *history.Episode, known Known) (pid int32, gid string) {
	var first *history.Edge
	for i := range e.Edges {
		if edge := &e.Edges[i]; edge.Kind == history.Hard && edge.Blocker != nil && (first == nil || edge.From < first.From) {
			first = edge
		}
	}
	switch {
	case first == nil:
		return 0, ""
	case first.Blocker.Prepared == 0:
		return first.Blocker.Pid, ""
	default:
		return 0, known.Gid(first.Blocker.Prepared)
	}
}
