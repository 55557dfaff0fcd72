package livetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// attempt is one statement of a session of the soak that asked for a lock which
// another one had, as its client saw it.
type attempt struct {
	scene    int
	pid      int32
	sql      string
	advisory bool // it can have waited once, and for an advisory lock
	holder   int32
	sent     time.Time
	done     time.Time // zero while it goes on
	failure  failure
	lost     bool // the connection broke: the client was not told how it ended
}

// release is a time in which a session of a scene may have given its lock back.
type release struct {
	scene    int
	from, to time.Time // to is zero while it goes on
}

// everyScene is where the server gives back the locks of all.
const everyScene = 0

// keptWait is a wait as the history has it.
type keptWait struct {
	told
	backendStart time.Time // zero when its process could not be described
}

// toldGap is a row of gaps; of one that lasts, ended is the end of the judged time.
type toldGap struct {
	began, ended time.Time
	reason       string
	lost         int64
}

// shortSum is how many waits short_waits has for one second of a kind.
type shortSum struct {
	second   int64 // since 1970
	database uint32
	locktype string // "other" for what is not told apart
	mode     string
	root     int32
	waits    int
}

// tempo is what the settings said from some time on.
type tempo struct {
	from        time.Time
	period      time.Duration
	minDuration time.Duration
	maxRows     int
}

// loss is what the soak itself threw away: waits that ended then are not looked for.
type loss struct{ from, to time.Time }

// toldDeadlock is a victim in the history.
type toldDeadlock struct {
	pid int32
	at  time.Time
}

// soakEvidence is all that is known of the waits that had ended before a flush()
// which returned true was asked for.
type soakEvidence struct {
	from      time.Time // statements that had ended before were judged before
	oldest    time.Time // begin of what the ring still holds
	seen      []seenWait
	attempts  []attempt
	releases  []release
	kept      []keptWait
	past      []keptWait // also what was judged before
	gaps      []toldGap
	short     []shortSum
	deadlocks []toldDeadlock
	tempi     []tempo // in order of time
	byHand    []loss
	missed    map[int64]time.Duration // by minute since 1970: how long health says that nobody looked
}

// soakVerdict is what came of the list.
type soakVerdict struct {
	differences []string
	found       int            // are in waits
	counted     int            // are counted in short_waits
	brief       int            // may have fallen between two samples, and are nowhere
	lost        map[string]int // are nowhere, by reason
	unknown     map[string]int // of those found: how they ended is lost, by reason
	outcomes    map[string]int // of those found whose client knows
	either      int            // of these, may have been granted just when they failed
	victims     int            // of deadlocks, that are in the history
	matched     map[*attempt]bool
}

// gapSlack is how far the begin of a gap may be off: it lies between two looks of
// the worker, or between two clocks.
const gapSlack = 50 * time.Millisecond

// pendingWait is a wait of the list that waits does not have.
type pendingWait struct {
	wait    *seenWait
	attempt *attempt
	lo, hi  int64 // seconds in which it may have been counted
	excused bool  // it need not have been counted
	done    bool
}

