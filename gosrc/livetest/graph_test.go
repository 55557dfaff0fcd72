package livetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/lockmgr/lockmgrtest"
)

// serverView is what the server says of who waits for whom.
type serverView struct {
	at       time.Time
	locks    string             // all of it, to be compared as a whole
	youngest time.Time          // the latest wait start
	blockers map[int32]blockers // pg_blocking_pids() of each session that waits, by leader
	hard     map[waitName]nameSet
	waiting  map[waitName]int32 // leader of each process that waits
	leaders  map[int32]bool
}

// blockers is one answer of pg_blocking_pids().
type blockers struct {
	pids     []int32 // sorted, without 0
	prepared int     // how often 0 was in it
}

// nameSet is a set of blockers: pids of leaders, gids of prepared transactions.
type nameSet map[string]bool

func (s nameSet) String() string {
	return "{" + strings.Join(slices.Sorted(maps.Keys(s)), " ") + "}"
}

func union(sets ...nameSet) nameSet {
	all := nameSet{}
	for _, s := range sets {
		maps.Copy(all, s)
	}
	return all
}

// blockers is what pg_blocking_pids() would say of these.
func (s nameSet) blockers() blockers {
	var b blockers
	for name := range s {
		var pid int32
		if _, err := fmt.Sscanf(name, "%d", &pid); err != nil {
			b.prepared++
			continue
		}
		b.pids = append(b.pids, pid)
	}
	slices.Sort(b.pids)
	return b
}

func (b blockers) equal(other blockers) bool {
	return slices.Equal(b.pids, other.pids) && b.prepared == other.prepared
}

// nameOf is the name of a blocker in a nameSet.
func nameOf(pid int32, gid *string) string {
	if gid != nil {
		return *gid
	}
	return fmt.Sprint(pid)
}

// askServer asks for all locks that a session of ours waits for, and for
// pg_blocking_pids() of these sessions.
func (l *lab) askServer(ours []int32) serverView {
	v := serverView{blockers: make(map[int32]blockers), hard: make(map[waitName]nameSet),
		waiting: make(map[waitName]int32), leaders: make(map[int32]bool)}
	type lockRow struct {
		name, mode string
		pid        int32
		leader     string
		granted    bool
		start      *time.Time
	}
	rows, err := l.history.Query(l.ctx, `
		WITH all_locks AS MATERIALIZED (
			SELECT `+lockName+` AS name, l.mode, l.pid, l.granted, l.waitstart, l.locktype, l.transactionid, l.virtualtransaction
			FROM pg_locks AS l
		), prepared AS MATERIALIZED (
			-- what it held before, the transaction now holds under the old number, its own included
			SELECT l.virtualtransaction, p.gid
			FROM all_locks AS l
			JOIN pg_prepared_xacts AS p ON p.transaction = l.transactionid
			WHERE l.pid IS NULL AND l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'
		), lock AS MATERIALIZED (
			SELECT l.name, l.mode, coalesce(l.pid, 0) AS pid, l.granted, l.waitstart,
			       CASE WHEN l.pid IS NULL
			            THEN coalesce((SELECT p.gid FROM prepared AS p WHERE p.virtualtransaction = l.virtualtransaction), '?')
			            ELSE coalesce((SELECT a.leader_pid FROM pg_stat_get_activity(l.pid) AS a), l.pid)::text END AS leader
			FROM all_locks AS l)
		SELECT l.name, l.mode, l.pid, l.leader, l.granted, l.waitstart
		FROM lock AS l
		WHERE l.name IN (SELECT w.name FROM lock AS w WHERE NOT w.granted AND w.leader = ANY ($1::text[]))
		ORDER BY 1, 4, 3, 2, 5`, textOf(ours))
	if err != nil {
		l.t.Fatalf("pg_locks: %v", err)
	}
	var locks []lockRow
	var text strings.Builder
	for rows.Next() {
		var r lockRow
		if err := rows.Scan(&r.name, &r.mode, &r.pid, &r.leader, &r.granted, &r.start); err != nil {
			l.t.Fatalf("pg_locks: %v", err)
		}
		locks = append(locks, r)
		fmt.Fprintln(&text, r.name, r.mode, r.pid, r.leader, r.granted, r.start)
	}
	if err := rows.Err(); err != nil {
		l.t.Fatalf("pg_locks: %v", err)
	}
	for _, w := range locks {
		if w.granted {
			continue
		}
		if w.start == nil {
			v.youngest = time.Now() // not published yet: as young as can be
			continue
		}
		if w.start.After(v.youngest) {
			v.youngest = *w.start
		}
		var leader int32
		_, _ = fmt.Sscanf(w.leader, "%d", &leader)
		name := waitName{w.pid, w.start.UnixMicro()}
		v.waiting[name], v.leaders[leader] = leader, true
		hard := nameSet{}
		for _, h := range locks {
			if h.granted && h.name == w.name && h.leader != w.leader && conflict(w.mode, h.mode) {
				hard[h.leader] = true
			}
		}
		v.hard[name] = hard
	}
	for _, leader := range slices.Sorted(maps.Keys(v.leaders)) {
		var pids []int32
		if err := l.history.QueryRow(l.ctx, `SELECT pg_blocking_pids($1)`, leader).Scan(&pids); err != nil {
			l.t.Fatalf("pg_blocking_pids: %v", err)
		}
		var b blockers
		for _, pid := range pids {
			if pid == 0 {
				b.prepared++
			} else {
				b.pids = append(b.pids, pid)
			}
		}
		slices.Sort(b.pids)
		b.pids = slices.Compact(b.pids)
		v.blockers[leader] = b
		fmt.Fprintln(&text, leader, b)
	}
	v.locks = text.String()
	if err := l.history.QueryRow(l.ctx, `SELECT clock_timestamp()`).Scan(&v.at); err != nil {
		l.t.Fatal(err)
	}
	return v
}

