package live

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pg_lock_history/gosrc/episode"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/lockmgr/lockmgrtest"
	"pg_lock_history/gosrc/object"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

// row is a record taken apart as a session does it.
type row struct {
	role    uint32
	at      snapshot.Micros
	fields  []any
	private []bool
}

// Places of fields in a record.
const (
	fMember = iota
	fParents
	fBlockedBy
	fKind
	fGroupPid
	fMembers
	fWaitID
	fPid
	fGid
	fBackendStart
	fLeaderPid
	fBackendType
	fState
	fStateChange
	fDatname
	fUsename
	fApplicationName
	fXactStart
	fQueryStart
	fClientAddr
	fQueryID
	fQuery
	fLocktype
	fMode
	fObject
	fObjectDatname
	fDatabase
	fRelation
	fPage
	fTuple
	fVirtualXID
	fTransactionID
	fClassID
	fObjID
	fObjSubID
	fWaitStart
	fWaitEnd
	fGranted
	fOutcome
	fSamples
	fHardBlockers
	fSoftBlockers
	fRootBlockers
	fHardCount
	fSoftCount
	fInCycle
)

// decode fails the test on anything that C would not take.
func decode(t *testing.T, buf []byte) (rows []row) {
	t.Helper()
	for len(buf) > 0 {
		if len(buf) < PrefixBytes || lengthOf(buf) < PrefixBytes || lengthOf(buf) > len(buf) {
			t.Fatalf("record %d: length %d of %d bytes", len(rows), lengthOf(buf), len(buf))
		}
		r := row{role: binary.NativeEndian.Uint32(buf[4:]), at: snapshot.Micros(binary.NativeEndian.Uint64(buf[8:]))}
		n := int(binary.NativeEndian.Uint32(buf[16:]))
		rest := buf[PrefixBytes:lengthOf(buf)]
		buf = buf[lengthOf(buf):]
		take := func(n int) []byte {
			if n > len(rest) {
				t.Fatalf("record %d field %d: wants %d of %d bytes", len(rows), len(r.fields), n, len(rest))
			}
			taken := rest[:n]
			rest = rest[n:]
			return taken
		}
		count := func() int { return int(binary.NativeEndian.Uint32(take(4))) }
		for range n {
			kind := take(1)[0]
			var v any
			switch kind &^ FieldPrivate {
			case FieldNull:
			case FieldInt:
				v = int64(binary.NativeEndian.Uint64(take(8)))
			case FieldInts:
				list := []int32{}
				for range count() {
					list = append(list, int32(binary.NativeEndian.Uint32(take(4))))
				}
				v = list
			case FieldText:
				v = string(take(count()))
			default:
				t.Fatalf("record %d field %d: kind %#x", len(rows), len(r.fields), kind)
			}
			r.fields = append(r.fields, v)
			r.private = append(r.private, kind&FieldPrivate != 0)
		}
		if len(rest) != 0 || len(r.fields) != Fields {
			t.Fatalf("record %d: %d fields and %d bytes left, want %d fields", len(rows), len(r.fields), len(rest), Fields)
		}
		rows = append(rows, r)
	}
	return rows
}

// names are those of every server here; a new table is not known at once.
type names struct {
	unknown bool
	renamed snapshot.Micros // when what was public.old became public.orders
}

func (n *names) Tag(_ lockmgr.Tag, since snapshot.Micros) object.Names {
	if n.unknown {
		return object.Names{}
	}
	if since < n.renamed {
		return object.Names{Relation: "public.old", Database: "shop"}
	}
	return object.Names{Relation: "public.orders", Database: "shop"}
}
func (n *names) Database(uint32) string            { return "shop" }
func (n *names) Role(uint32) string                { return "alice" }
func (n *names) Gid(uint32) string                 { return "transfer" }
func (n *names) PreparedAt(uint32) snapshot.Micros { return 77 }

// incident is one walk: locks with holders and queues, by pid.
type incident struct {
	graph    snapshot.Graph
	episodes map[int32]*history.Episode // by pid of the waiter
	sessions map[int32]*snapshot.Session
	built    *waitgraph.Graph
}

const monday = snapshot.Micros(800_000_000_000_000)

// who is a process: pid, and its leader when it has one.
type who struct{ pid, leader int32 }

