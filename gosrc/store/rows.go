package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/object"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/snapshot"
)

// columnsOf returns the columns of a leaf as sql/parts/10_tables.sql has them,
// in the order in which rows are made.
func columnsOf(leaf string) []string {
	switch leaf {
	case "actor":
		return []string{"seg", "node_id", "actor_id", "proc_key", "seen_at", "pid", "leader_pid", "gid", "backend_start",
			"backend_type", "datid", "datname", "usesysid", "usename", "application_name", "client_addr", "state",
			"state_change", "xact_start", "query_start", "query_id", "query", "members", "stmt_first_seen", "stmt_last_seen", "stmt_samples", "stmt_state",
			"stmt_wait_event_type", "stmt_wait_event", "stmt_query_start", "stmt_query_id", "stmt_query", "stmt_left_out"}
	case "episode", "open":
		return []string{"seg", "node_id", "run", "wait_id", "proc_key", "actor_id", "written_at", "wait_start",
			"wait_end", "granted", "outcome", "samples", "locktype", "mode", "mode_number", "object", "database", "datname",
			"relation", "page", "tuple", "virtualxid", "transactionid", "classid", "objid", "objsubid", "lock_key",
			"queue_key", "in_cycle", "hard_count", "soft_count", "soft_pids", "edge_kind", "edge_proc", "edge_pid",
			"edge_actor", "edge_modes", "edge_from", "edge_to"}
	case "short_wait":
		return []string{"seg", "node_id", "at", "datname", "locktype", "database", "relation", "object", "mode", "query_id",
			"text_hash", "root_pid", "root_backend_start", "waits", "total_ms", "max_ms", "failed"}
	case "deadlock":
		return []string{"seg", "node_id", "run", "at", "deadlock_id", "member", "pid", "is_victim", "waits_for", "wait_id", "actor_id",
			"locktype", "object", "mode", "held_mode", "held_object", "database", "relation", "transactionid"}
	case "conflict":
		return []string{"seg", "node_id", "run", "at", "conflict", "ended_session", "pid", "actor_id"}
	case "dim":
		return []string{"seg", "node_id", "dim_id", "kind", "wait_event_type", "wait_event", "lwlock_mode", "backend_type", "datid", "datname",
			"usesysid", "usename", "query_id", "instance", "relation", "object", "fork", "object_kind", "query", "seen_at"}
	case "second":
		return []string{"seg", "node_id", "run", "at", "sampled_ms", "clients", "active", "idle_in_transaction", "waiting", "dims", "load_ms", "carry"}
	case "fastpath":
		return []string{"seg", "node_id", "run", "at", "server_version_num", "max_locks", "slots", "dims", "sessions", "slots_max", "sessions_full", "spilled_max"}
	case "hungry":
		return []string{"seg", "node_id", "run", "at", "last_at", "server_version_num", "max_locks", "slots", "dims", "locks_max", "slots_max", "spilled_max",
			"looks", "looks_full", "sessions"}
	case "anomaly":
		return []string{"seg", "node_id", "run", "written_at", "started_at", "detected_at", "ended_at", "ended_as", "wait_event_type",
			"observed", "expected", "band", "leading_event", "root_pid"}
	case "lwlock":
		return []string{"seg", "node_id", "run", "at", "sampled_ms", "dims", "wait_ms", "waits", "waiters_max", "held_exclusive", "shared_holders"}
	case "page":
		return []string{"seg", "node_id", "run", "at", "sampled_ms", "dims", "blocks", "wait_ms", "waits", "waiters_max", "held_exclusive", "shared_holders"}
	case "wait_length":
		return []string{"seg", "node_id", "run", "at", "dims", "buckets", "waits", "total_ms"}
	case "gap":
		return []string{"seg", "node_id", "run", "began", "ended", "reason", "lost", "detail", "part"}
	default: // health_minute
		return []string{"seg", "node_id", "run", "minute", "ticks_due", "ticks_done", "ticks_late", "ticks_missed",
			"period_ms", "probe_us_p50", "probe_us_p99", "probe_us_max", "hold_us_p99", "hold_us_max",
			"partitions_taken", "partitions_busy", "cpu_ms", "rows_written", "rows_merged", "rows_dropped", "errors"}
	}
}