func textOf(pids []int32) []string {
	texts := make([]string, len(pids))
	for i, pid := range pids {
		texts[i] = fmt.Sprint(pid)
	}
	return texts
}

var conflicts = lockmgrtest.Conflicts()

// conflict takes modes as pg_locks names them.
func conflict(a, b string) bool {
	number := func(name string) lockmgr.Mode {
		name = strings.ToUpper(strings.TrimSuffix(name, "Lock"))
		return lockmgr.Mode(1 + slices.IndexFunc(modes, func(m string) bool { return strings.ReplaceAll(m, " ", "") == name }))
	}
	return conflicts[number(a)]&number(b).Bit() != 0
}

// toldWait is an open wait as the tables have it, by blocking_all().
type toldWait struct {
	leader     int32
	hard, soft nameSet
}

func (l *lab) askTables(ours []int32) map[waitName]toldWait {
	rows, err := l.history.Query(l.ctx, `
		SELECT w.pid, coalesce(w.leader_pid, w.pid), w.wait_start, b.kind, b.blocker_pid, b.blocker_gid
		FROM lock_history.waits AS w
		LEFT JOIN LATERAL lock_history.blocking_all(w.wait_id) AS b ON b.last_seen IS NULL
		WHERE w.wait_end IS NULL AND coalesce(w.leader_pid, w.pid) = ANY ($1)`, ours)
	if err != nil {
		l.t.Fatalf("blocking_all: %v", err)
	}
	all := make(map[waitName]toldWait)
	for rows.Next() {
		var pid, leader int32
		var start time.Time
		var kind, gid *string
		var blocker *int32
		if err := rows.Scan(&pid, &leader, &start, &kind, &blocker, &gid); err != nil {
			l.t.Fatalf("blocking_all: %v", err)
		}
		name := waitName{pid, start.UnixMicro()}
		w, ok := all[name]
		if !ok {
			w = toldWait{leader: leader, hard: nameSet{}, soft: nameSet{}}
			all[name] = w
		}
		switch {
		case kind == nil:
		case *kind == "hard":
			w.hard[nameOf(*blocker, gid)] = true
		default:
			w.soft[nameOf(*blocker, gid)] = true
		}
	}
	if err := rows.Err(); err != nil {
		l.t.Fatalf("blocking_all: %v", err)
	}
	return all
}