func (in *incident) session(w who) *snapshot.Session {
	if s := in.sessions[w.pid]; s != nil {
		return s
	}
	s := &snapshot.Session{Slot: w.pid, Pid: w.pid, LeaderPid: w.leader, Database: 5, Role: 10, State: snapshot.StateActive,
		BackendStart: monday, BackendType: "client backend", ApplicationName: "app", Query: fmt.Sprintf("SELECT %d", w.pid), QueryID: 4, ClientAddr: "::ffff:10.1.2.3"}
	in.sessions[w.pid] = s
	return s
}

func newIncident() *incident {
	return &incident{episodes: map[int32]*history.Episode{}, sessions: map[int32]*snapshot.Session{}}
}

// lock adds one on a relation: who holds AccessShareLock (a negative pid is a
// prepared transaction of that xid), who waits for AccessExclusiveLock.
func (in *incident) lock(holders, queue []who) {
	g := &in.graph
	g.TakenAt = monday.Add(time.Hour)
	n := uint32(len(g.Locks))
	l := snapshot.Lock{Lock: uint64(n) + 1, Field1: 5, Field2: 16384 + n, Method: 1,
		FirstHolder: uint32(len(g.Holders)), NHolders: uint32(len(holders)), FirstQueued: uint32(len(g.Queue)), NQueued: uint32(len(queue))}
	for _, h := range holders {
		if h.pid < 0 {
			g.Holders = append(g.Holders, snapshot.Holder{Slot: 10000 - h.pid, LeaderSlot: 10000 - h.pid, HoldMask: 2,
				Xid: uint32(-h.pid), Database: 5, Role: 10, Flags: snapshot.HolderPrepared})
			continue
		}
		leader := max(h.leader, h.pid*int32(1-min(h.leader, 1)))
		g.Holders = append(g.Holders, snapshot.Holder{Slot: h.pid, Pid: h.pid, LeaderSlot: leader, LeaderPid: leader, HoldMask: 2})
		in.session(h)
	}
	for i, q := range queue {
		leader := max(q.leader, q.pid*int32(1-min(q.leader, 1)))
		start := monday.Add(time.Minute + time.Duration(i)*time.Second)
		g.Queue = append(g.Queue, snapshot.Queued{WaitStart: start, Slot: q.pid, Pid: q.pid, LeaderSlot: leader, LeaderPid: leader, Mode: 8})
		in.episodes[q.pid] = &history.Episode{WaitID: int64(q.pid) * 1000, Waiter: in.session(q), Mode: 8, Start: start, Samples: 3,
			Tag: lockmgr.Tag{Field1: 5, Field2: 16384 + n, Method: 1}}
	}
	g.Locks = append(g.Locks, l)
}

func (in *incident) build() *waitgraph.Graph {
	in.built = waitgraph.NewBuilder(lockmgrtest.Conflicts()).Build(&in.graph)
	return in.built
}

func (in *incident) Known(i int) bool { return in.episodes[in.built.Waiters[i].Pid] != nil }

func (in *incident) Peek(i int, e *history.Episode) { *e = *in.episodes[in.built.Waiters[i].Pid] }

func (in *incident) Session(_, pid int32) *snapshot.Session { return in.sessions[pid] }

func newArea(room Room) *Area {
	return New(room, &names{}, Settings{ServerVersion: 150000, Statements: querytext.Policy{MaxBytes: 1024}})
}

var wide = Room{Graph: 1 << 20, Waits: 1 << 20}