// maxEventBytes bounds the name of a wait event; an extension's may be anything.
const maxEventBytes = 256

// rowSet is a hand turned into rows; the segment comes first in each and is
// filled in when it is known.
type rowSet struct {
	tables map[string][][]any
	actors map[int64][]any
	dims   *dimensions

	nodeID int32
	run    int64
	names  *Names
	cfg    *config.Config
	encode func(string) string
}

// newRows makes the rows of h; only gaps when that is all there is room for.
func newRows(h *hand, s *session, names *Names, c *config.Config, dims *dimensions, gapsOnly bool) *rowSet {
	r := &rowSet{
		tables: make(map[string][][]any), actors: make(map[int64][]any), dims: dims,
		nodeID: s.nodeID, run: s.run, names: names, cfg: c, encode: s.encode,
	}
	if h.run != 0 {
		r.run = h.run
	}
	for i := range h.gaps {
		r.gap(&h.gaps[i])
	}
	for i := range h.items {
		b := h.items[i].Batch
		if h.run != 0 && b.Number <= h.known {
			continue // is in already
		}
		for j := range b.Gaps {
			r.gap(&b.Gaps[j])
		}
		if gapsOnly {
			continue
		}
		for j := range b.Closed {
			r.episode("episode", &b.Closed[j], b.CompleteTo)
		}
		for j := range b.Open {
			r.episode("open", &b.Open[j], s.openedAt(h, b))
		}
		for j := range b.Short {
			r.short(&b.Short[j])
		}
		for j := range b.Deadlocks {
			r.deadlock(&b.Deadlocks[j])
		}
		for j := range b.Conflicts {
			c := &b.Conflicts[j]
			r.add("conflict", nil, r.nodeID, r.run, c.At.Time(), c.Kind.String(), c.Ended, c.Session.Pid, r.actor(c.Session))
		}
		for j := range b.Seconds {
			r.second(&b.Seconds[j])
			r.fastPath(&b.Seconds[j])
			r.lwlocks(&b.Seconds[j])
			r.pages(&b.Seconds[j])
		}
		for j := range b.Lengths {
			r.lengths(&b.Lengths[j])
		}
		for j := range b.Hungry {
			r.hungry(&b.Hungry[j])
		}
		for j := range b.Anomalies {
			r.anomaly(&b.Anomalies[j], b.CompleteTo)
		}
		for _, s := range b.Texts {
			r.statement(s)
		}
		for j := range b.Health {
			r.health(&b.Health[j])
		}
	}
	dims.rows(r)
	return r
}

// openedAt returns when the open waits of b are said to be written: of one wait
// the latest row counts, also when the clock was set back.
func (s *session) openedAt(h *hand, b *history.Batch) snapshot.Micros {
	at := b.CompleteTo
	if b.OpenAsOf != 0 {
		at = b.OpenAsOf
	}
	if h.run != 0 {
		return at // of an earlier life
	}
	if s.lastOpen.number != b.Number {
		s.lastOpen.number, s.lastOpen.at = b.Number, max(at, s.lastOpen.at+1)
	}
	return s.lastOpen.at
}

// count returns the number of rows, actors included.
func (r *rowSet) count() int {
	n := len(r.actors)
	for _, rows := range r.tables {
		n += len(rows)
	}
	return n
}

// copyInto writes all rows to segment seg, the actors first: whoever sees an
// episode sees who was in it. check, if there is one, is asked when all locks are
// there.
func (r *rowSet) copyInto(ctx context.Context, tx pgx.Tx, seg int, check func() error) error {
	actors := make([][]any, 0, len(r.actors))
	for _, row := range r.actors {
		actors = append(actors, row)
	}
	r.tables["actor"] = actors
	if err := r.lock(ctx, tx, seg, check != nil); err != nil {
		return err
	}
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	for _, leaf := range leaves {
		rows := r.tables[leaf]
		if len(rows) == 0 {
			continue
		}
		for _, row := range rows {
			row[0] = int16(seg)
		}
		name := leafName(leaf, seg)
		n, err := tx.CopyFrom(ctx, pgx.Identifier{"lock_history", name}, columnsOf(leaf), pgx.CopyFromRows(rows))
		if err != nil {
			return fmt.Errorf("copy %d rows into lock_history.%s: %w", len(rows), name, err)
		}
		if n != int64(len(rows)) {
			return fmt.Errorf("copy into lock_history.%s: %d of %d rows arrived", name, n, len(rows))
		}
	}
	return nil
}