// tree is what blocking_tree_at() or blocking_now says: whom each session that
// waits is blocked by.
type tree map[int32]nameSet

func (l *lab) askTree(sql string, ours []int32, args ...any) tree {
	rows, err := l.history.Query(l.ctx, sql, args...)
	if err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
	type treeRow struct {
		pid       *int32
		gid       *string
		blockedBy []int32
		waits     bool
	}
	var all []treeRow
	gids := make(map[int32]*string)
	for rows.Next() {
		var r treeRow
		if err := rows.Scan(&r.pid, &r.gid, &r.blockedBy, &r.waits); err != nil {
			l.t.Fatalf("%s: %v", sql, err)
		}
		if r.pid == nil {
			l.t.Fatalf("%s: collapsed", sql)
		}
		if r.gid != nil {
			gids[*r.pid] = r.gid
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
	found := make(tree)
	for _, r := range all {
		if !r.waits || !slices.Contains(ours, *r.pid) {
			continue
		}
		by := nameSet{}
		for _, pid := range r.blockedBy {
			by[nameOf(pid, gids[pid])] = true
		}
		found[*r.pid] = by
	}
	return found
}

const treeColumns = `SELECT pid, gid, blocked_by, locktype IS NOT NULL FROM `

// compare compares who blocks whom, at a moment at which nothing happens.
func (l *lab) compare(sessions []*session, f *figures) {
	l.t.Helper()
	deadline := time.Now().Add(settled)
	for {
		l.settle(sessions)
		var ours []int32
		for _, s := range sessions {
			ours = append(ours, s.pid)
		}
		before := l.askServer(ours)
		if before.at.Sub(before.youngest) < l.minDuration {
			continue // the tables do not have that one yet
		}
		if len(before.waiting) == 0 {
			return
		}
		now, fresh := l.askLive(ours, before.at)
		var at time.Time
		if err := l.history.QueryRow(l.ctx, `SELECT clock_timestamp()`).Scan(&at); err != nil {
			l.t.Fatal(err)
		}
		l.flush()
		tables := l.askTables(ours)
		then := l.askTree(treeColumns+`lock_history.blocking_tree_at($1::timestamptz, NULL, NULL)`, ours, at)
		after := l.askServer(ours)
		if before.locks != after.locks || !fresh {
			f.retries++
			if time.Now().After(deadline) {
				l.t.Fatal("no moment was still")
			}
			continue
		}
		for _, difference := range differences(&before, tables, now, then) {
			l.t.Error(difference)
		}
		if l.t.Failed() {
			l.t.Logf("at %s the server said:\n%s", at.Format(clock), before.locks)
			for _, s := range l.statements {
				l.t.Logf("%s %d: %s: %s", s.sent.Format(clock), s.pid, s.sql, s.failure)
			}
			return
		}
		f.count(&before)
		return
	}
}

// askLive reads the live area as soon as it tells of a time after since, and the
// names of prepared transactions, which are looked up when they are first seen,
// have come; false when nobody waits any more.
func (l *lab) askLive(ours []int32, since time.Time) (tree, bool) {
	deadline := time.Now().Add(settled)
	for {
		var takenAt *time.Time
		var nameless int
		if err := l.history.QueryRow(l.ctx, `SELECT max(taken_at), count(*) FILTER (WHERE pid < 0 AND gid IS NULL) FROM lock_history.blocking_now`).Scan(&takenAt, &nameless); err != nil {
			l.t.Fatalf("blocking_now: %v", err)
		}
		if takenAt == nil {
			return nil, false
		}
		if takenAt.After(since) && nameless == 0 {
			return l.askTree(treeColumns+`lock_history.blocking_now`, ours), true
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("blocking_now is as of %s, though it is %s; %d without a name", takenAt, time.Now(), nameless)
		}
	}
}

// differences compares what the history says with what the server says.
func differences(server *serverView, tables map[waitName]toldWait, now, then tree) []string {
	var all []string
	differ := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }

	united := make(map[int32]nameSet) // blockers in the tables, by leader
	hardOf := make(map[int32]nameSet)
	alone := make(map[int32]int)
	cut := make(map[int32]bool) // more hard blockers than are listed
	softOnly := make(map[int32]int)
	for name, leader := range server.waiting {
		hard := server.hard[name]
		alone[leader]++
		hardOf[leader] = union(hardOf[leader], hard)
		if len(hard) == 0 {
			softOnly[leader]++
		}
		w, ok := tables[name]
		if !ok {
			differ("%d waits behind %v and is not in the tables", name.pid, server.blockers[leader])
			continue
		}
		united[leader] = union(united[leader], w.hard, w.soft)
		switch {
		case len(hard) > history.MaxListed:
			cut[leader] = true
			if len(w.hard) != history.MaxListed {
				differ("%d: of %d hard blockers the tables list %d", name.pid, len(hard), len(w.hard))
			}
		case !maps.Equal(hard, w.hard):
			differ("%d: pg_locks says it is blocked by %s, the tables by %s", name.pid, hard, w.hard)
		}
	}
	for name, w := range tables {
		if _, ok := server.waiting[name]; !ok {
			differ("%d does not wait, but the tables have it behind %s %s", name.pid, w.hard, w.soft)
		}
	}
	for leader, expected := range server.blockers {
		if found := united[leader].blockers(); !cut[leader] && !equalAnswers(expected, found, alone[leader]) {
			differ("%d: pg_blocking_pids() says %v, the tables %v", leader, expected, found)
		}
		for where, tree := range map[string]tree{"blocking_now": now, "blocking_tree_at()": then} {
			found, ok := tree[leader]
			switch {
			case !ok:
				differ("%d waits behind %v and is not in %s", leader, expected, where)
			case cut[leader]:
			case !isInTree(found, hardOf[leader], softOnly[leader], united[leader]):
				differ("%d: pg_locks has it blocked by %s, and %d of its processes by the queue alone; %s says %s",
					leader, hardOf[leader], softOnly[leader], where, found)
			}
		}
	}
	for where, tree := range map[string]tree{"blocking_now": now, "blocking_tree_at()": then} {
		for pid, by := range tree {
			if !server.leaders[pid] {
				differ("%d does not wait, but %s has it behind %s", pid, where, by)
			}
		}
	}
	return all
}

// equalAnswers: of a parallel query with several waits, pg_blocking_pids() may
// name one prepared transaction more than once.
func equalAnswers(server, found blockers, waits int) bool {
	if waits > 1 && server.prepared >= found.prepared && (server.prepared == 0) == (found.prepared == 0) {
		return slices.Equal(server.pids, found.pids)
	}
	return server.equal(found)
}

// isInTree: a tree shows the hard blockers, and of each process that has none the
// nearest in the queue.
func isInTree(found, hard nameSet, softOnly int, all nameSet) bool {
	extra := 0
	for name := range found {
		switch {
		case hard[name]:
		case !all[name]:
			return false
		default:
			extra++
		}
	}
	for name := range hard {
		if !found[name] {
			return false
		}
	}
	return extra <= softOnly && (extra > 0 || softOnly == 0 || len(hard) > 0)
}

func (f *figures) count(server *serverView) {
	f.moments++
	f.waiters += len(server.waiting)
	for name, leader := range server.waiting {
		if name.pid != leader {
			f.parallel++
		}
	}
	for _, b := range server.blockers {
		f.blockers += len(b.pids) + b.prepared
		f.prepared += b.prepared
	}
}
