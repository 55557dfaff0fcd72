package live

import (
	"cmp"
	"math"
	"slices"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/waitgraph"
)

// Room is the fixed size of the sections in bytes.
type Room struct {
	Graph int
	Waits int
	Load  int
}

// Settings are what the records depend on.
type Settings struct {
	ServerVersion int
	Statements    querytext.Policy
}

// maxTexts are the bounds of each text, tried one after the other until the
// graph fits.
var maxTexts = [...]int{math.MaxInt, 256, 64}

// largestWait is the part of the ring that one ended wait may take: a
// statement may be as large as the whole.
const largestWait = 16

// Graph is one graph as records; valid until the Area is asked again.
type Graph struct {
	Records []byte
	Rows    int
	LeftOut int // waiters that had no room
	TakenAt snapshot.Micros
}

// Source tells about the walk that a graph was made of.
type Source interface {
	Known(waiter int) bool // whether that waiter is a wait that is followed
	Peek(waiter int, e *history.Episode)
	Session(slot, pid int32) *snapshot.Session // nil when not known
}

// Area makes what is published in one live area.
type Area struct {
	room  Room
	words words

	graph records
	level int // index of maxTexts that the last graph needed

	waits   records // ended, not yet handed over
	skipped int     // that had no room here

	load        records // not yet handed over
	loadSkipped int

	// Of the graph at work.
	members  []member
	memberOf []int32 // by group: its member, from 1; 0 = none
	beside   []beside
	besideOf []int32 // by group: the first of beside, from 1; 0 = none
	blocks   []bool  // by group: somebody stands behind it
	prepared []int32 // by group: its number among the prepared ones, from 1
	episode  history.Episode
	other    history.Episode
	bare     snapshot.Session // a prepared transaction
	parents  []parent
	numbers  []int32
	pids     []int32
	group    []int32
	first    []firstSeen
	gids     []uint32 // prepared transactions of one wait, in the order of its edges
}

// member is a lock group, a row of the tree; its number is its index plus one.
type member struct {
	waiter int32 // its head: index in Graph.Waiters, or nobody when it does not wait
	group  int32
}

// beside is a further waiter of a group, which the row of its head tells about.
type beside struct {
	waiter int32
	next   int32 // the next one of the group, as in besideOf
}

const nobody = int32(-1)

// parent is somebody in a waiter's way.
type parent struct {
	group int32
	since snapshot.Micros
}

// New returns an Area in which nothing has been made.
func New(room Room, names Names, s Settings) *Area {
	a := &Area{room: room, words: newWords(names, s)}
	return a
}

// Configure applies to all that is made from now on.
func (a *Area) Configure(s Settings) {
	a.words.settings = s
	a.words.clear()
}

// Clear forgets what was kept for the next graph: nobody waits any more.
func (a *Area) Clear() { a.words.clear() }

// Rest gives back the memory that a storm took.
func (a *Area) Rest() {
	a.graph.buf = nil
	if len(a.waits.buf) == 0 {
		a.waits.buf = nil
	}
	a.members, a.memberOf, a.beside, a.besideOf, a.blocks, a.prepared = nil, nil, nil, nil, nil, nil
	a.words = newWords(a.words.names, a.words.settings)
}

// Make makes the records of a graph, as many as fit.
func (a *Area) Make(g *waitgraph.Graph, src Source) Graph {
	a.words.begin()
	a.collect(g, src)
	var leftOut int
	for {
		last := a.level == len(maxTexts)-1
		a.graph.reset(maxTexts[a.level])
		leftOut = a.encode(g, src, last)
		if leftOut == 0 || last {
			break
		}
		a.level++
	}
	out := Graph{Records: a.graph.buf, Rows: len(a.members) + len(a.beside) - leftOut, LeftOut: leftOut, TakenAt: g.TakenAt}
	if leftOut == 0 && len(a.graph.buf)+a.graph.cut <= a.room.Graph {
		a.level = 0 // the whole fits again
	}
	a.words.tidy()
	return out
}