// lock takes all the locks that copying needs. What was copied before somebody
// else's lock is met stays on the disk, dead, until the segment is emptied: with
// each try the ring would grow. A single table's lock comes with its rows, unless
// it must be there before.
func (r *rowSet) lock(ctx context.Context, tx pgx.Tx, seg int, before bool) error {
	var tables []string
	for _, leaf := range leaves {
		if len(r.tables[leaf]) > 0 {
			tables = append(tables, "lock_history."+leafName(leaf, seg))
		}
	}
	if len(tables) == 0 || len(tables) == 1 && !before {
		return nil
	}
	if _, err := tx.Exec(ctx, `LOCK TABLE `+strings.Join(tables, ", ")+` IN ROW EXCLUSIVE MODE`); err != nil {
		return fmt.Errorf("lock segment %d: %w", seg, err)
	}
	return nil
}

func (r *rowSet) add(leaf string, row ...any) { r.tables[leaf] = append(r.tables[leaf], row) }

func (r *rowSet) episode(leaf string, e *history.Episode, writtenAt snapshot.Micros) {
	waiter := e.Waiter
	if waiter == nil {
		waiter = new(snapshot.Session)
	}
	col := object.ColumnsOf(e.Tag, r.cfg.Server.VersionNum).WithRow(e.Row)
	names := object.NamesOf(e, r.names)
	n := len(e.Edges)
	kinds, procs, pids := make([]int16, n), make([]int64, n), make([]int32, n)
	actors, modes := make([]int64, n), make([]int32, n)
	from, to := make([]*time.Time, n), make([]*time.Time, n)
	for i := range e.Edges {
		edge := &e.Edges[i]
		blocker := edge.Blocker
		if blocker == nil {
			blocker = new(snapshot.Session)
		}
		kinds[i], procs[i], pids[i] = int16(edge.Kind), procKey(blocker), blocker.Pid
		actors[i], modes[i] = r.actor(blocker), int32(edge.Modes)
		begin := edge.From
		if begin == 0 {
			begin = e.Start
		}
		from[i], to[i] = when(begin), when(edge.To)
	}
	softPids := e.SoftPids
	if softPids == nil {
		softPids = []int32{}
	}
	r.add(leaf, nil, r.nodeID, r.run, e.WaitID, procKey(waiter), r.actor(waiter), writtenAt.Time(), e.Start.Time(),
		when(e.End), granted(e.Outcome), text(e.Outcome.String()), e.Samples, e.Tag.Type.String(), e.Mode.String(),
		int16(e.Mode), r.text(object.Text(e.Tag, names)), col.Database,
		r.text(names.Database), col.Relation, col.Page, col.Tuple, col.VirtualXID,
		col.TransactionID, col.ClassID, col.ObjID, col.ObjSubID, lockKey(e.Tag), e.QueueKey, e.InCycle,
		e.HardCount, e.SoftCount, softPids, kinds, procs, pids, actors, modes, from, to)
}