// judgeSoak looks for every wait of the list in the history, and for the reason
// where it is not there.
func judgeSoak(e *soakEvidence) soakVerdict {
	v := soakVerdict{lost: map[string]int{}, unknown: map[string]int{}, outcomes: map[string]int{}, matched: map[*attempt]bool{}}
	differ := func(format string, args ...any) { v.differences = append(v.differences, fmt.Sprintf(format, args...)) }
	e.judgeTwice(differ)

	kept := make(map[waitName]*keptWait, len(e.kept))
	last := make(map[*attempt]time.Time) // the latest wait in it
	note := func(pid int32, start time.Time) {
		if a := e.attemptOf(pid, start); a != nil && start.After(last[a]) {
			last[a] = start
		}
	}
	for i := range e.kept {
		k := &e.kept[i]
		kept[waitName{k.pid, k.start.UnixMicro()}] = k
		note(k.pid, k.start)
		if a := e.attemptOf(k.pid, k.start); a != nil {
			v.matched[a] = true
		}
	}
	for i := range e.seen {
		note(e.seen[i].pid, e.seen[i].start)
	}

	var pending []*pendingWait
	for i := range e.seen {
		w := &e.seen[i]
		a := e.attemptOf(w.pid, w.start)
		k := kept[waitName{w.pid, w.start.UnixMicro()}]
		if k == nil {
			pending = append(pending, e.pend(w, a))
			continue
		}
		v.found++
		if k.locktype != w.locktype || k.mode != w.mode {
			differ("%s: history has %s", w.say(a), k.describe())
		}
		if k.outcome == "unknown" {
			reason := e.reason(w, e.endOf(w, a), false)
			if reason == "" {
				differ("%s: nothing says why its end is not known: %s", w.say(a), k.describe())
			}
			v.unknown[reason]++
		}
		e.judgeEnd(w, a, k, differ)
		if a == nil || k.outcome == "unknown" {
			continue
		}
		may := e.allowed(a, w, last[a].Equal(w.start))
		if may != nil && !slices.Contains(may, k.outcome) {
			differ("%s: it ended as one of %v, history has %s", w.say(a), may, k.describe())
		}
		if len(may) > 1 {
			v.either++
		}
		v.outcomes[k.outcome]++
	}

	e.assign(pending)
	for _, p := range pending {
		w, a := p.wait, p.attempt
		hi := e.endOf(w, a)
		sure := w.seen.Sub(w.start)
		t := e.tempoOf(w.start, hi)
		isLong := e.watched(w) > t.minDuration+e.late(hi)
		switch reason := e.reason(w, hi, true); {
		case p.done && (!isLong || t.maxRows < manyRows):
			v.counted++
		case reason != "":
			v.lost[reason]++
		case e.isBrief(w, hi):
			v.brief++
		case isLong:
			differ("%s: lasted %s at least, is not in waits, and no gap says why%s", w.say(a), sure, e.around(w))
		default:
			differ("%s: lasted %s at least, is neither in waits nor counted, and no gap says why%s", w.say(a), sure, e.around(w))
		}
	}
	e.judgeDeadlocks(&v, differ)
	return v
}

// manyRows is a max_rows_per_second that the load of the soak never reaches.
const manyRows = 1000

// judgeTwice finds waits that are there twice, whatever start they have: a process
// waits for one lock at a time.
func (e *soakEvidence) judgeTwice(differ func(string, ...any)) {
	sorted := slices.Clone(e.kept)
	slices.SortFunc(sorted, func(a, b keptWait) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), a.backendStart.Compare(b.backendStart), a.start.Compare(b.start))
	})
	for i := 1; i < len(sorted); i++ {
		a, b := &sorted[i-1], &sorted[i]
		switch {
		case a.id == b.id:
			differ("wait %d is there twice: %s, %s", a.id, a.describe(), b.describe())
		case a.outcome == "unknown" && len(e.byHand) > 0: // its end was there, and was thrown away
		case a.pid != b.pid || !a.backendStart.Equal(b.backendStart) || a.end == nil || a.backendStart.IsZero():
		case b.start.Before(a.end.Add(-e.late(*a.end))):
			differ("a process waits twice at the same time: %s, %s", a.describe(), b.describe())
		}
	}
}

// around says what the history has of that process and that time.
func (e *soakEvidence) around(w *seenWait) string {
	var about []string
	for i := range e.kept {
		if k := &e.kept[i]; k.pid == w.pid {
			about = append(about, "history has "+k.describe())
		}
	}
	for i := range e.gaps {
		if g := &e.gaps[i]; g.ended.After(w.start.Add(-time.Second)) && g.began.Before(w.gone.Add(time.Second)) {
			about = append(about, fmt.Sprintf("gap %s from %s to %s, %d lost", g.reason, g.began.Format(clock), g.ended.Format(clock), g.lost))
		}
	}
	for i := range e.short {
		if n := &e.short[i]; n.second >= w.seen.Unix()-1 && n.second <= w.gone.Unix()+1 && (n.database == 0 || n.locktype == w.locktype) {
			about = append(about, fmt.Sprintf("%d counted in second %s: %s %s in %d behind %d", n.waits, time.Unix(n.second, 0).UTC().Format(time.TimeOnly), n.locktype, n.mode, n.database, n.root))
		}
	}
	return "\n    " + strings.Join(about, "\n    ")
}