// collect numbers the members: the waits that are followed, and who is in
// their way without being one of them.
func (a *Area) collect(g *waitgraph.Graph, src Source) {
	a.members = a.members[:0]
	a.memberOf = zeroed(a.memberOf, len(g.Groups))
	a.beside = a.beside[:0]
	a.besideOf = zeroed(a.besideOf, len(g.Groups))
	a.blocks = zeroed(a.blocks, len(g.Groups))
	a.prepared = zeroed(a.prepared, len(g.Groups))
	for i := range g.Waiters {
		if !src.Known(i) {
			continue
		}
		group := g.Waiters[i].Group
		n := a.memberOf[group]
		if n == 0 {
			a.members = append(a.members, member{waiter: int32(i), group: group})
			a.memberOf[group] = int32(len(a.members))
			continue
		}
		head, other := &a.members[n-1].waiter, int32(i)
		if a.before(g, src, other, *head) {
			*head, other = other, *head
		}
		a.beside = append(a.beside, beside{waiter: other, next: a.besideOf[group]})
		a.besideOf[group] = int32(len(a.beside))
	}
	counted := int32(0)
	block := func(w *waitgraph.Waiter) {
		for _, b := range inTheWay(w) {
			a.blocks[b.Group] = true
			if a.memberOf[b.Group] != 0 {
				continue
			}
			a.members = append(a.members, member{waiter: nobody, group: b.Group})
			a.memberOf[b.Group] = int32(len(a.members))
			if g.Groups[b.Group].IsPrepared {
				counted++
				a.prepared[b.Group] = counted
			}
		}
	}
	for i, heads := 0, len(a.members); i < heads; i++ {
		block(&g.Waiters[a.members[i].waiter])
	}
	for i := range a.beside {
		block(&g.Waiters[a.beside[i].waiter])
	}
}

// before reports whether waiter i rather than k is the head of their group: the
// leader if it waits itself, else who has waited longest.
func (a *Area) before(g *waitgraph.Graph, src Source, i, k int32) bool {
	leads := func(w *waitgraph.Waiter) bool {
		leader := &g.Groups[w.Group]
		return leader.Slot == w.Slot && leader.Pid == w.Pid
	}
	x, y := &g.Waiters[i], &g.Waiters[k]
	if leads(x) || leads(y) {
		return leads(x)
	}
	src.Peek(int(i), &a.episode)
	src.Peek(int(k), &a.other)
	return a.episode.Start < a.other.Start
}

// inTheWay returns the hard blockers, or else the nearest soft one.
func inTheWay(w *waitgraph.Waiter) []waitgraph.Blocker {
	if len(w.Hard) == 0 && len(w.Soft) > 0 {
		return w.Soft[:1]
	}
	return w.Hard
}

// encode makes the records, first of those that others need, and returns how
// many did not fit; with leaveOut it makes those that do, else it stops there.
func (a *Area) encode(g *waitgraph.Graph, src Source, leaveOut bool) (leftOut int) {
	for _, needed := range [...]bool{true, false} {
		for i := range a.members {
			m := &a.members[i]
			if needed != (m.waiter == nobody || a.blocks[m.group]) {
				continue
			}
			if m.waiter == nobody {
				a.blocker(g, src, int32(i)+1, m.group)
			} else {
				a.head(g, src, int32(i)+1, m)
			}
			if a.tooMuch() {
				if leftOut++; !leaveOut {
					return leftOut
				}
			}
		}
	}
	for i := range a.beside {
		a.besides(g, src, int(a.beside[i].waiter))
		if a.tooMuch() {
			if leftOut++; !leaveOut {
				return leftOut
			}
		}
	}
	return leftOut
}