// actor adds a participant and returns its id.
func (r *rowSet) actor(s *snapshot.Session) int64 {
	var gid string
	xactStart := s.XactStart
	if s.Prepared != 0 {
		gid = r.names.get(gidKey(s.Prepared))
		xactStart = r.names.preparedAt(s.Prepared)
	}
	datname, usename := r.names.get(databaseKey(s.Database)), r.names.get(roleKey(s.Role))

	// All that the row says but when it was seen, and for how long.
	h := newHash("actor")
	h.numbers(int64(s.Pid), int64(s.LeaderPid), int64(s.State), int64(s.Database), int64(s.Role), int64(s.Prepared),
		flag(s.Wraparound), int64(s.BackendStart), int64(xactStart), int64(s.QueryStart), int64(s.StateChange), s.QueryID,
		int64(r.cfg.QueryText), int64(r.cfg.QueryLength))
	for _, pid := range s.Members {
		h.numbers(int64(pid))
	}
	h.texts(s.BackendType, s.ApplicationName, s.ClientAddr, s.Query, gid, datname, usename)
	for i := range s.Statements {
		t := &s.Statements[i]
		h.numbers(int64(t.FirstSeen), int64(t.QueryStart), int64(t.State))
		h.texts(t.Query)
	}
	id := h.sum()
	if _, ok := r.actors[id]; ok {
		return id
	}
	row := []any{nil, r.nodeID, id, procKey(s), seenAt(s), s.Pid, nonZero(s.Leader()), r.text(gid), when(s.BackendStart),
		r.text(s.Type()), nonZero(s.Database), r.text(datname), nonZero(s.Role), r.text(usename),
		r.text(querytext.Sanitize(s.ApplicationName, 256)), clientAddr(s.ClientAddr), text(s.Doing()),
		when(s.StateChange), when(xactStart), when(s.QueryStart), nonZero(s.QueryID),
		r.query(s, s.Query), members(s)}
	r.actors[id] = append(row, r.statements(s)...)
	return id
}

// statements returns the columns of what a blocker did before; all null when
// nothing is known.
func (r *rowSet) statements(s *snapshot.Session) []any {
	n := len(s.Statements)
	if n == 0 {
		return make([]any, 10)
	}
	first, last, start := make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n)
	samples, ids := make([]int64, n), make([]*int64, n)
	states, types, events, texts := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	for i := range s.Statements {
		t := &s.Statements[i]
		first[i], last[i], start[i] = when(t.FirstSeen), when(t.LastSeen), when(t.QueryStart)
		samples[i], ids[i] = t.Samples, nonZero(t.QueryID)
		states[i], types[i], events[i] = text(t.State.String()), r.text(t.WaitEventType), r.text(t.WaitEvent)
		texts[i] = r.query(s, t.Query)
	}
	return []any{first, last, samples, states, types, events, start, ids, texts, s.StatementsLeftOut}
}

func (r *rowSet) short(w *history.ShortWait) {
	if w.Other {
		r.add("short_wait", nil, r.nodeID, w.Second.Time(), nil, "other", nil, nil, nil, nil, nil, nil, nil, nil,
			w.Waits, ms(w.Total), ms(w.Longest), w.Failed)
		return
	}
	var mode, relation *string
	if w.Mode != 0 {
		mode = text(w.Mode.String())
	}
	if w.Relation != 0 {
		tag := lockmgr.Tag{Type: lockmgr.Relation, Field1: w.Database, Field2: w.Relation}
		relation = r.text(object.Text(tag, r.names.Tag(tag, 0)))
	}
	r.add("short_wait", nil, r.nodeID, w.Second.Time(), r.text(r.names.get(databaseKey(w.Database))),
		lockmgr.Type(w.LockType).String(), nonZero(w.Database), nonZero(w.Relation), relation, mode, nonZero(w.QueryID),
		nonZero(int64(w.TextHash)), nonZero(w.RootPid), when(w.RootBackendStart), w.Waits, ms(w.Total), ms(w.Longest), w.Failed)
}

func (r *rowSet) deadlock(d *history.Deadlock) {
	for i := range d.Members {
		m := &d.Members[i]
		var locktype, lock, mode, heldMode, held *string
		var col object.Columns
		if m.HasTag {
			named := m.Tag
			if m.Row.Type == lockmgr.Tuple {
				named = m.Row // a transaction has no names of its own
			}
			names := r.names.Tag(named, d.At)
			names.Row = m.Row
			locktype, lock = text(m.Tag.Type.String()), r.text(object.Text(m.Tag, names))
			col = object.ColumnsOf(m.Tag, r.cfg.Server.VersionNum).WithRow(m.Row)
		}
		if m.HasHeld {
			held = r.text(object.Text(m.HeldTag, r.names.Tag(m.HeldTag, d.At)))
		}
		if m.Mode != 0 {
			mode = text(m.Mode.String())
		}
		if m.HeldMode != 0 {
			heldMode = text(m.HeldMode.String())
		}
		r.add("deadlock", nil, r.nodeID, r.run, d.At.Time(), d.ID, int16(i+1), m.Session.Pid, m.IsVictim, nonZero(m.WaitsFor),
			nonZero(m.WaitID), r.actor(m.Session), locktype, lock, mode, heldMode, held, col.Database, col.Relation, col.TransactionID)
	}
}