func TestGraphMembers(t *testing.T) {
	edge := func(kind history.EdgeKind, pid int32, since time.Duration) history.Edge {
		return history.Edge{Kind: kind, From: monday.Add(since), Blocker: &snapshot.Session{Pid: pid}}
	}
	tests := []struct {
		name string
		in   func() *incident
		want []string // pid <parents' pids> blocked_by kind, and members, in order of pid; in brackets who is told about by another
	}{
		{"a queue behind a holder", func() *incident {
			in := newIncident()
			in.lock([]who{{pid: 1}}, []who{{pid: 2}, {pid: 3}, {pid: 4}})
			return in
		}, []string{"1 <[]> [] <nil>", "2 <[1]> [1] hard", "3 <[1]> [1] hard", "4 <[1]> [1] hard"}},
		{"behind the queue alone", func() *incident {
			in := newIncident()
			in.lock(nil, []who{{pid: 2}, {pid: 3}, {pid: 4}})
			return in
		}, []string{"2 <[]> [] <nil>", "3 <[2]> [2] soft", "4 <[3]> [3] soft"}},
		{"a holder that waits itself is one member", func() *incident {
			in := newIncident()
			in.lock([]who{{pid: 1}}, []who{{pid: 2}})
			in.lock([]who{{pid: 2}}, []who{{pid: 3}})
			return in
		}, []string{"1 <[]> [] <nil>", "2 <[1]> [1] hard", "3 <[2]> [2] hard"}},
		{"the parallel worker of a blocker is what waits", func() *incident {
			in := newIncident()
			in.lock([]who{{pid: 1}}, []who{{pid: 20, leader: 10}})
			in.lock([]who{{pid: 10}}, []who{{pid: 30}})
			return in
		}, []string{"1 <[]> [] <nil>", "10 <[1]> [1] hard [20]", "30 <[10]> [10] hard"}},
		{"who has waited longest stands for the group", func() *incident {
			in := newIncident()
			in.lock([]who{{pid: 1}}, []who{{pid: 20, leader: 10}})
			in.lock([]who{{pid: 1}, {pid: 2}}, []who{{pid: 3}, {pid: 21, leader: 10}, {pid: 22, leader: 10}})
			in.episodes[20].Start = monday.Add(2 * time.Hour)
			return in
		}, []string{"(20)", "(22)", "1 <[]> [] <nil>", "2 <[]> [] <nil>", "3 <[1 2]> [1 2] hard", "10 <[1 2]> [1 2] hard [20 21 22]"}},
		{"hard for one of the group is hard", func() *incident {
			in := newIncident()
			in.lock(nil, []who{{pid: 2}, {pid: 20, leader: 10}})
			in.lock([]who{{pid: 1}}, []who{{pid: 21, leader: 10}})
			return in
		}, []string{"(20)", "1 <[]> [] <nil>", "2 <[]> [] <nil>", "10 <[1 2]> [1 2] hard [20 21]"}},
		{"a worker that holds stands beside its leader", func() *incident {
			in := newIncident()
			in.lock([]who{{pid: 10, leader: 10}, {pid: 20, leader: 10}}, []who{{pid: 30}})
			in.sessions[10].Members = []int32{19, 20}
			return in
		}, []string{"10 <[]> [] <nil> [19 20]", "30 <[10]> [10] hard"}},
		{"the leader itself is preferred", func() *incident {
			in := newIncident()
			in.lock([]who{{pid: 1}}, []who{{pid: 20, leader: 10}})
			in.lock([]who{{pid: 2}}, []who{{pid: 10}})
			in.lock([]who{{pid: 10}}, []who{{pid: 30}})
			return in
		}, []string{"(20)", "1 <[]> [] <nil>", "2 <[]> [] <nil>", "10 <[2 1]> [2 1] hard [20]", "30 <[10]> [10] hard"}},
		{"prepared transactions are counted", func() *incident {
			in := newIncident()
			in.lock([]who{{pid: -700}, {pid: -800}, {pid: 1}}, []who{{pid: 2}})
			in.lock([]who{{pid: -800}}, []who{{pid: 3}})
			return in
		}, []string{"-2 <[]> [] <nil>", "-1 <[]> [] <nil>", "1 <[]> [] <nil>", "2 <[-1 -2 1]> [-1 -2 1] hard", "3 <[-2]> [-2] hard"}},
		{"a waiter that no sweep has found blocks like a holder", func() *incident {
			in := newIncident()
			in.lock([]who{{pid: 1}}, []who{{pid: 2}})
			in.lock([]who{{pid: 2}}, []who{{pid: 3}})
			delete(in.episodes, 2)
			return in
		}, []string{"2 <[]> [] <nil>", "3 <[2]> [2] hard"}},
		{"a cycle", func() *incident {
			in := newIncident()
			in.lock([]who{{pid: 1}}, []who{{pid: 2}})
			in.lock([]who{{pid: 2}}, []who{{pid: 1}})
			return in
		}, []string{"1 <[2]> [2] hard", "2 <[1]> [1] hard"}},
		{"blockers in the order in which they came", func() *incident {
			in := newIncident()
			in.lock([]who{{pid: 7}, {pid: 8}, {pid: 9}}, []who{{pid: 10}})
			in.episodes[10].Edges = []history.Edge{edge(history.Hard, 99, 0), // past
				edge(history.Hard, 7, 3*time.Minute), edge(history.Hard, 8, time.Minute), edge(history.Hard, 9, 2*time.Minute),
				edge(history.Root, 7, 0), edge(history.Root, 8, 0), edge(history.Root, 9, 0)}
			return in
		}, []string{"7 <[]> [] <nil>", "8 <[]> [] <nil>", "9 <[]> [] <nil>", "10 <[8 9 7]> [8 9 7] hard"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := tt.in()
			made := newArea(wide).Make(in.build(), in)
			rows := decode(t, made.Records)
			if len(rows) != made.Rows || made.LeftOut != 0 || made.TakenAt != in.graph.TakenAt {
				t.Errorf("%d records, said %d rows, %d left out, taken at %v", len(rows), made.Rows, made.LeftOut, made.TakenAt)
			}
			pids := map[int64]int64{}
			for _, r := range rows {
				if r.fields[fMember] != nil {
					pids[r.fields[fMember].(int64)] = r.fields[fGroupPid].(int64)
				}
			}
			slices.SortFunc(rows, func(x, y row) int {
				pid := func(r row) int64 {
					if r.fields[fMember] == nil {
						return math.MinInt64 + r.fields[fPid].(int64)
					}
					return r.fields[fGroupPid].(int64)
				}
				return cmp.Compare(pid(x), pid(y))
			})
			var got []string
			for _, r := range rows {
				if r.fields[fMember] == nil {
					got = append(got, fmt.Sprintf("(%v)", r.fields[fPid]))
					continue
				}
				parents := []int64{}
				for _, p := range r.fields[fParents].([]int32) {
					parents = append(parents, pids[int64(p)])
				}
				line := fmt.Sprintf("%v <%v> %v %v", r.fields[fGroupPid], parents, r.fields[fBlockedBy], r.fields[fKind])
				if r.fields[fMembers] != nil {
					line += fmt.Sprintf(" %v", r.fields[fMembers])
				}
				got = append(got, line)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestFieldsOfAnEndedWait(t *testing.T) {
	s := func(pid int32, xid uint32) *snapshot.Session { return &snapshot.Session{Pid: pid, Prepared: xid} }
	at := func(d time.Duration) snapshot.Micros { return monday.Add(d) }
	e := &history.Episode{
		WaitID: 4711, Mode: 5, Start: at(time.Minute), End: at(2 * time.Minute), Outcome: history.LockTimeout, Samples: 6000, InCycle: true,
		Tag: lockmgr.Tag{Type: lockmgr.Tuple, Field1: 5, Field2: 16384, Field3: 7, Field4: 9},
		Waiter: &snapshot.Session{Pid: 12, LeaderPid: 11, Role: 10, Database: 5, State: snapshot.StateActive, BackendType: "parallel worker",
			BackendStart: at(1), StateChange: at(2), XactStart: at(3), QueryStart: at(4), QueryID: -8, Query: "SELECT 'caf\xe9'", ApplicationName: "a\x00b", ClientAddr: "::ffff:10.1.2.3"},
		SoftPids: []int32{30, 31}, HardCount: 4, SoftCount: 2,
		Edges: []history.Edge{
			{Kind: history.Root, From: at(80 * time.Second), Blocker: s(0, 900)},
			{Kind: history.Hard, From: at(90 * time.Second), Blocker: s(21, 0)},
			{Kind: history.Hard, From: 0, Blocker: s(0, 800)}, // 0: from the start
			{Kind: history.Hard, From: at(70 * time.Second), Blocker: s(21, 0)},
			{Kind: history.Soft, From: at(70 * time.Second), Blocker: s(30, 0)},
			{Kind: history.Hard, From: at(95 * time.Second), Blocker: s(0, 900)},
		},
	}
	a := newArea(wide)
	a.Ended(e)
	pending, skipped := a.Pending()
	rows := decode(t, pending)
	if len(rows) != 1 || skipped != 0 {
		t.Fatalf("%d rows pending, %d skipped", len(rows), skipped)
	}
	if rows[0].role != 10 || rows[0].at != e.End {
		t.Errorf("texts of role %d at %v, want 10 at the end of the wait", rows[0].role, rows[0].at)
	}
	n := func(v int) any { return int64(v) }
	us := func(m snapshot.Micros) any { return int64(m) }
	want := []any{nil, nil, nil, nil, nil, nil, n(4711), n(12), nil, us(at(1)), n(11), "parallel worker", "active", us(at(2)), "shop", "alice", "a",
		us(at(3)), us(at(4)), "10.1.2.3", n(-8), `SELECT 'caf\xE9'`,
		"tuple", "ShareLock", "tuple (7,9) of public.orders", "shop", n(5), n(16384), n(7), n(9), nil, nil, nil, nil, nil,
		us(e.Start), us(e.End), n(0), "lock_timeout", n(6000), []int32{-2, 21, -1}, []int32{30, 31}, []int32{-1}, n(4), n(2), n(1)}
	for i := range want {
		if !reflect.DeepEqual(rows[0].fields[i], want[i]) {
			t.Errorf("field %d: %v, want %v", i, rows[0].fields[i], want[i])
		}
		if private := i == fClientAddr || i == fQueryID || i == fQuery; rows[0].private[i] != private {
			t.Errorf("field %d: private %v", i, rows[0].private[i])
		}
	}
	a.HandedOver()
	if pending, _ := a.Pending(); len(pending) != 0 {
		t.Error("handed over, and still pending")
	}
}

func TestNamesShowWhenTheyAreKnown(t *testing.T) {
	in := newIncident()
	in.lock([]who{{pid: -700}}, []who{{pid: 2}})
	n := &names{unknown: true}
	a := New(wide, n, Settings{ServerVersion: 150000})
	waiter := func() row { return decode(t, a.Make(in.build(), in).Records)[1] }
	if r := waiter(); r.fields[fObject] != "relation 16384" || r.fields[fObjectDatname] != nil {
		t.Errorf("object %v in %v, want the number and no database", r.fields[fObject], r.fields[fObjectDatname])
	}
	n.unknown = false
	if r := waiter(); r.fields[fObject] != "public.orders" || r.fields[fObjectDatname] != "shop" {
		t.Errorf("object %v in %v, want the name that is known by now", r.fields[fObject], r.fields[fObjectDatname])
	}
	n.renamed = in.episodes[2].Start + 1
	if r := waiter(); r.fields[fObject] != "public.old" {
		t.Errorf("object %v, want it by the name that it was asked for by", r.fields[fObject])
	}
	n.renamed = 0
	p := decode(t, a.Make(in.build(), in).Records)[0]
	if p.fields[fPid] != int64(-1) || p.fields[fGid] != "transfer" || p.fields[fState] != "prepared" || p.fields[fXactStart] != int64(77) || p.fields[fBackendType] != "prepared transaction" {
		t.Errorf("prepared transaction %v", p.fields[fPid:fLocktype])
	}
	n.unknown = true
	e := in.episodes[2]
	e.Tag.Field2 = 99
	a.Ended(e)
	n.unknown = false
	a.Ended(e)
	pending, _ := a.Pending()
	if rows := decode(t, pending); rows[0].fields[fObject] != "relation 99" || rows[1].fields[fObject] != "public.orders" {
		t.Errorf("ended waits for %v and %v, want what was known each time", rows[0].fields[fObject], rows[1].fields[fObject])
	}
}

// What a wait for a transaction says of it beside its number, as in the tables.
func TestTransactionWithItsRow(t *testing.T) {
	in := newIncident()
	in.lock([]who{{pid: 1}}, []who{{pid: 2}})
	e := in.episodes[2]
	e.Tag = lockmgr.Tag{Type: lockmgr.TransactionID, Field1: 740}
	e.Edges = []history.Edge{{Kind: history.Hard, From: monday, Blocker: in.sessions[1]}}
	a := newArea(wide)
	waiter := func() []any { return decode(t, a.Make(in.build(), in).Records)[1].fields[fObject : fTransactionID+1] }
	if got, want := waiter(), []any{"transaction 740 (pid 1)", "shop", nil, nil, nil, nil, nil, int64(740)}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	e.Row = lockmgr.Tag{Type: lockmgr.Tuple, Field1: 5, Field2: 16384, Field3: 7, Field4: 9}
	want := []any{"transaction 740 (pid 1), tuple (7,9) of public.orders", "shop", int64(5), int64(16384), int64(7), int64(9), nil, int64(740)}
	if got := waiter(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	e.Edges[0].Blocker = &snapshot.Session{Prepared: 740}
	if got := waiter()[0]; got != "transaction 740 (prepared as transfer), tuple (7,9) of public.orders" {
		t.Errorf("got %v", got)
	}
	if n := testing.AllocsPerRun(10, func() { a.Make(in.built, in) }); n > 0 {
		t.Errorf("%v allocations for what was said before", n)
	}
}

func TestUndescribedProcess(t *testing.T) {
	in := newIncident()
	in.lock([]who{{pid: 1}}, []who{{pid: 2}})
	in.episodes[2].Waiter = nil
	delete(in.sessions, 1)
	for _, r := range decode(t, newArea(wide).Make(in.build(), in).Records) {
		if r.role != 0 || r.fields[fPid] == nil || r.fields[fQuery] != nil || !r.private[fQuery] || !r.private[fClientAddr] || !r.private[fQueryID] {
			t.Errorf("%+v, want a pid, nothing else of the process, and what is private marked as private", r)
		}
	}
}

func TestSettingsForStatements(t *testing.T) {
	in := newIncident()
	in.lock([]who{{pid: 1}}, []who{{pid: 2}})
	in.sessions[1].Wraparound = true
	a := newArea(wide)
	for _, tt := range []struct {
		policy querytext.Policy
		want   [2]any // of the holder, which is public here, and the waiter
	}{
		{querytext.Policy{Mode: querytext.Full, MaxBytes: 1024}, [2]any{"SELECT 1", "SELECT 2"}},
		{querytext.Policy{Mode: querytext.Normalized, MaxBytes: 1024}, [2]any{"SELECT 1", "SELECT $1"}},
		{querytext.Policy{Mode: querytext.Off, MaxBytes: 1024}, [2]any{"SELECT 1", nil}},
		{querytext.Policy{Mode: querytext.Full, MaxBytes: 6}, [2]any{"SELECT", "SELECT"}},
	} {
		a.Configure(Settings{ServerVersion: 150000, Statements: tt.policy})
		var got [2]any
		for _, r := range decode(t, a.Make(in.build(), in).Records) {
			got[r.fields[fPid].(int64)-1] = r.fields[fQuery]
		}
		if got != tt.want {
			t.Errorf("%v: %q, want %q", tt.policy, got, tt.want)
		}
	}
}

// crowd is n waiters behind one holder; every tenth holds a lock that one more waits for.
func crowd(n int, text string) *incident {
	in := newIncident()
	queue := make([]who, n)
	for i := range queue {
		queue[i] = who{pid: int32(100 + i)}
	}
	in.lock([]who{{pid: 1}}, queue)
	for i := 0; i < n; i += 10 {
		in.lock([]who{queue[i]}, []who{{pid: int32(100_000 + i)}})
	}
	for _, s := range in.sessions {
		s.Query = text
	}
	return in
}

func TestGraphThatDoesNotFit(t *testing.T) {
	text := strings.Repeat("€", 267) // 801 bytes, three each
	in := crowd(200, text)
	g := in.build()
	all := len(in.graph.Queue) + 1
	full := newArea(wide).Make(g, in)
	if full.Rows != all || full.LeftOut != 0 {
		t.Fatalf("%d rows, %d left out, want all %d", full.Rows, full.LeftOut, all)
	}
	perRow := len(full.Records) / all

	tests := []struct {
		name     string
		room     int
		longest  int // statement
		leavesOf int // waiters left out
	}{
		{"it just fits", len(full.Records), 801, 0},
		{"a byte less", len(full.Records) - 1, 255, 0},
		{"texts of 256 bytes do not fit", all * (perRow - 800 + 200), 63, 0},
		{"waiters who block nobody are left out", all * (perRow - 800 + 64) * 3 / 4, 63, all / 4},
		{"no room for even those in the way", 10 * perRow, 63, all - 20},
		{"no room at all", 0, 0, all},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newArea(Room{Graph: tt.room, Waits: 1 << 20})
			var made Graph
			for range 2 { // also when the bound is remembered
				made = a.Make(g, in)
			}
			rows := decode(t, made.Records)
			if len(made.Records) > tt.room {
				t.Fatalf("%d bytes, room for %d", len(made.Records), tt.room)
			}
			if len(rows) != made.Rows || made.Rows+made.LeftOut != all {
				t.Errorf("%d records, said %d and %d left out of %d", len(rows), made.Rows, made.LeftOut, all)
			}
			if made.LeftOut < tt.leavesOf*9/10 || made.LeftOut > tt.leavesOf*11/10 {
				t.Errorf("%d left out, want about %d", made.LeftOut, tt.leavesOf)
			}
			longest, inTheWay := 0, 0
			for _, r := range rows {
				query, _ := r.fields[fQuery].(string)
				longest = max(longest, len(query))
				if !strings.HasPrefix(text, query) {
					t.Fatalf("statement %q is cut in the middle of a character", query)
				}
				pid := r.fields[fPid].(int64)
				if pid == 1 || pid < 100_000 && pid%10 == 0 {
					inTheWay++
				}
			}
			if longest != tt.longest {
				t.Errorf("longest statement %d bytes, want %d", longest, tt.longest)
			}
			if want := min(21, made.Rows); inTheWay != want {
				t.Errorf("%d of those in the way are there, want %d: they come first", inTheWay, want)
			}
		})
	}

	t.Run("whole again when there is room", func(t *testing.T) {
		a := newArea(Room{Graph: len(full.Records) - 1, Waits: 1})
		a.Make(g, in)
		smaller := crowd(100, text)
		a.Make(smaller.build(), smaller) // finds out
		longest := 0
		for _, r := range decode(t, a.Make(smaller.built, smaller).Records) {
			longest = max(longest, len(r.fields[fQuery].(string)))
		}
		if longest != 801 {
			t.Errorf("statements of %d bytes where 801 fit", longest)
		}
	})
}

func TestEndedWaitsThatDoNotFit(t *testing.T) {
	e := &history.Episode{Waiter: &snapshot.Session{Pid: 1}, Mode: 8, Start: monday, Outcome: history.Granted}
	a := newArea(Room{Graph: 1 << 20, Waits: 16 << 10})
	const n = 200
	for i := range n {
		e.WaitID, e.End = int64(i+1), monday.Add(time.Duration(i+1))
		a.Ended(e)
	}
	pending, skipped := a.Pending()
	rows := decode(t, pending)
	if len(pending) > 16<<10 || len(pending) < 13<<10 {
		t.Errorf("%d bytes pending, want nearly the room", len(pending))
	}
	if len(rows)+skipped != n {
		t.Errorf("%d pending and %d skipped of %d", len(rows), skipped, n)
	}
	for i, r := range rows {
		if r.fields[fWaitID] != int64(skipped+i+1) {
			t.Fatalf("place %d has wait %v, want %d: the newest, in order", i, r.fields[fWaitID], skipped+i+1)
		}
	}

	// A statement that is larger than a sixteenth of the ring.
	a = New(Room{Graph: 1 << 20, Waits: 16 << 10}, &names{}, Settings{Statements: querytext.Policy{MaxBytes: 1 << 20}})
	e.Waiter = &snapshot.Session{Pid: 1, Query: strings.Repeat("x", 50_000)}
	a.Ended(e)
	pending, skipped = a.Pending()
	if rows := decode(t, pending); skipped != 0 || len(rows) != 1 || len(rows[0].fields[fQuery].(string)) != 256 {
		t.Fatalf("%d rows in %d bytes, want the wait with 256 bytes of its statement", len(rows), len(pending))
	}
}

// storm is a graph of n waiters as the sampler has it: tracker, sessions, walk.
type storm struct {
	tracker *episode.Tracker
	in      *incident
	found   []snapshot.Wait
}

func newStorm(in *incident) *storm {
	s := &storm{in: in, tracker: episode.NewTracker(episode.Config{Node: "n", MaxRowsPerSecond: 1000, MaxShortKeys: 1000})}
	g := in.build()
	for i := range g.Waiters {
		w := &g.Waiters[i]
		s.found = append(s.found, snapshot.Wait{Lock: g.Locks[w.Lock].Lock, WaitStart: w.WaitStart, Slot: w.Slot, Pid: w.Pid})
	}
	s.tracker.Sweep(episode.Sweep{At: in.graph.TakenAt, Previous: in.graph.TakenAt, Found: s.found})
	s.tracker.Walk(g, s.Session)
	return s
}

func (s *storm) Known(i int) bool                       { return s.tracker.Known(i) }
func (s *storm) Peek(i int, e *history.Episode)         { s.tracker.Peek(i, e) }
func (s *storm) Session(_, pid int32) *snapshot.Session { return s.in.sessions[pid] }

func TestSteadyGraphAllocatesNothing(t *testing.T) {
	in := crowd(1000, strings.Repeat("SELECT something ", 10))
	in.lock([]who{{pid: -700}}, []who{{pid: 200_000}})
	in.lock([]who{{pid: 210_000}}, []who{{pid: 210_011, leader: 210_010}, {pid: 210_010, leader: 210_010}, {pid: 210_012, leader: 210_010}})
	s := newStorm(in)
	a := newArea(Room{Graph: 4 << 20, Waits: 1 << 20})
	made := a.Make(in.built, s)
	if made.Rows != 1000+100+1+2+4 || made.LeftOut != 0 {
		t.Fatalf("%d rows, %d left out", made.Rows, made.LeftOut)
	}
	if n := testing.AllocsPerRun(10, func() { a.Make(in.built, s) }); n > 0 {
		t.Errorf("%v allocations for a graph like the one before", n)
	}
}

func TestWordsAreForgotten(t *testing.T) {
	a := newArea(wide)
	for range 20 {
		in := crowd(100, "SELECT 1") // other sessions each time
		a.Make(in.build(), in)
	}
	if n := len(a.words.sessions); n > 3*111+spareEntries {
		t.Errorf("%d statements kept for 111 sessions", n)
	}
	a.Clear()
	if len(a.words.sessions)+len(a.words.locks) != 0 {
		t.Error("something is kept while nobody waits")
	}
}

func TestRestGivesBackAndGoesOn(t *testing.T) {
	in := crowd(100, "SELECT 1")
	a := newArea(wide)
	before := slices.Clone(a.Make(in.build(), in).Records)
	a.Ended(in.episodes[100])
	a.Rest()
	if cap(a.graph.buf) != 0 || cap(a.members) != 0 || len(a.words.sessions) != 0 {
		t.Error("memory of the storm is kept")
	}
	if pending, _ := a.Pending(); len(decode(t, pending)) != 1 {
		t.Error("a wait that was not handed over is lost")
	}
	if after := a.Make(in.build(), in).Records; !slices.Equal(after, before) {
		t.Error("another graph than before")
	}
	a.HandedOver()
	a.Rest()
	if cap(a.waits.buf) != 0 {
		t.Error("memory of ended waits is kept")
	}
}

func BenchmarkGraph(b *testing.B) {
	for _, text := range []int{100, 1000} {
		for _, n := range []int{100, 1000} {
			b.Run(fmt.Sprintf("waiters=%d/statement=%d", n, text), func(b *testing.B) {
				in := newIncident()
				queue := make([]who, n)
				for i := range queue {
					queue[i] = who{pid: int32(100 + i)}
				}
				in.lock([]who{{pid: 1}}, queue)
				for _, s := range in.sessions {
					s.Query = strings.Repeat("x", text)
				}
				s := newStorm(in)
				a := newArea(Room{Graph: 2 << 20, Waits: 2 << 20})
				b.ReportAllocs()
				var made Graph
				for b.Loop() {
					made = a.Make(in.built, s)
				}
				b.ReportMetric(float64(len(made.Records))/float64(made.Rows), "bytes/row")
			})
		}
	}
	b.Run("locks=1000", func(b *testing.B) { // everybody waits for another lock
		in := newIncident()
		for i := range 1000 {
			in.lock([]who{{pid: int32(10_000 + i)}}, []who{{pid: int32(100 + i)}})
		}
		s := newStorm(in)
		a := newArea(Room{Graph: 2 << 20, Waits: 2 << 20})
		b.ReportAllocs()
		for b.Loop() {
			a.Make(in.built, s)
		}
	})
}