// tooMuch takes back the record made last when it does not fit.
func (a *Area) tooMuch() bool {
	if len(a.graph.buf) <= a.room.Graph {
		return false
	}
	a.graph.drop()
	return true
}

// besides makes the record of a wait that the row of another tells about.
func (a *Area) besides(g *waitgraph.Graph, src Source, waiter int) {
	src.Peek(waiter, &a.episode)
	a.graph.begin(roleOf(a.episode.Waiter), 0)
	a.graph.nulls(placeFields)
	a.wait(&g.Waiters[waiter], &a.episode)
}

// head makes the record of a group that waits: of its head, with all that is in
// the way of any of its waiters.
func (a *Area) head(g *waitgraph.Graph, src Source, number int32, m *member) {
	w, e, r := &g.Waiters[m.waiter], &a.episode, &a.graph
	src.Peek(int(m.waiter), e)
	r.begin(roleOf(e.Waiter), 0)

	leader := g.Groups[m.group].Pid
	a.parents, a.group = a.parents[:0], a.group[:0]
	kind := a.addParents(w, e)
	a.addToGroup(leader, w.Pid)
	if e.Waiter != nil {
		a.addToGroup(leader, e.Waiter.Members...)
	}
	for n := a.besideOf[m.group]; n != 0; n = a.beside[n-1].next {
		i := a.beside[n-1].waiter
		src.Peek(int(i), &a.other)
		if k := a.addParents(&g.Waiters[i], &a.other); k == history.Hard || kind == 0 {
			kind = k
		}
		a.addToGroup(leader, g.Waiters[i].Pid)
	}

	// As blocking_tree_at() has it: in the order in which they came.
	slices.SortStableFunc(a.parents, func(x, y parent) int { return cmp.Compare(x.since, y.since) })
	a.numbers, a.pids = a.numbers[:0], a.pids[:0]
	for _, p := range a.parents {
		if n := a.memberOf[p.group]; n != number && !slices.Contains(a.numbers, n) {
			a.numbers = append(a.numbers, n)
		}
		a.pids = append(a.pids, a.pid(g, p.group))
	}
	r.int(int64(number))
	r.ints(a.numbers)
	r.ints(a.pids)
	switch kind {
	case history.Hard:
		r.text("hard")
	case history.Soft:
		r.text("soft")
	default:
		r.null()
	}
	r.int(int64(leader))
	r.someInts(a.group)
	a.wait(w, e)
}

// addParents adds who is in the way of w, with the begin of the edge, and
// returns of which kind they are, 0 when there is nobody.
func (a *Area) addParents(w *waitgraph.Waiter, e *history.Episode) history.EdgeKind {
	others := len(a.parents)
	live := e.Edges[len(e.Edges)-min(len(e.Edges), edgesOf(w)):]
	for k, b := range inTheWay(w) {
		p := parent{group: b.Group}
		if k < len(live) { // hard ones come first, then the nearest soft one
			p.since = live[k].From
		}
		if at := slices.IndexFunc(a.parents[:others], func(o parent) bool { return o.group == p.group }); at >= 0 {
			a.parents[at].since = min(a.parents[at].since, p.since)
			continue
		}
		a.parents = append(a.parents, p)
	}
	switch {
	case len(w.Hard) > 0:
		return history.Hard
	case len(w.Soft) > 0:
		return history.Soft
	default:
		return 0
	}
}

// addToGroup adds pids to those that stand beside the leader, ascending.
func (a *Area) addToGroup(leader int32, pids ...int32) {
	for _, pid := range pids {
		if at, found := slices.BinarySearch(a.group, pid); !found && pid != leader {
			a.group = slices.Insert(a.group, at, pid)
		}
	}
}

// wait adds the fields of a wait to the record at work.
func (a *Area) wait(w *waitgraph.Waiter, e *history.Episode) {
	r := &a.graph
	r.int(e.WaitID)
	a.who(r, e.Waiter, w.Pid)
	a.what(r, e)
	a.how(r, e)
	r.end()
}