// statement adds the text of the statement that s ran, once for each segment, role
// and database: what a role may read of it depends on whose it is.
func (r *rowSet) statement(s *snapshot.Session) {
	query := r.query(s, s.Query)
	if query == nil || !r.dims.lacksText(textKey{s.QueryID, s.Database, s.Role}) {
		return
	}
	r.add("dim", nil, r.nodeID, int32(0), int16(textDim), nil, nil, nil, nil,
		nonZero(s.Database), r.text(r.names.get(databaseKey(s.Database))), nonZero(s.Role), r.text(r.names.get(roleKey(s.Role))), s.QueryID,
		nil, nil, nil, nil, nil, query, seenAt(s))
}

// carryMs is the session time that does not fit into two bytes any more.
const carryMs = math.MaxInt16 + 1

func (r *rowSet) second(s *history.Second) {
	dims, ms := make([]int16, 0, len(s.Loads)), make([]int16, 0, len(s.Loads))
	var carry []int16 // nil as long as there is none: null
	for i := range s.Loads {
		l := &s.Loads[i]
		n := l.Time.Round(time.Millisecond) / time.Millisecond
		if n == 0 {
			continue // of a tick that came at once after another
		}
		if over := n / carryMs; over > 0 || carry != nil {
			carry = append(carry, make([]int16, len(ms)-len(carry))...)
			carry = append(carry, int16(min(over, math.MaxInt16))) // a million sessions
		}
		ms = append(ms, int16(n%carryMs))
		dims = append(dims, int16(r.dims.id(dimension{
			kind: loadDim, eventType: l.EventType, event: l.Event, mode: l.Mode.String(), backendType: l.BackendType,
			database: l.Database, datname: r.encode(r.names.get(databaseKey(l.Database))),
			role: l.Role, usename: r.encode(r.names.get(roleKey(l.Role))), queryID: l.QueryID,
		})))
	}
	average := func(t time.Duration) float32 {
		return float32(t.Seconds() / max(s.Sampled, time.Millisecond).Seconds())
	}
	r.add("second", nil, r.nodeID, r.run, s.At.Time(), int32(s.Sampled.Round(time.Millisecond)/time.Millisecond),
		average(s.Clients), average(s.Active), average(s.IdleInTransaction), average(s.Waiting), dims, ms, carry)
}

func (r *rowSet) fastPath(s *history.Second) {
	if len(s.FastPath) == 0 {
		return
	}
	n := len(s.FastPath)
	dims, sessions, used, full, spilled := make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	for i := range s.FastPath {
		f := &s.FastPath[i]
		dims[i] = r.dims.id(dimension{kind: databaseDim, database: f.Database, datname: r.encode(r.names.get(databaseKey(f.Database)))})
		sessions[i], used[i], full[i], spilled[i] = f.Sessions, f.SlotsMax, f.Full, f.Spilled
	}
	r.add("fastpath", nil, r.nodeID, r.run, s.At.Time(), int32(r.cfg.Server.VersionNum), s.Slots.MaxLocks, s.Slots.Each,
		dims, sessions, used, full, spilled)
}

func (r *rowSet) hungry(h *history.LockHungry) {
	n := len(h.Statements)
	dims, locks, used, spilled := make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	looks, full, sessions := make([]int32, n), make([]int32, n), make([]int32, n)
	for i := range h.Statements {
		s := &h.Statements[i]
		dims[i] = r.dims.id(dimension{kind: queryDim,
			database: s.Database, datname: r.encode(r.names.get(databaseKey(s.Database))),
			role: s.Role, usename: r.encode(r.names.get(roleKey(s.Role))), queryID: s.QueryID})
		locks[i], used[i], spilled[i], looks[i], full[i], sessions[i] = s.Locks, s.SlotsMax, s.Spilled, s.Looks, s.LooksFull, s.Sessions
	}
	r.add("hungry", nil, r.nodeID, r.run, h.At.Time(), h.Last.Time(), int32(r.cfg.Server.VersionNum), h.Slots.MaxLocks, h.Slots.Each,
		dims, locks, used, spilled, looks, full, sessions)
}