// judgeEnd compares when a wait ended.
func (e *soakEvidence) judgeEnd(w *seenWait, a *attempt, k *keptWait, differ func(string, ...any)) {
	lo, hi := w.seen, e.endOf(w, a)
	slack := e.late(hi)
	// What nobody watched to its end ends when it was last seen.
	for i := range e.gaps {
		if g := &e.gaps[i]; !g.began.After(hi.Add(slack)) && !g.ended.Before(lo.Add(-slack)) && g.began.Before(lo) {
			lo = g.began
		}
	}
	for _, l := range e.byHand {
		if !l.from.After(hi) && !l.to.Before(lo) && l.from.Before(lo) {
			lo = l.from
		}
	}
	if lo.Before(w.start) {
		lo = w.start
	}
	if k.end == nil || k.end.Before(lo.Add(-slack-gapSlack)) && k.outcome != "unknown" || k.end.After(hi.Add(slack)) {
		differ("%s: it ended from %s to %s, history has %s", w.say(a), lo.Format(clock), hi.Format(clock), k.describe())
	}
}

// allowed is how a wait may have ended; nil for anything.
func (e *soakEvidence) allowed(a *attempt, w *seenWait, isLast bool) []string {
	if a.lost || isLast && a.done.IsZero() { // its client has not heard of the end yet
		return nil
	}
	outcome := a.failure.outcome()
	if outcome == "" || !isLast {
		return []string{"granted"}
	}
	may := []string{outcome}
	if outcome == "terminated" {
		may = append(may, "server_stop") // the client is told the same
	}
	if w.locktype == "tuple" {
		// The one ahead may have failed; then this one waits for the transaction,
		// which it has done for too short a time to be seen.
		return append(may, "granted")
	}
	for i := range e.releases {
		if r := &e.releases[i]; (r.scene == a.scene || r.scene == everyScene) && !r.from.After(a.done) && (r.to.IsZero() || !r.to.Before(w.seen)) {
			return append(may, "granted")
		}
	}
	return may
}

// attemptOf returns the statement in which a process of ours began to wait.
func (e *soakEvidence) attemptOf(pid int32, start time.Time) *attempt {
	for i := range e.attempts {
		a := &e.attempts[i]
		if a.pid == pid && !start.Before(a.sent.Truncate(time.Microsecond)) && (a.done.IsZero() || !start.After(a.done)) {
			return a
		}
	}
	return nil
}

// endOf is the latest moment at which a wait may have ended.
func (e *soakEvidence) endOf(w *seenWait, a *attempt) time.Time {
	if a != nil && !a.lost && !a.done.IsZero() && a.done.Before(w.gone) && a.done.After(w.seen) {
		return a.done
	}
	return w.gone
}

// late bounds how far the history may be wrong about a moment: by what health
// admits to have missed then, up to the second from which on it is a gap.
func (e *soakEvidence) late(at time.Time) time.Duration {
	return late + min(e.missedAt(at), time.Second)
}