// edgesOf returns the number of edges that the latest walk gave a wait.
func edgesOf(w *waitgraph.Waiter) int {
	return len(w.Hard) + min(1, len(w.Soft)) + len(w.Roots)
}

// pid returns how a group is named in this graph.
func (a *Area) pid(g *waitgraph.Graph, group int32) int32 {
	if n := a.prepared[group]; n != 0 {
		return -n
	}
	return g.Groups[group].Pid
}

// blocker makes the record of a member that does not wait.
func (a *Area) blocker(g *waitgraph.Graph, src Source, number, group int32) {
	r, p := &a.graph, &g.Groups[group]
	s := &a.bare
	if p.IsPrepared { // the graph says it all
		a.bare = snapshot.Session{Slot: p.Slot, Prepared: p.Xid, Database: p.Database, Role: p.Role}
	} else {
		s = src.Session(p.Slot, p.Pid)
	}
	r.begin(roleOf(s), 0)
	r.int(int64(number))
	r.ints(nil)
	r.ints(nil)
	r.null() // kind
	r.int(int64(a.pid(g, group)))
	if s != nil {
		r.someInts(s.Members)
	} else {
		r.null()
	}
	r.null() // wait_id
	a.who(r, s, a.pid(g, group))
	r.nulls(whatFields + howFields)
	r.end()
}

// Ended makes the record of a wait that has ended. It is pending until it was
// handed over.
func (a *Area) Ended(e *history.Episode) {
	a.words.begin()
	for _, maxText := range maxTexts {
		a.waits.maxText = maxText
		a.ended(e)
		if size := len(a.waits.buf) - a.waits.start; size <= a.room.Waits/largestWait {
			break
		}
		if maxText != maxTexts[len(maxTexts)-1] {
			a.waits.drop()
		}
	}
	if len(a.waits.buf) > a.room.Waits {
		a.makeRoom()
	}
}

// makeRoom drops the oldest pending waits: an eighth at once, since the others
// are moved.
func (a *Area) makeRoom() {
	drop := 0
	for len(a.waits.buf)-drop > a.room.Waits-a.room.Waits/8 {
		drop += lengthOf(a.waits.buf[drop:])
		a.skipped++
	}
	a.waits.buf = append(a.waits.buf[:0], a.waits.buf[drop:]...)
}

func (a *Area) ended(e *history.Episode) {
	r := &a.waits
	r.begin(roleOf(e.Waiter), e.End)
	r.nulls(placeFields)
	r.int(e.WaitID)
	a.who(r, e.Waiter, 0)
	a.what(r, e)
	a.how(r, e)
	r.end()
}

// Pending returns the ended waits that were not handed over, and how many had
// no room among them.
func (a *Area) Pending() (records []byte, skipped int) { return a.waits.buf, a.skipped }

// HandedOver is called when what Pending returned has arrived.
func (a *Area) HandedOver() {
	a.waits.buf, a.skipped = a.waits.buf[:0], 0
}

// Numbers of fields of each part of a record.
const (
	placeFields = 6 // member, parents, blocked_by, kind, group_pid, members
	whoFields   = 15
	whatFields  = 13
	howFields   = 11

	// Fields is how many a record has: wait_id stands between place and who.
	Fields = placeFields + 1 + whoFields + whatFields + howFields
)

// who is the process; pid stands in for one that is not described.
func (a *Area) who(r *records, s *snapshot.Session, pid int32) {
	if s == nil {
		r.int(int64(pid))
		r.nulls(whoFields - 4)
		r.privateText("") // client_addr
		r.privateNonZero(0)
		r.privateText("")
		return
	}
	var w sessionWords
	gid, xactStart := "", s.XactStart
	if s.Prepared != 0 {
		gid, xactStart = a.words.names.Gid(s.Prepared), a.words.names.PreparedAt(s.Prepared)
	} else {
		w, pid = *a.words.ofSession(s), s.Pid
	}
	r.int(int64(pid))
	r.text(gid)
	r.time(s.BackendStart)
	r.nonZero(int64(s.Leader()))
	r.text(s.Type())
	r.text(s.Doing())
	r.time(s.StateChange)
	r.text(a.words.database(s.Database))
	r.text(a.words.role(s.Role))
	r.text(w.application)
	r.time(xactStart)
	r.time(s.QueryStart)
	r.privateText(w.address)
	r.privateNonZero(s.QueryID)
	r.privateText(w.query)
}

