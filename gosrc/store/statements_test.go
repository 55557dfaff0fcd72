package store

import (
	"testing"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
)

// What a blocker did before is in its actor: with the policy of all
// statements, and as one actor while nothing of it is new.
func TestLiveStatementsOfABlocker(t *testing.T) {
	tests := []struct {
		mode          querytext.Mode
		length        int
		update, query string
	}{
		{querytext.Full, 1024, "UPDATE t SET n = 5", "SELECT 1"},
		{querytext.Full, 8, "UPDATE t", "SELECT 1"},
		{querytext.Normalized, 1024, "UPDATE t SET n = $1", "SELECT $1"},
		{querytext.Off, 1024, "NULL", "<null>"},
	}
	for _, tt := range tests {
		t.Run(tt.mode.String(), func(t *testing.T) {
			l := newLab(t, true)
			l.cfg.QueryText, l.cfg.QueryLength = tt.mode, tt.length
			l.start()
			began := l.now
			tag := lockmgr.Tag{Field1: l.databaseOID(), Field2: 16384, Type: lockmgr.Relation, Method: 1}
			idle := l.session(50, "SELECT 1")
			idle.State = snapshot.StateIdleInTransaction
			idle.StatementsLeftOut = 4
			idle.Statements = []snapshot.Statement{
				{FirstSeen: began.Add(-5 * time.Second), LastSeen: began.Add(-4 * time.Second), QueryStart: began.Add(-6 * time.Second), QueryID: 9, Samples: 3,
					State: snapshot.StateActive, WaitEventType: "IO", WaitEvent: "DataFileRead", Query: "UPDATE t SET n = 5"},
				{FirstSeen: began.Add(-time.Second), LastSeen: began, QueryStart: idle.QueryStart, Samples: 1, State: idle.State, Query: "SELECT 1"},
			}
			e := l.wait(60, tag, idle)
			e.Edges = append(e.Edges, history.Edge{Kind: history.Root, From: began, Blocker: idle})
			l.flushed(l.push(time.Second, history.Batch{Waiting: true, Open: []history.Episode{e}, OldestOpen: began}))

			longer := *idle // the same, and it goes on
			longer.Statements = []snapshot.Statement{idle.Statements[0], idle.Statements[1]}
			longer.Statements[1].Samples, longer.Statements[1].LastSeen = 100, began.Add(time.Second)
			closed := e
			closed.Edges = []history.Edge{{Kind: history.Hard, Modes: 2, From: began, Blocker: &longer}, {Kind: history.Root, From: began, Blocker: &longer}}
			closed.End, closed.Outcome = began.Add(1500*time.Millisecond), history.Granted
			l.flushed(l.push(time.Second, history.Batch{Closed: []history.Episode{closed}}))

			l.expect("1", `SELECT count(*) FROM lock_history.actor WHERE pid = 50`)
			l.expect("{"+pgArray(tt.update)+","+pgArray(tt.query)+"}", `SELECT stmt_query FROM lock_history.actor WHERE pid = 50`)
			l.expect("{3,1} {active,\"idle in transaction\"} {IO,NULL} {DataFileRead,NULL} {9,NULL} 4", `SELECT concat_ws(' ', stmt_samples,
				stmt_state, stmt_wait_event_type, stmt_wait_event, stmt_query_id, stmt_left_out) FROM lock_history.actor WHERE pid = 50`)
			l.expect("<null>", `SELECT stmt_query FROM lock_history.actor WHERE pid = 60`)
			l.expect("5 s before, 4 s before, 6 s before", `SELECT concat_ws(', ', extract(epoch FROM $1::timestamptz - stmt_first_seen[1])::int || ' s before',
				extract(epoch FROM $1::timestamptz - stmt_last_seen[1])::int || ' s before', extract(epoch FROM $1::timestamptz - stmt_query_start[1])::int || ' s before')
				FROM lock_history.actor WHERE pid = 50`, began.Time())
			l.expect(tt.query, `SELECT query FROM lock_history.actor WHERE pid = 50`)
		})
	}
}

func pgArray(s string) string {
	if s == "NULL" || s == "<null>" {
		return "NULL"
	}
	return `"` + s + `"`
}

// A statement more, or another state after it, makes another actor; when it
// was last seen does not.
func TestActorsByStatements(t *testing.T) {
	cfg := &config.Config{}
	names := newNames(func() *config.Config { return cfg }, report.New(func() {}))
	rows := func() *rowSet {
		return &rowSet{actors: make(map[int64][]any), names: names, cfg: cfg, encode: func(s string) string { return s }}
	}
	session := func(change func(*snapshot.Session)) *snapshot.Session {
		s := &snapshot.Session{Pid: 50, Statements: []snapshot.Statement{{FirstSeen: 5, LastSeen: 6, QueryStart: 4, Samples: 1, Query: "UPDATE"}}}
		change(s)
		return s
	}
	plain := rows().actor(session(func(*snapshot.Session) {}))
	tests := []struct {
		name   string
		change func(*snapshot.Session)
		same   bool
	}{
		{"nothing", func(*snapshot.Session) {}, true},
		{"seen for longer", func(s *snapshot.Session) { s.Statements[0].LastSeen, s.Statements[0].Samples = 9, 4 }, true},
		{"another state", func(s *snapshot.Session) { s.Statements[0].State = snapshot.StateIdleInTransaction }, false},
		{"run again", func(s *snapshot.Session) { s.Statements[0].QueryStart = 8 }, false},
		{"another text", func(s *snapshot.Session) { s.Statements[0].Query = "DELETE" }, false},
		{"one more", func(s *snapshot.Session) {
			s.Statements = append(s.Statements, snapshot.Statement{FirstSeen: 9, Query: "SELECT"})
		}, false},
		{"none", func(s *snapshot.Session) { s.Statements = nil }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if id := rows().actor(session(tt.change)); id == plain != tt.same {
				t.Errorf("the same actor: %v, want %v", id == plain, tt.same)
			}
		})
	}
}
