package episode

import (
	"strconv"
	"strings"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// conflictLines is the number of lines in which a session describes itself
// (describe_self() in extension/errhook.c); the statement is the last one.
const conflictLines = 12

// conflictOf makes a fact of the record of a session that was in the way of the
// replay. What cannot be read of it stays unknown.
func conflictOf(f *snapshot.Failure) history.Conflict {
	s := &snapshot.Session{Slot: f.Slot, Pid: f.Pid, BackendStart: f.BackendStart, SeenAt: f.FailedAt}
	c := history.Conflict{At: f.FailedAt, Kind: snapshot.Conflict(f.Mode &^ snapshot.ConflictEnded), Ended: f.Mode&snapshot.ConflictEnded != 0, Session: s}
	part := strings.SplitN(f.Text, "\n", conflictLines)
	if len(part) != conflictLines {
		return c
	}
	var number [8]int64
	for i := range number {
		n, err := strconv.ParseInt(part[i], 10, 64)
		if err != nil {
			return c
		}
		number[i] = n
	}
	s.Database, s.Role, s.State, s.QueryCut, s.QueryID = uint32(number[0]), uint32(number[1]), snapshot.State(number[2]), number[3] != 0, number[4]
	s.XactStart, s.QueryStart, s.StateChange = snapshot.Micros(number[5]), snapshot.Micros(number[6]), snapshot.Micros(number[7])
	s.ClientAddr, s.BackendType, s.ApplicationName, s.Query = part[8], part[9], part[10], part[11]
	return c
}