func (e *soakEvidence) missedAt(at time.Time) time.Duration {
	minute := at.Unix() / 60
	return e.missed[minute-1]*time.Duration(btoi(at.Unix()%60 < 2)) + e.missed[minute]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tempoOf returns the settings of that time: where they were changed, those that
// ask least of the history.
func (e *soakEvidence) tempoOf(from, to time.Time) tempo {
	// A reload takes a moment to arrive.
	from, to = from.Add(-2*time.Second), to.Add(2*time.Second)
	var t tempo
	for i := range e.tempi {
		n := &e.tempi[i]
		if n.from.After(to) || i+1 < len(e.tempi) && e.tempi[i+1].from.Before(from) {
			continue
		}
		t.period, t.minDuration = max(t.period, n.period), max(t.minDuration, n.minDuration)
		if t.maxRows == 0 || n.maxRows < t.maxRows {
			t.maxRows = n.maxRows
		}
	}
	return t
}

// reason says why the history has nothing of a wait that ended before hi, or only
// its beginning; "" when there is none.
func (e *soakEvidence) reason(w *seenWait, hi time.Time, all bool) string {
	lo := w.seen
	if hi.Before(e.oldest) {
		return "older than the ring"
	}
	for _, l := range e.byHand {
		if !lo.After(l.to) && !hi.Before(l.from) {
			return "removed by hand"
		}
	}
	t := e.tempoOf(w.start, hi)
	slack := e.late(hi) + gapSlack
	for i := range e.gaps {
		g := &e.gaps[i]
		if g.began.After(hi.Add(slack)) || g.ended.Before(lo.Add(-slack)) {
			continue // it did not end there
		}
		switch g.reason {
		case "writer blocked", "ring held":
			if g.lost > 0 {
				return g.reason
			}
		default:
			// What had been going on for long enough when it began is in the tables.
			if !all || t.maxRows < manyRows || w.start.Add(t.minDuration+slack).After(e.blindSince(g)) {
				return g.reason
			}
		}
	}
	if missed := e.missedAt(hi); w.seen.Sub(w.start) <= min(missed, time.Second)+2*t.period {
		if missed > 0 {
			return "missed ticks"
		}
	}
	return ""
}

// isBrief reports whether it may have fallen between two samples.
func (e *soakEvidence) isBrief(w *seenWait, hi time.Time) bool {
	return e.watched(w) <= 2*e.tempoOf(w.start, hi).period+e.late(hi)
}

// watched is for how long w was there, for sure, since it could be sampled.
func (e *soakEvidence) watched(w *seenWait) time.Duration {
	from := w.start
	for range e.gaps { // they are in no order
		for i := range e.gaps {
			if g := &e.gaps[i]; g.isBlind() && !g.began.After(from.Add(gapSlack)) && g.ended.After(from) {
				from = g.ended
			}
		}
	}
	return max(w.seen.Sub(from), 0)
}

// isBlind reports whether nobody was looking then, rather than not able to write.
func (g *toldGap) isBlind() bool { return g.reason != "writer blocked" && g.reason != "ring held" }

// blindSince returns the begin of the time, of one gap or of several without a
// break, in which nobody had been looking when g began.
func (e *soakEvidence) blindSince(g *toldGap) time.Time {
	since := g.began
	for range e.gaps {
		for i := range e.gaps {
			if o := &e.gaps[i]; o.isBlind() && o.began.Before(since) && !o.ended.Before(since.Add(-gapSlack)) {
				since = o.began
			}
		}
	}
	return since
}

// pend notes a wait that is not in waits.
func (e *soakEvidence) pend(w *seenWait, a *attempt) *pendingWait {
	lo, hi := w.seen, e.endOf(w, a)
	slack := e.late(hi)
	p := &pendingWait{wait: w, attempt: a, lo: lo.Add(-slack).Unix(), hi: hi.Add(slack).Unix(),
		excused: e.isBrief(w, hi) || e.reason(w, hi, true) != ""}
	// Where sampling ended, it was counted as of then.
	for i := range e.gaps {
		if g := &e.gaps[i]; !g.began.After(hi.Add(slack)) && !g.ended.Before(lo.Add(-slack)) {
			p.lo = min(p.lo, g.began.Add(-slack).Unix())
		}
	}
	return p
}

// assign gives each wait that is not in waits one that short_waits counts, as far
// as there are any: of its own kind first, then of those not told apart.
func (e *soakEvidence) assign(pending []*pendingWait) {
	own := make(map[string]map[int64]int)
	rest := make(map[string]map[int64]int)
	add := func(to map[string]map[int64]int, kind string, s *shortSum) {
		if to[kind] == nil {
			to[kind] = make(map[int64]int)
		}
		to[kind][s.second] += s.waits
	}
	for i := range e.short {
		switch s := &e.short[i]; {
		case s.database != 0:
			add(own, kindOf(s.database, s.locktype, s.mode), s)
		case s.root != 0 && s.locktype == "transactionid":
			add(own, "root "+strconv.Itoa(int(s.root)), s)
		default:
			add(rest, s.locktype, s)
		}
	}
	byKind := make(map[string][]*pendingWait)
	for _, p := range pending {
		kind := p.kind()
		byKind[kind] = append(byKind[kind], p)
	}
	for kind, waits := range byKind {
		assignTo(own[kind], waits)
	}
	// Behind whom a wait for a transaction was is known of those of a scene only.
	for kind, seconds := range own {
		if strings.HasPrefix(kind, "root ") {
			for second, n := range seconds {
				add(rest, "transactionid", &shortSum{second: second, waits: n})
			}
		}
	}
	byType := make(map[string][]*pendingWait)
	for _, p := range pending {
		if !p.done && (p.wait.locktype == "transactionid" || e.watched(p.wait) <= 2*late+e.missedAt(p.wait.seen)) {
			byType[p.wait.locktype] = append(byType[p.wait.locktype], p)
		}
	}
	for locktype, waits := range byType {
		assignTo(rest[locktype], waits)
		assignTo(rest["other"], waits)
	}
}

// kind is what short_waits tells a wait by.
func (p *pendingWait) kind() string {
	w := p.wait
	if w.locktype == "transactionid" || w.locktype == "virtualxid" {
		if p.attempt != nil {
			return "root " + strconv.Itoa(int(p.attempt.holder))
		}
		return w.locktype
	}
	var database uint64
	if parts := strings.Split(w.lock, "/"); len(parts) > 1 {
		database, _ = strconv.ParseUint(parts[1], 10, 32)
	}
	return kindOf(uint32(database), w.locktype, w.mode)
}

func kindOf(database uint32, locktype, mode string) string {
	return fmt.Sprintf("%d/%s/%s", database, locktype, mode)
}

// assignTo takes one of the counted for each wait, those first that must have been,
// and of these those that could have been in the fewest of the seconds left.
func assignTo(counted map[int64]int, waits []*pendingWait) {
	for _, excused := range []bool{false, true} {
		assignSome(counted, slices.DeleteFunc(slices.Clone(waits), func(p *pendingWait) bool { return p.done || p.excused != excused }))
	}
}

func assignSome(counted map[int64]int, waits []*pendingWait) {
	slices.SortFunc(waits, func(a, b *pendingWait) int { return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo)) })
	for _, second := range slices.Sorted(maps.Keys(counted)) {
		for _, p := range waits {
			if counted[second] == 0 {
				break
			}
			if !p.done && p.lo <= second && second <= p.hi {
				p.done = true
				counted[second]--
			}
		}
	}
}

