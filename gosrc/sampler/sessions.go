package sampler

import (
	"slices"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

// sessionCache keeps the last details read of each participant, so that an
// unchanged session costs no memory and shares one value between all facts
// that name it. Bounded by the number of processes; emptied when nobody waits.
type sessionCache struct {
	bySlot map[int32]*snapshot.Session
}

func newSessionCache() *sessionCache {
	return &sessionCache{bySlot: make(map[int32]*snapshot.Session)}
}

// lookup returns what is known of a process, nil when nothing is.
func (c *sessionCache) lookup(slot, pid int32) *snapshot.Session {
	if s := c.bySlot[slot]; s != nil && s.Pid == pid {
		return s
	}
	return nil
}

// lookupPid finds a process by its pid alone.
func (c *sessionCache) lookupPid(pid int32) *snapshot.Session {
	for _, s := range c.bySlot {
		if s.Pid == pid {
			return s
		}
	}
	return nil
}

// update takes over what the probe read. A session that could not be read
// keeps its last details: it was there a moment ago.
func (c *sessionCache) update(raw *RawSession, at snapshot.Micros) {
	if raw.Status != snapshot.SessionFound {
		return
	}
	var members []int32
	var statements []snapshot.Statement
	var leftOut int64
	if old := c.lookup(raw.Slot, raw.Pid); old != nil {
		if same(old, raw) {
			return
		}
		if old.BackendStart == raw.BackendStart && old.QueryStart == raw.QueryStart {
			members = old.Members
		}
		if old.XactStart == raw.XactStart && old.BackendStart == raw.BackendStart {
			statements, leftOut = old.Statements, old.StatementsLeftOut
		}
	}
	found := sessionOf(raw, at)
	found.Members, found.Statements, found.StatementsLeftOut = members, statements, leftOut
	c.bySlot[raw.Slot] = found
}

// sessionOf is what the probe read, to be kept.
func sessionOf(raw *RawSession, at snapshot.Micros) *snapshot.Session {
	return &snapshot.Session{
		Slot:            raw.Slot,
		Pid:             raw.Pid,
		LeaderPid:       raw.LeaderPid,
		State:           raw.State,
		Database:        raw.Database,
		Role:            raw.Role,
		Wraparound:      raw.Wraparound,
		QueryCut:        raw.TextCut,
		BackendStart:    raw.BackendStart,
		XactStart:       raw.XactStart,
		QueryStart:      raw.QueryStart,
		StateChange:     raw.StateChange,
		SeenAt:          at,
		QueryID:         raw.QueryID,
		BackendType:     string(raw.BackendType),
		ApplicationName: string(raw.ApplicationName),
		ClientAddr:      string(raw.ClientAddr),
		Query:           string(raw.Text),
	}
}

// same compares without allocating: the conversions in comparisons are free.
func same(s *snapshot.Session, raw *RawSession) bool {
	return s.State == raw.State && s.StateChange == raw.StateChange &&
		s.QueryStart == raw.QueryStart && s.XactStart == raw.XactStart &&
		s.BackendStart == raw.BackendStart && s.QueryID == raw.QueryID &&
		s.LeaderPid == raw.LeaderPid && s.Wraparound == raw.Wraparound &&
		s.Database == raw.Database && s.Role == raw.Role &&
		s.ApplicationName == string(raw.ApplicationName) &&
		s.BackendType == string(raw.BackendType) &&
		s.ClientAddr == string(raw.ClientAddr) && s.Query == string(raw.Text)
}

// setMembers adds the other processes of their lock groups that the walk saw.
// While a statement lasts they only become more: workers end one after the other.
func (c *sessionCache) setMembers(groups []waitgraph.Group) {
	for i := range groups {
		g := &groups[i]
		if len(g.Members) == 0 {
			continue
		}
		s := c.lookup(g.Slot, g.Pid)
		if s == nil {
			continue
		}
		members := s.Members
		for _, pid := range g.Members {
			at, found := slices.BinarySearch(members, pid)
			if !found && len(members) < history.MaxListed {
				members = slices.Insert(slices.Clone(members), at, pid) // s is shared
			}
		}
		if len(members) != len(s.Members) {
			with := *s
			with.Members = members
			c.bySlot[g.Slot] = &with
		}
	}
}

func (c *sessionCache) clear() { clear(c.bySlot) }