func (r *rowSet) anomaly(a *history.Anomaly, writtenAt snapshot.Micros) {
	r.add("anomaly", nil, r.nodeID, r.run, writtenAt.Time(), a.StartedAt.Time(), a.DetectedAt.Time(), when(a.EndedAt), text(string(a.End)),
		text(a.WaitEventType), a.Observed, a.Expected, a.Band, r.text(querytext.Sanitize(a.LeadingEvent, maxEventBytes)), nonZero(a.RootPid))
}

// lwlocks is the row of a second in which somebody waited for an LWLock.
func (r *rowSet) lwlocks(s *history.Second) {
	if len(s.LWLocks) == 0 {
		return
	}
	c := newContention(len(s.LWLocks))
	for i := range s.LWLocks {
		l := &s.LWLocks[i]
		c.add(r.dims.id(dimension{kind: lwlockDim, event: l.Tranche, mode: l.Mode.String(), instance: l.Instance}), &l.Contention)
	}
	r.add("lwlock", nil, r.nodeID, r.run, s.At.Time(), millis(s.Sampled), c.dims, c.waitMs, c.waits, c.waitersMax, c.exclusive, c.shared)
}

// pages is the row of a second in which somebody waited for a page.
func (r *rowSet) pages(s *history.Second) {
	if len(s.Pages) == 0 {
		return
	}
	c := newContention(len(s.Pages))
	blocks := make([]*int64, 0, len(s.Pages))
	for i := range s.Pages {
		p := &s.Pages[i]
		d, block := dimension{kind: pageDim, mode: "pin"}, (*int64)(nil)
		if p.Mode != snapshot.NoLWLock {
			d.mode = p.Mode.String()
		}
		if p.Found {
			rel := parseRelationFile(r.names.get(fileKey(p.File)))
			d.database, d.datname = p.File.Database, r.encode(r.names.get(databaseKey(p.File.Database)))
			d.relation, d.objectKind, d.object = rel.oid, rel.kind, r.encode(rel.text(p.File, p.Role))
			d.fork = forkName(p.Fork)
			if p.Block != history.ManyBlocks {
				n := int64(p.Block)
				block = &n
			}
		}
		blocks = append(blocks, block)
		c.add(r.dims.id(d), &p.Contention)
	}
	r.add("page", nil, r.nodeID, r.run, s.At.Time(), millis(s.Sampled), c.dims, blocks, c.waitMs, c.waits, c.waitersMax, c.exclusive, c.shared)
}

// contention holds parallel arrays, an element for each thing that was waited for.
type contention struct {
	dims, waitMs, waits []int32
	waitersMax          []int16
	exclusive, shared   []*float32
}

func newContention(room int) *contention {
	return &contention{
		dims: make([]int32, 0, room), waitMs: make([]int32, 0, room), waits: make([]int32, 0, room),
		waitersMax: make([]int16, 0, room), exclusive: make([]*float32, 0, room), shared: make([]*float32, 0, room),
	}
}

func (a *contention) add(dim int32, c *history.Contention) {
	a.dims, a.waitMs, a.waits = append(a.dims, dim), append(a.waitMs, millis(c.Time)), append(a.waits, int32(c.Waits))
	a.waitersMax = append(a.waitersMax, int16(min(c.WaitersMax, math.MaxInt16)))
	a.exclusive, a.shared = append(a.exclusive, known(c.ExclusiveShare())), append(a.shared, known(c.SharedHolders()))
}

// known is null for what is not.
func known(v float64, ok bool) *float32 {
	if !ok {
		return nil
	}
	f := float32(v)
	return &f
}

// lengths is the row of a minute, an element for each bar.
func (r *rowSet) lengths(l *history.WaitLengths) {
	n := len(l.Bars)
	dims, waits, buckets, total := make([]int32, n), make([]int32, n), make([]int16, n), make([]float32, n)
	for i := range l.Bars {
		b := &l.Bars[i]
		dims[i] = r.dims.id(dimension{kind: eventDim, eventType: b.EventType, event: b.Event})
		buckets[i], waits[i], total[i] = int16(b.Bucket), int32(min(b.Waits, math.MaxInt32)), float32(ms(b.Time))
	}
	r.add("wait_length", nil, r.nodeID, r.run, l.Minute.Time(), dims, buckets, waits, total)
}