// what is the lock, and the mode asked for.
func (a *Area) what(r *records, e *history.Episode) {
	w := a.words.ofLock(e)
	c := &w.columns
	r.text(e.Tag.Type.String())
	r.text(e.Mode.String())
	r.text(w.text)
	r.text(w.names.Database)
	optional(r, c.Database)
	optional(r, c.Relation)
	optional(r, c.Page)
	optional(r, c.Tuple)
	if c.VirtualXID != nil {
		r.text(*c.VirtualXID)
	} else {
		r.null()
	}
	optional(r, c.TransactionID)
	optional(r, c.ClassID)
	optional(r, c.ObjID)
	optional(r, c.ObjSubID)
}

func optional[T int16 | int32 | uint32](r *records, v *T) {
	if v == nil {
		r.null()
	} else {
		r.int(int64(*v))
	}
}

// how is the course of the wait.
func (a *Area) how(r *records, e *history.Episode) {
	r.time(e.Start)
	r.time(e.End)
	if granted, known := e.Outcome.Granted(); known {
		r.bool(granted)
	} else {
		r.null()
	}
	r.text(e.Outcome.String())
	r.int(e.Samples)
	r.ints(a.blockers(e, history.Hard))
	r.ints(e.SoftPids)
	r.ints(a.blockers(e, history.Root))
	r.int(int64(e.HardCount))
	r.int(int64(e.SoftCount))
	r.bool(e.InCycle)
}

// firstSeen is a blocker and the begin of its first edge.
type firstSeen struct {
	pid   int32
	since snapshot.Micros
}

// blockers returns the pids of one kind as view waits does: in order of first
// seen, at most MaxListed, a prepared transaction as -n, the n-th one among all
// edges of the wait.
func (a *Area) blockers(e *history.Episode, kind history.EdgeKind) []int32 {
	a.first, a.gids, a.pids = a.first[:0], a.gids[:0], a.pids[:0]
	for i := range e.Edges {
		edge := &e.Edges[i]
		if edge.Blocker == nil {
			continue
		}
		pid := edge.Blocker.Pid
		if xid := edge.Blocker.Prepared; xid != 0 {
			n := slices.Index(a.gids, xid)
			if n < 0 {
				n = len(a.gids)
				a.gids = append(a.gids, xid)
			}
			pid = -int32(n + 1)
		}
		if edge.Kind != kind {
			continue
		}
		since := edge.From
		if since == 0 {
			since = e.Start
		}
		at := slices.IndexFunc(a.first, func(f firstSeen) bool { return f.pid == pid })
		if at < 0 {
			a.first = append(a.first, firstSeen{pid: pid, since: since})
		} else {
			a.first[at].since = min(a.first[at].since, since)
		}
	}
	slices.SortStableFunc(a.first, func(x, y firstSeen) int { return cmp.Compare(x.since, y.since) })
	for i := range a.first[:min(len(a.first), history.MaxListed)] {
		a.pids = append(a.pids, a.first[i].pid)
	}
	return a.pids
}

func roleOf(s *snapshot.Session) uint32 {
	if s == nil {
		return 0
	}
	return s.Role
}

// zeroed returns buf with n zero values.
func zeroed[T any](buf []T, n int) []T {
	buf = slices.Grow(buf[:0], n)[:n]
	clear(buf)
	return buf
}