// judgeDeadlocks looks for every victim that a client was.
func (e *soakEvidence) judgeDeadlocks(v *soakVerdict, differ func(string, ...any)) {
	for i := range e.attempts {
		a := &e.attempts[i]
		if a.failure.outcome() != "deadlock" || a.done.Before(e.from) {
			continue
		}
		found := slices.ContainsFunc(e.deadlocks, func(d toldDeadlock) bool {
			return d.pid == a.pid && !d.at.Before(a.sent.Add(-late)) && !d.at.After(a.done.Add(e.late(a.done)))
		})
		if found {
			v.victims++
			continue
		}
		w := seenWait{pid: a.pid, start: a.sent, seen: a.done, gone: a.done}
		if e.reason(&w, a.done, false) == "" {
			differ("%d was the victim of a deadlock in %q at %s, which the history does not have", a.pid, a.sql, a.done.Format(clock))
		}
	}
}

func (w *seenWait) say(a *attempt) string {
	what := fmt.Sprintf("%d waited for %s on %s from %s to %s..%s", w.pid, w.mode, w.lock,
		w.start.Format(clock), w.seen.Format(clock), w.gone.Format(clock))
	if a == nil {
		return what
	}
	if a.lost {
		return fmt.Sprintf("%s in %q of scene %d, whose connection broke at %s", what, a.sql, a.scene, a.done.Format(clock))
	}
	return fmt.Sprintf("%s in %q of scene %d, ended at %s by %s", what, a.sql, a.scene, a.done.Format(clock), a.failure)
}
