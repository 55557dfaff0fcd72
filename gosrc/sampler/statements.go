package sampler

import (
	"cmp"
	"slices"

	"pg_lock_history/gosrc/episode"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

// What a blocker did before it was in the way is known to the probe, which
// looks at open transactions all the time. It forgets the oldest statements of
// a transaction that goes on, so what is known when somebody begins to wait is
// kept here, with what comes later.

// maxStatements bounds what is kept of one blocker: what the probe knew when it
// came to block, and as much again.
const maxStatements = 2 * MaxStatements

const keyStatements = "probe statements"

// statementReader has the buffers for one blocker after the other.
type statementReader struct {
	asked []bool // by group of the walk at work
	raw   []RawStatement
}

// readStatements learns what those who hold awaited locks did before, at most
// so many as sessions are asked for in one walk.
func (s *Sampler) readStatements(g *waitgraph.Graph) {
	r := &s.statements
	r.asked = slices.Grow(r.asked[:0], len(g.Groups))[:len(g.Groups)]
	clear(r.asked)
	n := 0
	read := func(group int32, again bool) {
		if r.asked[group] || n >= episode.MaxWanted {
			return
		}
		r.asked[group] = true
		p := &g.Groups[group]
		known := s.cache.lookup(p.Slot, p.Pid)
		if known == nil && !p.IsPrepared || known != nil && known.Statements != nil && !again {
			return
		}
		n++
		s.readStatementsOf(p)
	}
	for i := range g.Waiters {
		for _, root := range g.Waiters[i].Roots {
			read(root, true)
		}
	}
	// Of those who hold a lock and wait themselves nothing new is to be learnt.
	for i := range g.Waiters {
		for _, b := range g.Waiters[i].Hard {
			read(b.Group, false)
		}
	}
}

func (s *Sampler) readStatementsOf(p *waitgraph.Group) {
	r := &s.statements
	t := Transaction{Slot: p.Slot, Pid: p.Pid, Xid: p.Xid}
	var err error
	if r.raw, err = s.o.Probes.Statements(&t, r.raw[:0]); err != nil {
		s.errors++
		s.o.Log.Add(report.Message{Level: report.Warning, Key: keyStatements, Text: "could not read what blockers did before: " + err.Error(), Hint: hintProbeHasFailed})
		return
	}
	if len(r.raw) == 0 {
		return
	}
	slices.SortFunc(r.raw, func(a, b RawStatement) int {
		return cmp.Or(cmp.Compare(a.FirstSeen, b.FirstSeen), cmp.Compare(a.QueryStart, b.QueryStart))
	})
	if p.IsPrepared {
		s.cache.meetPrepared(p, s.wake.Now)
	}
	s.cache.setStatements(&t, r.raw)
}

// meetPrepared makes room for what is known of a prepared transaction. The walk
// knows the rest.
func (c *sessionCache) meetPrepared(p *waitgraph.Group, at snapshot.Micros) {
	if s := c.lookup(p.Slot, p.Pid); s == nil || s.Prepared != p.Xid {
		c.bySlot[p.Slot] = &snapshot.Session{Slot: p.Slot, Prepared: p.Xid, Database: p.Database, Role: p.Role, SeenAt: at}
	}
}

// setStatements adds what is known of a session's transaction; found is oldest
// first. A session that was read in another transaction, a moment ago, is left
// as it is until the next walk.
func (c *sessionCache) setStatements(t *Transaction, found []RawStatement) {
	s := c.lookup(t.Slot, t.Pid)
	if s == nil || s.Prepared != t.Xid ||
		s.Prepared == 0 && (s.BackendStart != t.BackendStart || s.XactStart != t.XactStart) ||
		sameStatements(s.Statements, found) {
		return
	}
	with := *s // sessions are shared
	with.Statements = mergeStatements(s.Statements, found)
	with.StatementsLeftOut = max(t.LeftOut-int64(len(with.Statements)-len(found)), 0)
	c.bySlot[t.Slot] = &with
}

// isSame reports whether raw tells of the same statement as s.
func isSame(s *snapshot.Statement, raw *RawStatement) bool {
	return s.FirstSeen == raw.FirstSeen && s.Query == string(raw.Text)
}

// sameStatements reports whether found has nothing new. That a statement, or
// the state after it, has gone on for longer is not new.
func sameStatements(known []snapshot.Statement, found []RawStatement) bool {
	for i := range found {
		at := slices.IndexFunc(known, func(s snapshot.Statement) bool { return isSame(&s, &found[i]) })
		if at < 0 || known[at].State != found[i].State || known[at].QueryStart != found[i].QueryStart {
			return false
		}
	}
	return true
}

// mergeStatements makes one list of what was known and what has been found
// since. When that is too long, what came first after the earliest ones, which
// were there when the session came to block, is left out.
func mergeStatements(known []snapshot.Statement, found []RawStatement) []snapshot.Statement {
	out := make([]snapshot.Statement, 0, len(known)+len(found))
	for i := range known {
		if !slices.ContainsFunc(found, func(raw RawStatement) bool { return isSame(&known[i], &raw) }) {
			out = append(out, known[i])
		}
	}
	for i := range found {
		raw := &found[i]
		out = append(out, snapshot.Statement{
			FirstSeen: raw.FirstSeen, LastSeen: raw.LastSeen, QueryStart: raw.QueryStart,
			QueryID: raw.QueryID, Samples: raw.Samples, State: raw.State,
			WaitEventType: string(raw.WaitEventType), WaitEvent: string(raw.WaitEvent), Query: string(raw.Text),
		})
	}
	slices.SortFunc(out, func(a, b snapshot.Statement) int {
		return cmp.Or(cmp.Compare(a.FirstSeen, b.FirstSeen), cmp.Compare(a.QueryStart, b.QueryStart))
	})
	if over := len(out) - maxStatements; over > 0 {
		out = slices.Delete(out, MaxStatements, MaxStatements+over)
	}
	return out
}