func millis(d time.Duration) int32 { return int32(d.Round(time.Millisecond) / time.Millisecond) }

func (r *rowSet) gap(g *history.Gap) {
	r.add("gap", nil, r.nodeID, r.run, g.Began.Time(), g.Ended.Time(), string(g.Reason), g.Lost, r.text(g.Detail), text(string(g.Part)))
}

func (r *rowSet) health(h *history.Health) {
	us := func(d time.Duration) *float64 { // 0: nothing was measured
		if d == 0 {
			return nil
		}
		v := float64(d) / float64(time.Microsecond)
		return &v
	}
	r.add("health_minute", nil, r.nodeID, r.run, h.Minute.Time(), h.TicksDue, h.TicksDone, h.TicksLate, h.TicksMissed,
		ms(h.Period), us(h.ProbeP50), us(h.ProbeP99), us(h.ProbeMax), us(h.HoldP99), us(h.HoldMax),
		h.PartitionsTaken, h.PartitionsBusy, ms(h.CPU), h.RowsWritten, h.RowsMerged, h.RowsDropped, h.Errors)
}

// text makes a text fit the database; "" is null.
func (r *rowSet) text(s string) *string { return text(r.encode(s)) }

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func nonZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func when(m snapshot.Micros) *time.Time {
	if m == 0 {
		return nil
	}
	t := m.Time()
	return &t
}

func seenAt(s *snapshot.Session) time.Time {
	for _, m := range []snapshot.Micros{s.SeenAt, s.StateChange, s.BackendStart} {
		if m != 0 {
			return m.Time()
		}
	}
	return snapshot.Micros(1).Time()
}

func granted(o history.Outcome) *bool {
	if g, known := o.Granted(); known {
		return &g
	}
	return nil
}

// members is null for a process that was seen alone.
func members(s *snapshot.Session) []int32 {
	if len(s.Members) == 0 {
		return nil
	}
	return s.Members
}

// query is what is kept of a statement of s.
func (r *rowSet) query(s *snapshot.Session, raw string) *string {
	policy := querytext.Policy{Mode: r.cfg.QueryText, MaxBytes: r.cfg.QueryLength}
	return r.text(policy.Keep(raw, s.Wraparound))
}

func clientAddr(s string) *netip.Prefix {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return nil // a socket, or none
	}
	a = a.WithZone("").Unmap()
	p := netip.PrefixFrom(a, a.BitLen())
	return &p
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// procKey is the process, whatever it does.
func procKey(s *snapshot.Session) int64 {
	if s.Prepared != 0 {
		h := newHash("prepared")
		h.numbers(int64(s.Prepared))
		return h.sum()
	}
	h := newHash("process")
	h.numbers(int64(s.Pid), int64(s.BackendStart))
	return h.sum()
}

// lockKey is the lock, whoever waits for it.
func lockKey(t lockmgr.Tag) int64 {
	h := newHash("lock")
	h.numbers(int64(t.Field1), int64(t.Field2), int64(t.Field3), int64(t.Field4), int64(t.Type), int64(t.Method))
	return h.sum()
}

// hash is the first 8 bytes of SHA-256, over parts that cannot run into each
// other. It is stored: rows of different releases are joined by it.
type hash struct{ buf []byte }

func newHash(kind string) *hash {
	h := &hash{}
	h.texts(kind)
	return h
}

func (h *hash) numbers(ns ...int64) {
	for _, n := range ns {
		h.buf = binary.BigEndian.AppendUint64(h.buf, uint64(n))
	}
}

func (h *hash) texts(ts ...string) {
	for _, t := range ts {
		h.buf = binary.BigEndian.AppendUint64(h.buf, uint64(len(t)))
		h.buf = append(h.buf, t...)
	}
}

func (h *hash) sum() int64 {
	sum := sha256.Sum256(h.buf)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
