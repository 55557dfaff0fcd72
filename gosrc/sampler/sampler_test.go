package sampler

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/live"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/lockmgr/lockmgrtest"
	"pg_lock_history/gosrc/object"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
)

// server plays the C side on virtual time: a list of moments at which its
// state changes, swept every period as the wait probe does.
type server struct {
	t       *testing.T
	now     time.Duration // since the start
	script  []moment
	waits   []snapshot.Wait // in slot order
	locks   []snapshot.Lock
	holders []snapshot.Holder
	queue   []snapshot.Queued
	busy    int // Locks answers ErrBusy this often

	areaBusy  int // so do LiveGraph and LiveWaits
	areaError error
	graphs    []shownGraph
	load      []byte // shown
	loadAt    []time.Duration
	ended     []shownWaits

	failures []snapshot.Failure  // left by sessions, not yet read
	status   snapshot.WaitStatus // of waits that are over; 0: granted
	pids     map[int32]int32     // slots by pid, for those asked for by pid alone

	set      time.Duration // how far the clock was set
	last     time.Duration // when the last sweep was, 0 = none yet
	walks    int
	insisted int
	wakes    int
	asked    []Ref
	sessions func([]Ref, func(int, *RawSession)) error                  // nil: everybody is there
	row      func(snapshot.Wait, *Row) error                            // nil: nobody holds a tuple
	rowsAt   []time.Duration                                            // when it was asked
	did      func(*Transaction, []RawStatement) ([]RawStatement, error) // nil: nothing was seen
	told     []Transaction                                              // of whom that was asked
	logged   []Message
	shown    []Status
	answered uint64
	settings string
	spare    bool // a client slot is
	runs     []snapshot.Run
	seconds  []snapshot.Second
	names    map[snapshot.NameKind]string // that Name knows; others are numbers
	slotUse  []snapshot.SlotUse

	partitions int64 // taken to count locks beyond the fast path, not yet told
	waitErr    error
	periods    []time.Duration // asked for, one after the other
	publish    func(*Status)   // nil: nobody looks
}

type moment struct {
	at      time.Duration
	do      func(*server)
	reasons Reasons
	ticket  uint64
}

// ourPid is a session of the store.
const ourPid = 4711

const start = snapshot.Micros(800_000_000_000_000)

func (s *server) wall() snapshot.Micros { return start.Add(s.now + s.set) }

func (s *server) Wait(period time.Duration, deadline Monotonic, track Track, known, found []snapshot.Wait, w *Wake) (int, error) {
	s.wakes++
	if n := len(s.periods); n == 0 || s.periods[n-1] != period {
		s.periods = append(s.periods, period)
	}
	*w = Wake{}
	if s.waitErr != nil {
		return 0, s.waitErr
	}
	step := period
	if step == 0 {
		step = time.Millisecond
	}
	for {
		s.now += step
		for len(s.script) > 0 && s.script[0].at <= s.now {
			m := s.script[0]
			s.script = s.script[1:]
			if m.do != nil {
				m.do(s)
			}
			w.Reasons |= m.reasons
			w.FlushRequest = max(w.FlushRequest, m.ticket)
		}
		w.Now, w.NowNs = s.wall(), Monotonic(s.now)
		w.PartitionsTaken += s.partitions
		for ; s.partitions > 0; s.partitions-- {
			w.Holds.Add(time.Microsecond)
		}
		n := 0
		if period > 0 {
			w.TicksDone++
			w.LastWasTick = true
			w.LastSweep = time.Microsecond
			if s.last != 0 {
				w.Previous = w.Now.Add(s.last - s.now)
			}
			s.last = s.now
			changed := false
			n, changed = s.compare(known, found, w)
			if changed {
				w.Reasons |= WokeChanged
			}
			if len(s.failures) > 0 {
				w.Reasons |= WokeFailed
			}
		}
		if Monotonic(s.now) >= deadline {
			w.Reasons |= WokeDeadline
		}
		if w.Reasons != 0 {
			return n, nil
		}
		w.Sweeps.Add(time.Microsecond)
	}
}

func (s *server) compare(known, found []snapshot.Wait, w *Wake) (n int, changed bool) {
	add := func(row snapshot.Wait, status snapshot.WaitStatus) {
		if status == snapshot.EndedGranted && s.status != snapshot.Waiting {
			status = s.status
		}
		row.Status = status
		found[n] = row
		n++
	}
	k := 0
	for _, now := range s.waits {
		for k < len(known) && known[k].Slot < now.Slot {
			add(known[k], snapshot.EndedGranted)
			k, changed = k+1, true
		}
		if k < len(known) && known[k].Slot == now.Slot {
			if known[k].Lock != now.Lock || known[k].WaitStart != now.WaitStart {
				if known[k].Lock != now.Lock || known[k].WaitStart != 0 {
					add(known[k], snapshot.EndedUnknown)
				}
				changed = true
			}
			k++
		} else {
			changed = true
		}
		add(now, snapshot.Waiting)
		w.Waiting++
	}
	for ; k < len(known); k++ {
		add(known[k], snapshot.EndedGranted)
		changed = true
	}
	return n, changed
}

func (s *server) Locks(_ []snapshot.Wait, insist bool, locks []snapshot.Lock, holders []snapshot.Holder, queue []snapshot.Queued, w *Walk) error {
	*w = Walk{}
	s.walks++
	if insist {
		s.insisted++
	} else if s.busy > 0 {
		s.busy--
		w.PartitionsBusy = 1
		return ErrBusy
	}
	w.TakenAt = s.wall()
	w.PartitionsTaken = 1
	w.Locks, w.Holders, w.Queued = copy(locks, s.locks), copy(holders, s.holders), copy(queue, s.queue)
	return nil
}

func (s *server) Sessions(refs []Ref, textEach int, each func(int, *RawSession)) error {
	s.asked = append(s.asked, refs...)
	if s.sessions != nil {
		return s.sessions(refs, each)
	}
	for i, r := range refs {
		if r.Slot == -1 {
			r.Slot = s.pids[r.Pid]
		}
		each(i, &RawSession{Status: snapshot.SessionFound, Slot: r.Slot, Pid: r.Pid, State: snapshot.StateActive,
			BackendStart: start.Add(-time.Hour), Text: []byte(fmt.Sprintf("statement of %d, at most %d bytes", r.Pid, textEach))})
	}
	return nil
}

func (s *server) Activity(finish bool, a *Activity) error {
	if !slices.Equal(a.Ours, []int32{ourPid}) {
		s.t.Errorf("our sessions are told as %v", a.Ours)
	}
	a.Runs, a.Seconds, a.Lost = append(a.Runs[:0], s.runs...), append(a.Seconds[:0], s.seconds...), 0
	s.runs, s.seconds = nil, nil
	return nil
}

func (s *server) FastPath(finish bool, f *FastPath) error {
	f.Rows, f.Slots = append(f.Rows[:0], s.slotUse...), history.Slots{Each: 16, MaxLocks: 64}
	s.slotUse = nil
	return nil
}

func (s *server) Name(kind snapshot.NameKind, number uint32) (string, error) {
	if name, ok := s.names[kind]; ok {
		return name, nil
	}
	return fmt.Sprintf("%d:%d", kind, number), nil
}

func (s *server) Row(wait snapshot.Wait, row *Row) error {
	s.rowsAt = append(s.rowsAt, s.now)
	if s.row == nil {
		*row = Row{Status: RowNone, PartitionsTaken: 1}
		return nil
	}
	return s.row(wait, row)
}

func (s *server) Statements(t *Transaction, dst []RawStatement) ([]RawStatement, error) {
	s.told = append(s.told, *t)
	if s.did == nil {
		return dst, nil
	}
	return s.did(t, dst)
}

func (s *server) Failures(dst []snapshot.Failure) ([]snapshot.Failure, error) {
	dst = append(dst, s.failures...)
	s.failures = nil
	return dst, nil
}

func (s *server) Settings() ([]byte, error) { return []byte(s.settings), nil }
func (s *server) Log(m Message) error       { s.logged = append(s.logged, m); return nil }
func (s *server) Publish(st *Status) error {
	if s.publish != nil {
		s.publish(st)
	}
	s.shown = append(s.shown, *st)
	return nil
}
func (s *server) Flushed(ticket uint64) error {
	s.answered = ticket
	return nil
}

// shownGraph and shownWaits are what arrived in the live area.
type shownGraph struct {
	at            time.Duration
	rows, leftOut int
	takenAt       snapshot.Micros
	statements    int // in the records
}

type shownWaits struct {
	at      time.Duration
	records int
	skipped int
}

func (s *server) area() error {
	if s.areaBusy > 0 {
		s.areaBusy--
		return ErrBusy
	}
	return s.areaError
}

func (s *server) LiveGraph(g *live.Graph) error {
	if err := s.area(); err != nil {
		return err
	}
	s.graphs = append(s.graphs, shownGraph{at: s.now, rows: g.Rows, leftOut: g.LeftOut, takenAt: g.TakenAt,
		statements: bytes.Count(g.Records, []byte("statement of"))})
	return nil
}

func (s *server) LiveLoad(records []byte, skipped int) error {
	if s.areaBusy > 0 {
		s.areaBusy--
		return ErrBusy
	}
	s.load = append(s.load, records...)
	s.loadAt = append(s.loadAt, s.now)
	return nil
}

func (s *server) LiveWaits(records []byte, skipped int) error {
	if err := s.area(); err != nil {
		return err
	}
	n := 0
	for len(records) > 0 {
		records = records[binary.NativeEndian.Uint32(records):]
		n++
	}
	s.ended = append(s.ended, shownWaits{at: s.now, records: n, skipped: skipped})
	return nil
}

var testRoom = live.Room{Graph: 1 << 20, Waits: 1 << 20, Load: 1 << 20}

// noNames is a server whose names nobody has looked up.
type noNames struct{}

func (noNames) Tag(lockmgr.Tag, snapshot.Micros) object.Names { return object.Names{} }
func (noNames) Database(uint32) string                        { return "" }
func (noNames) Role(uint32) string                            { return "" }
func (noNames) Gid(uint32) string                             { return "" }
func (noNames) PreparedAt(uint32) snapshot.Micros             { return 0 }

func (s *server) SpareSlot() (bool, error) { return s.spare, nil }

// recorder is a sink that writes at once.
type recorder struct {
	files []snapshot.File // whose relations were asked for

	batches    []*history.Batch
	status     SinkStatus
	stuck      bool // writes nothing
	stuckFrom  snapshot.Micros
	rewrite    bool
	configured []config.Config
	poked      int
	closed     int
	tags       []lockmgr.Tag
	asksSlot   bool
	detector   []byte // left by an earlier life

	owners       []owner              // of sessions whose names were asked for
	detectorLate bool                 // and not yet read
	told         []bool               // whether a slot is to spare
	pushed       func(*history.Batch) // nil: nobody looks
}

func (r *recorder) Push(b *history.Batch) {
	if r.pushed != nil {
		r.pushed(b)
	}
	r.batches = append(r.batches, b)
	r.stuck = r.stuck || r.stuckFrom != 0 && b.CompleteTo >= r.stuckFrom
	if !r.stuck {
		r.status.LastFlush, r.status.Ticket = b.CompleteTo, max(r.status.Ticket, b.Ticket)
	}
}
func (r *recorder) Queued() int64 {
	if r.stuck {
		return 1000
	}
	return 0
}
func (r *recorder) Status() SinkStatus    { return r.status }
func (r *recorder) IsOurs(pid int32) bool { return pid == ourPid }

func (r *recorder) RewriteOpen() bool {
	rewrite := r.rewrite
	r.rewrite = false
	return rewrite
}
func (r *recorder) DetectorState() ([]byte, bool) { return r.detector, !r.detectorLate }
func (r *recorder) Configure(c config.Config)     { r.configured = append(r.configured, c) }
func (r *recorder) Poke()                         { r.poked++ }
func (r *recorder) Close()                        { r.closed++ }
func (r *recorder) AskedForSlot() bool            { return r.asksSlot }
func (r *recorder) TellSlot(spare bool) {
	r.asksSlot = false
	r.told = append(r.told, spare)
}
func (r *recorder) WantTag(t lockmgr.Tag) { r.tags = append(r.tags, t) }
func (r *recorder) WantSession(p *snapshot.Session) {
	r.owners = append(r.owners, owner{p.Database, p.Role})
}
func (r *recorder) Ours(pids []int32) []int32 { return append(pids, ourPid) }
func (r *recorder) WantFile(f snapshot.File)  { r.files = append(r.files, f) }
func (r *recorder) closedEpisodes() (all []history.Episode) {
	for _, b := range r.batches {
		all = append(all, b.Closed...)
	}
	return all
}
func (r *recorder) gaps() (all []history.Gap) {
	for _, b := range r.batches {
		all = append(all, b.Gaps...)
	}
	return all
}

func testConfig() config.Config {
	return config.Config{Enabled: true, TrackLocks: true, TrackLoad: true, NodeName: "n", SamplePeriod: 10 * time.Millisecond,
		FlushPeriod: time.Second, MinDuration: 100 * time.Millisecond, MaxRowsPerSecond: 1000, QueryLength: 64, Retention: 7 * 24 * time.Hour}
}

// play runs a sampler on srv until the script's last moment, which stops it.
func play(t *testing.T, srv *server, sink *recorder, cfg config.Config, length time.Duration) *Sampler {
	t.Helper()
	return playNamed(t, srv, sink, cfg, length, noNames{})
}

// playNamed is play where somebody looks names up.
func playNamed(t *testing.T, srv *server, sink *recorder, cfg config.Config, length time.Duration, names live.Names) *Sampler {
	t.Helper()
	if sink.status.State == "" {
		sink.status.State = stateRecording
	}
	srv.t = t
	srv.script = append(srv.script, moment{at: length, reasons: WokeStop})
	s := New(Options{Probes: srv, Sink: sink, Log: report.New(func() {}), Conflicts: lockmgrtest.Conflicts(), Config: cfg, MaxProcesses: 16, LiveRoom: testRoom, Names: names, WatchOnStop: 50 * time.Millisecond})
	if err := s.Run(); err != nil {
		t.Fatalf("run: %v", err)
	}
	return s
}

// Pid 101 in slot 1 waits for AccessExclusiveLock on relation 16384, which pid
// 100 in slot 0 holds in AccessShareLock.
func alterWaits(s *server) {
	since := s.wall()
	s.waits = []snapshot.Wait{{Lock: 1, WaitStart: since, Slot: 1, Pid: 101, WaitEvent: 0x03000000}}
	s.locks = []snapshot.Lock{{Lock: 1, Field1: 5, Field2: 16384, Type: 0, Method: 1, NHolders: 1, NQueued: 1}}
	s.holders = []snapshot.Holder{{Slot: 0, Pid: 100, LeaderSlot: 0, LeaderPid: 100, HoldMask: 1 << 1}}
	s.queue = []snapshot.Queued{{WaitStart: since, Slot: 1, Pid: 101, LeaderSlot: 1, LeaderPid: 101, Mode: 8}}
}

// waitsForAnother has the process of alterWaits wait for another lock.
func waitsForAnother(s *server) {
	alterWaits(s)
	s.waits[0].Lock, s.locks[0].Lock, s.locks[0].Field2 = 2, 2, 16385
}

func nobodyWaits(s *server) { s.waits, s.locks, s.holders, s.queue = nil, nil, nil, nil }

func TestWaitBecomesEpisode(t *testing.T) {
	srv := &server{script: []moment{{at: 1500 * time.Millisecond, do: alterWaits}, {at: 4 * time.Second, do: nobodyWaits}}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 6*time.Second)

	closed := sink.closedEpisodes()
	if len(closed) != 1 {
		t.Fatalf("%d episodes ended, want 1", len(closed))
	}
	e := closed[0]
	if e.Start != start.Add(1500*time.Millisecond) {
		t.Errorf("start %v, want the server's own", e.Start.Sub(start))
	}
	if d := e.End.Sub(e.Start); d < 2490*time.Millisecond || d > 2500*time.Millisecond {
		t.Errorf("lasted %v, want 2.5 s less at most one period", d)
	}
	if e.Outcome != history.Granted || e.Mode != 8 || e.Tag.RelationOID() != 16384 {
		t.Errorf("outcome %v mode %v tag %+v", e.Outcome, e.Mode, e.Tag)
	}
	if e.Waiter == nil || e.Waiter.Query != "statement of 101, at most 64 bytes" {
		t.Errorf("waiter %+v", e.Waiter)
	}
	if len(e.Edges) != 2 || e.Edges[0].Blocker.Pid != 100 || e.Edges[1].Blocker.Pid != 100 {
		t.Errorf("edges %+v, want pid 100 as hard and root blocker", e.Edges)
	}
	open := 0
	for _, b := range sink.batches {
		open += len(b.Open)
	}
	if open == 0 {
		t.Error("the wait lasted over two flushes and was never handed out as open")
	}
	if len(sink.tags) == 0 || sink.tags[0].RelationOID() != 16384 {
		t.Errorf("names asked for: %+v, want relation 16384 at once", sink.tags)
	}
}

func TestQuietServerIsLeftAlone(t *testing.T) {
	srv := &server{}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 60*time.Second)
	if srv.walks != 0 || len(srv.asked) != 0 {
		t.Errorf("%d walks, %d sessions read while nobody waited", srv.walks, len(srv.asked))
	}
	if srv.wakes > 62 {
		t.Errorf("Go ran %d times in 60 quiet seconds, want once a second", srv.wakes)
	}
	if len(sink.batches) > 3 {
		t.Errorf("%d batches in a quiet minute", len(sink.batches))
	}
	last := srv.shown[len(srv.shown)-1]
	if behind := srv.wall().Sub(last.LastFlush); behind > 2*time.Second {
		t.Errorf("last_flush is %v behind although there was nothing to write", behind)
	}
}

func TestShortRetentionIsKeptOnAQuietServer(t *testing.T) {
	cfg := testConfig()
	cfg.Retention = 14 * time.Second
	sink := &recorder{}
	play(t, &server{}, sink, cfg, 30*time.Second)
	if len(sink.batches) < 14 {
		t.Errorf("the store heard %d times in 30 s: too rarely to turn a ring of 14 s by time", len(sink.batches))
	}
}

func TestLongWaitCostsNoMoreThanTenWalksASecond(t *testing.T) {
	srv := &server{script: []moment{{at: time.Second, do: alterWaits}}}
	play(t, srv, &recorder{}, testConfig(), 11*time.Second)
	if srv.walks < 90 || srv.walks > 102 {
		t.Errorf("%d walks in 10 s of an unchanged wait, want about 10 a second", srv.walks)
	}
}

func TestBusyPartitionIsInsistedOnAfterThreeTicks(t *testing.T) {
	srv := &server{busy: 100, script: []moment{{at: time.Second, do: alterWaits}}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 1200*time.Millisecond)
	if srv.insisted == 0 {
		t.Fatal("never waited for the busy partition")
	}
	if tried := 100 - srv.busy; tried < insistAfter {
		t.Errorf("insisted after %d busy tries, want %d", tried, insistAfter)
	}
	var busy int64
	for _, b := range sink.batches {
		for _, h := range b.Health {
			busy += h.PartitionsBusy
		}
	}
	if busy < insistAfter {
		t.Errorf("health counts %d busy partitions, want at least %d", busy, insistAfter)
	}
}

func TestFlushIsAnsweredWithFreshFacts(t *testing.T) {
	srv := &server{script: []moment{
		{at: 1100 * time.Millisecond, do: alterWaits},
		{at: 1300 * time.Millisecond, reasons: WokeFlush, ticket: 7},
	}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 1400*time.Millisecond)
	for _, b := range sink.batches {
		if b.Ticket == 7 {
			if len(b.Open) != 1 || len(b.Health) == 0 {
				t.Errorf("the batch of flush() has %d open waits and %d rows of health, want both", len(b.Open), len(b.Health))
			}
			if srv.answered != 7 {
				t.Errorf("answered up to %d, want 7", srv.answered)
			}
			return
		}
	}
	t.Fatal("no batch carries the ticket")
}

func TestFlushIsNotAnsweredBeforeItIsWritten(t *testing.T) {
	srv := &server{script: []moment{{at: time.Second, reasons: WokeFlush, ticket: 3}}}
	play(t, srv, &recorder{stuck: true}, testConfig(), 2*time.Second)
	if srv.answered != 0 {
		t.Errorf("answered %d while nothing was written", srv.answered)
	}
	for _, st := range srv.shown {
		if st.LastFlush != 0 {
			t.Fatalf("last_flush %v shown while nothing was written", st.LastFlush)
		}
	}
}

func TestSwitchedOffTimeIsAGap(t *testing.T) {
	off := `{"settings":{"enabled":false,"track_locks":true,"track_load":true,"database":"postgres","sample_period_ms":10,"flush_period_ms":1000,"retention_s":604800,"max_size_mb":1024,"min_duration_ms":100,"max_rows_per_second":1000,"query_text":"full","query_length":64,"memory_limit_mb":64,"node_name":"n"},
		"server":{"version_num":150000,"port":5432,"worker_start":1,"system_identifier":"1","extension_version":"1.0"}}`
	on := strings.Replace(off, `"enabled":false`, `"enabled":true`, 1)
	srv := &server{settings: off, script: []moment{
		{at: time.Second, do: alterWaits},
		{at: 2 * time.Second, reasons: WokeReload},
		{at: 4 * time.Second, do: nobodyWaits},
		{at: 5 * time.Second, reasons: WokeReload, do: func(s *server) { s.settings = on }},
	}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 8*time.Second)

	gaps := sink.gaps()
	if len(gaps) != 1 || gaps[0].Reason != history.GapDisabled {
		t.Fatalf("gaps %+v, want one: disabled", gaps)
	}
	if b, e := gaps[0].Began.Sub(start), gaps[0].Ended.Sub(start); b < 2*time.Second || b > 2020*time.Millisecond || e < 5*time.Second || e > 5020*time.Millisecond {
		t.Errorf("gap from %v to %v, want from 2 s to 5 s", b, e)
	}
	closed := sink.closedEpisodes()
	if len(closed) != 1 || closed[0].Outcome != history.Granted {
		t.Fatalf("ended %+v, want one wait that was granted: it left no record of a failure", closed)
	}
	if end := closed[0].End.Sub(start); end > 2100*time.Millisecond {
		t.Errorf("ended at %v, want at the last sight of it", end)
	}
	for _, b := range sink.batches {
		if at := b.CompleteTo.Sub(start); b.Waiting && at > 2100*time.Millisecond && at < 5*time.Second {
			t.Errorf("the heartbeat of %v keeps a wait alive that nobody looks at", at)
		}
	}
	disabled := false
	for _, st := range srv.shown {
		disabled = disabled || st.State == stateDisabled
	}
	if !disabled {
		t.Error("status never said disabled")
	}
}

// A wait that goes on over a pause: what is written meanwhile says that nobody looks,
// and afterwards the wait is handed out again, in a batch that is later than the gap.
func TestOpenWaitsAreOwedAfterAPause(t *testing.T) {
	off := `{"settings":{"enabled":false,"track_locks":true,"track_load":true,"database":"postgres","sample_period_ms":10,"flush_period_ms":1000,"retention_s":604800,"max_size_mb":1024,"min_duration_ms":100,"max_rows_per_second":1000,"query_text":"full","query_length":64,"memory_limit_mb":64,"node_name":"n"},
		"server":{"version_num":150000,"port":5432,"worker_start":1,"system_identifier":"1","extension_version":"1.0"}}`
	srv := &server{settings: off, script: []moment{
		{at: time.Second, do: alterWaits},
		{at: 3 * time.Second, reasons: WokeReload},
		{at: 5 * time.Second, reasons: WokeFlush},
		{at: 7 * time.Second, reasons: WokeReload, do: func(s *server) { s.settings = strings.Replace(off, `"enabled":false`, `"enabled":true`, 1) }},
	}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 10*time.Second)

	gaps := sink.gaps()
	if len(gaps) != 2 || gaps[0].Ended != gaps[1].Began || gaps[0].Ended.Sub(start) > 5020*time.Millisecond {
		t.Errorf("gaps %+v, want two: up to the flush that was asked for, and from then on", gaps)
	}
	before, after := 0, 0
	for _, b := range sink.batches {
		switch at := b.CompleteTo.Sub(start); {
		case at < 3*time.Second:
			before += len(b.Open)
		case at > 7010*time.Millisecond && at < 9*time.Second:
			after += len(b.Open)
		case len(b.Open) > 0 && at < 9*time.Second:
			t.Errorf("handed out as open at %v, when nobody looks", at)
		}
	}
	if before == 0 || after != 1 {
		t.Errorf("handed out %d times before the pause and %d times after it, want once again", before, after)
	}
}

// While waits are not sampled, what was open is told as it was when that began, also
// when the tables need it again; and what was young then is not told as open at all.
func TestOpenWaitsInAPause(t *testing.T) {
	off := `{"settings":{"enabled":true,"track_locks":false,"track_load":true,"database":"postgres","sample_period_ms":10,"flush_period_ms":1000,"retention_s":604800,"max_size_mb":1024,"min_duration_ms":100,"max_rows_per_second":1000,"query_text":"full","query_length":64,"memory_limit_mb":64,"node_name":"n"},
		"server":{"version_num":150000,"port":5432,"worker_start":1,"system_identifier":"1","extension_version":"1.0"}}`
	for _, c := range []struct {
		name  string
		began time.Duration
		told  int // as open: before the pause, and when it is asked for in the pause
	}{
		{"old", 3300 * time.Millisecond, 2},
		{"young", 3450 * time.Millisecond, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			sink := &recorder{}
			srv := &server{settings: off, script: []moment{
				{at: c.began, do: alterWaits},
				{at: 3500 * time.Millisecond, reasons: WokeReload},
				{at: 5 * time.Second, do: func(*server) { sink.rewrite = true }},
			}}
			play(t, srv, sink, testConfig(), 8*time.Second)
			told := 0
			for _, b := range sink.batches {
				if b.CompleteTo.Sub(start) >= 8*time.Second {
					continue // at the end all is told
				}
				told += len(b.Open)
				asOf := b.OpenAsOf
				if asOf == 0 {
					asOf = b.CompleteTo
				}
				if at := asOf.Sub(start); len(b.Open) > 0 && at > 3510*time.Millisecond {
					t.Errorf("told as open at %v, as of %v, when nobody looked", b.CompleteTo.Sub(start), at)
				}
			}
			if told != c.told {
				t.Errorf("told as open %d times, want %d", told, c.told)
			}
		})
	}
}

// What a process waits for after a pause began when the server says, although before
// the pause it waited for something else, which ended when that was last seen.
func TestWaitsFromBeforeAndAfterAPause(t *testing.T) {
	for _, c := range []struct{ name, setting string }{
		{"nothing is sampled", "enabled"},
		{"load is", "track_locks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			on := `{"settings":{"enabled":true,"track_locks":true,"track_load":true,"database":"postgres","sample_period_ms":10,"flush_period_ms":1000,"retention_s":604800,"max_size_mb":1024,"min_duration_ms":100,"max_rows_per_second":1000,"query_text":"full","query_length":64,"memory_limit_mb":64,"node_name":"n"},
		"server":{"version_num":150000,"port":5432,"worker_start":1,"system_identifier":"1","extension_version":"1.0"}}`
			srv := &server{settings: strings.Replace(on, `"`+c.setting+`":true`, `"`+c.setting+`":false`, 1), script: []moment{
				{at: time.Second, do: alterWaits},
				{at: 2 * time.Second, reasons: WokeReload},
				{at: 4 * time.Second, do: waitsForAnother},
				{at: 5 * time.Second, reasons: WokeReload, do: func(s *server) { s.settings = on; s.last = 0 }},
				{at: 6 * time.Second, do: nobodyWaits},
			}}
			sink := &recorder{}
			play(t, srv, sink, testConfig(), 8*time.Second)
			closed := sink.closedEpisodes()
			if len(closed) != 2 {
				t.Fatalf("ended %+v, want two waits", closed)
			}
			if end := closed[0].End.Sub(start); end < 2*time.Second || end > 2020*time.Millisecond {
				t.Errorf("the first ended at %v, want when it was last seen, at 2 s", end)
			}
			if closed[1].Start != start.Add(4*time.Second) {
				t.Errorf("the second began at %v, want at 4 s", closed[1].Start.Sub(start))
			}
		})
	}
}

// With another period the shim begins anew: the sweeps before it were all the same.
func TestWaitsFromBeforeAndAfterAReload(t *testing.T) {
	srv := &server{script: []moment{
		{at: time.Second, do: alterWaits},
		{at: 2 * time.Second, reasons: WokeReload},
		{at: 2*time.Second + 20*time.Millisecond, do: func(s *server) {
			waitsForAnother(s)
			s.waits[0].WaitStart = start.Add(2*time.Second + 15*time.Millisecond)
			s.queue[0].WaitStart = s.waits[0].WaitStart
			s.last = 0
		}},
		{at: 3 * time.Second, do: nobodyWaits},
	}}
	srv.settings = `{"settings":{"enabled":true,"track_locks":true,"track_load":true,"database":"postgres","sample_period_ms":30,"flush_period_ms":1000,"retention_s":604800,"max_size_mb":1024,"min_duration_ms":100,"max_rows_per_second":1000,"query_text":"full","query_length":64,"memory_limit_mb":64,"node_name":"n"},
		"server":{"version_num":150000,"port":5432,"worker_start":1,"system_identifier":"1","extension_version":"1.0"}}`
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 5*time.Second)
	closed := sink.closedEpisodes()
	if len(closed) != 2 {
		t.Fatalf("ended %+v, want two waits", closed)
	}
	for i, want := range []time.Duration{time.Second, 2*time.Second + 15*time.Millisecond} {
		if began := closed[i].Start.Sub(start); began != want {
			t.Errorf("wait %d began at %v, want at %v, as the server says", i+1, began, want)
		}
	}
}

func TestHoleBetweenSweepsIsAGap(t *testing.T) {
	srv := &server{script: []moment{{at: 2 * time.Second, reasons: WokeDeadline, do: func(s *server) { s.now += 3 * time.Second }}}}
	sink := &recorder{}
	gapped := &gapServer{server: srv}
	srv.script = append(srv.script, moment{at: 7 * time.Second, reasons: WokeStop})
	sink.status.State = stateRecording
	s := New(Options{Probes: gapped, Sink: sink, Log: report.New(func() {}), Conflicts: lockmgrtest.Conflicts(), Config: testConfig(), MaxProcesses: 16, LiveRoom: testRoom, Names: noNames{}, WatchOnStop: 50 * time.Millisecond})
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	gaps := sink.gaps()
	if len(gaps) != 1 || gaps[0].Reason != history.GapLate || gaps[0].Ended.Sub(gaps[0].Began) < 3*time.Second {
		t.Errorf("gaps %+v, want one of 3 s: late", gaps)
	}
}

// gapServer reports holes as the wait probe does.
type gapServer struct{ *server }

func (g *gapServer) Wait(period time.Duration, deadline Monotonic, track Track, known, found []snapshot.Wait, w *Wake) (int, error) {
	before := g.wall()
	n, err := g.server.Wait(period, deadline, track, known, found, w)
	if w.Now.Sub(before) > 2*time.Second {
		w.GapBegan, w.GapEnded = before, w.Now
	}
	return n, err
}

func TestShorterFlushPeriodTakesEffectAtOnce(t *testing.T) {
	cfg := testConfig()
	cfg.FlushPeriod = time.Minute
	srv := &server{script: []moment{{at: time.Second, do: alterWaits}, {at: 2 * time.Second, reasons: WokeReload}},
		settings: `{"settings":{"enabled":true,"track_locks":true,"track_load":true,"database":"postgres","sample_period_ms":10,"flush_period_ms":1000,"retention_s":604800,"max_size_mb":1024,"min_duration_ms":100,"max_rows_per_second":1000,"query_text":"full","query_length":64,"memory_limit_mb":64,"node_name":"n"},
		"server":{"version_num":150000,"port":5432,"worker_start":1,"system_identifier":"1","extension_version":"1.0"}}`}
	sink := &recorder{}
	play(t, srv, sink, cfg, 5*time.Second)
	for _, b := range sink.batches {
		if at := b.CompleteTo.Sub(start); len(b.Open) > 0 {
			if at < 2*time.Second || at > 3100*time.Millisecond {
				t.Errorf("the wait was handed over at %v, want a second after the reload", at)
			}
			return
		}
	}
}

// The next wait goes by the new period, and so does what is counted.
func TestSamplePeriodIsChangedAtRunTime(t *testing.T) {
	settings := func(ms string) string {
		return strings.Replace(`{"settings":{"enabled":true,"track_locks":true,"track_load":true,"database":"postgres","sample_period_ms":10,"flush_period_ms":1000,"retention_s":604800,"max_size_mb":1024,"min_duration_ms":100,"max_rows_per_second":1000,"query_text":"full","query_length":64,"memory_limit_mb":64,"node_name":"n"},
		"server":{"version_num":150000,"port":5432,"worker_start":1,"system_identifier":"1","extension_version":"1.0"}}`, `_period_ms":10,`, `_period_ms":`+ms+`,`, 1)
	}
	srv := &server{settings: settings("250"), script: []moment{
		{at: 2 * time.Second, reasons: WokeReload},
		{at: 4 * time.Second, reasons: WokeReload, do: func(s *server) { s.settings = settings("5") }},
	}}
	sink := &recorder{}
	s := play(t, srv, sink, testConfig(), 6*time.Second)
	if want := []time.Duration{10 * time.Millisecond, 250 * time.Millisecond, 5 * time.Millisecond}; !slices.Equal(srv.periods, want) {
		t.Errorf("the probe waited by %v, want %v", srv.periods, want)
	}
	var ticks int64
	for _, b := range sink.batches {
		for i := range b.Health {
			ticks += int64(b.Health[i].TicksDone)
		}
	}
	if ticks < 600 || ticks > 615 { // 200 and 8 and 400
		t.Errorf("%d ticks, want 608", ticks)
	}
	if got := trackerConfig(s.o.Config).HandOver; got != 10*time.Millisecond {
		t.Errorf("a hand-over takes up to %v, want two of the new periods", got)
	}
}

func TestSettingsThatCannotBeReadLeaveTheOldOnes(t *testing.T) {
	srv := &server{settings: `{"settings":{}}`, script: []moment{{at: time.Second, reasons: WokeReload}}}
	sink := &recorder{}
	s := play(t, srv, sink, testConfig(), 2*time.Second)
	if s.o.Config.SamplePeriod != 10*time.Millisecond || len(sink.configured) != 0 {
		t.Error("the settings were replaced by unreadable ones")
	}
	if len(srv.logged) != 1 || !strings.Contains(srv.logged[0].Text, "pg_lock_history.") {
		t.Errorf("logged %+v, want one message that names the setting", srv.logged)
	}
}

func TestServerStopping(t *testing.T) {
	srv := &server{script: []moment{{at: time.Second, do: alterWaits}, {at: 1500 * time.Millisecond, reasons: WokeStopping}}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 3*time.Second)
	if sink.closed != 1 {
		t.Errorf("the sink was asked %d times to leave, want once", sink.closed)
	}
	open := 0
	for _, b := range sink.batches {
		if b.CompleteTo <= start.Add(1600*time.Millisecond) {
			open += len(b.Open)
		}
	}
	if open != 1 {
		t.Error("the open wait was not handed over before the sink left")
	}
}

// The last flush looks once more, at all cost, and hands out what others leave
// for later.
func TestTheEndIsHandedOver(t *testing.T) {
	tests := []struct {
		name               string
		busy               int
		do                 func(*server) // just before the end
		open, closed, more int           // episodes in the last batch, its short waits
		walks              int           // the last one has no other reason than the end; 0: whatever
	}{
		{"a wait of one tick", 0, alterWaits, 1, 0, 0, 2},
		{"its partition is busy", 1000, alterWaits, 1, 0, 0, 0},
		{"ended in the last tick", 0, func(s *server) {
			s.script = append([]moment{{at: s.now + 5*time.Millisecond, do: nobodyWaits}}, s.script...)
			alterWaits(s)
		}, 0, 0, 1, 0},
		{"nobody waits", 0, nobodyWaits, 0, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := &server{busy: tt.busy, script: []moment{{at: 29990 * time.Millisecond, do: tt.do}}}
			sink := &recorder{}
			s := play(t, srv, sink, testConfig(), 30*time.Second)
			if c := s.Complete().Sub(start); c != srv.now || c < 30*time.Second {
				t.Errorf("complete up to %v, want the end", c)
			}
			if watched := srv.now - 30*time.Second; watched > 0 != (tt.open > 0) || watched > s.o.WatchOnStop {
				t.Errorf("watched how waits end for %v", watched)
			}
			if tt.walks != 0 && srv.walks != tt.walks {
				t.Errorf("%d walks, want %d: one more at the end", srv.walks, tt.walks)
			}
			b := sink.batches[len(sink.batches)-1]
			if b.CompleteTo != s.Complete() || len(b.Open) != tt.open || len(b.Closed) != tt.closed || len(b.Short) != tt.more {
				t.Errorf("the last batch has %d open, %d ended, %d short waits; want %d, %d, %d",
					len(b.Open), len(b.Closed), len(b.Short), tt.open, tt.closed, tt.more)
			}
		})
	}
}

// A server that is stopping is watched on: its waits are not yet final.
func TestServerStoppingIsNotTheEnd(t *testing.T) {
	srv := &server{script: []moment{{at: 1490 * time.Millisecond, do: alterWaits}, {at: 1500 * time.Millisecond, reasons: WokeStopping}}}
	sink := &recorder{}
	s := play(t, srv, sink, testConfig(), 1550*time.Millisecond)
	for _, b := range sink.batches {
		if want := b.CompleteTo == s.Complete(); len(b.Open) > 0 != want {
			t.Errorf("%d open waits handed over at %v", len(b.Open), b.CompleteTo.Sub(start))
		}
	}
}

func TestMemoryIsGivenBackOnceAfterWaits(t *testing.T) {
	srv := &server{t: t, script: []moment{
		{at: 40 * time.Second, do: alterWaits}, {at: 45 * time.Second, do: nobodyWaits},
		{at: 120 * time.Second, reasons: WokeStop},
	}}
	sink := &recorder{}
	sink.status.State = stateRecording
	var at []time.Duration
	s := New(Options{Probes: srv, Sink: sink, Log: report.New(func() {}), Conflicts: lockmgrtest.Conflicts(), Config: testConfig(), MaxProcesses: 16, LiveRoom: testRoom, Names: noNames{},
		Rest: func() { at = append(at, srv.now.Round(time.Second)) }})
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	if len(at) != 2 || at[0] < 30*time.Second || at[0] > 32*time.Second || at[1] < 75*time.Second || at[1] > 77*time.Second {
		t.Errorf("rested at %v, want 30 s after the start and 30 s after the wait", at)
	}
}

func TestPokeReachesTheSink(t *testing.T) {
	srv := &server{script: []moment{{at: time.Second, reasons: WokePoked}}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 2*time.Second)
	if sink.poked != 1 {
		t.Errorf("poked %d times, want once", sink.poked)
	}
}

func TestFailingProbeEndsTheRun(t *testing.T) {
	broken := errors.New("probe wait: broken")
	srv := &server{waitErr: broken}
	s := New(Options{Probes: srv, Sink: &recorder{}, Log: report.New(func() {}), Conflicts: lockmgrtest.Conflicts(), Config: testConfig(), MaxProcesses: 16, LiveRoom: testRoom, Names: noNames{}, WatchOnStop: 50 * time.Millisecond})
	if err := s.Run(); !errors.Is(err, broken) {
		t.Errorf("run ended with %v, want the probe's error", err)
	}
	if len(srv.logged) != 1 {
		t.Errorf("%d messages for one lasting failure, want 1", len(srv.logged))
	}
}

func TestQuietTurnAllocatesNothing(t *testing.T) {
	srv := &server{t: t}
	sink := &recorder{}
	sink.status.State = stateRecording
	s := New(Options{Probes: srv, Sink: sink, Log: report.New(func() {}), Conflicts: lockmgrtest.Conflicts(), Config: testConfig(), MaxProcesses: 16, LiveRoom: testRoom, Names: noNames{}, WatchOnStop: 50 * time.Millisecond})
	turn := func() {
		if _, err := s.turn(); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		turn()
	}
	srv.shown = make([]Status, 0, 1000)
	if n := testing.AllocsPerRun(20, turn); n != 0 {
		t.Errorf("a quiet turn allocates %v times", n)
	}
}

// The store may not look into the server itself: it asks, and is told once.
func TestSlotIsToldWhenAsked(t *testing.T) {
	sink := &recorder{}
	srv := &server{script: []moment{
		{at: 1000 * time.Millisecond, reasons: WokeNotify, do: func(s *server) { sink.asksSlot = true }},
		{at: 2500 * time.Millisecond, reasons: WokeNotify, do: func(s *server) { sink.asksSlot, s.spare = true, true }},
	}}
	play(t, srv, sink, testConfig(), 4*time.Second)
	if len(sink.told) != 2 || sink.told[0] || !sink.told[1] {
		t.Errorf("told %v, want no and yes, once each", sink.told)
	}
}

// fails has the waiter give up, and leave its record after the sweep that misses it.
func fails(reason snapshot.FailReason, text string) func(*server) {
	return func(s *server) {
		f := snapshot.Failure{Slot: 1, Pid: 101, WaitStart: s.waits[0].WaitStart, FailedAt: s.wall(), Mode: 8, Reason: reason, Text: text}
		nobodyWaits(s)
		s.failures = append(s.failures, f)
	}
}

func TestFailedWaits(t *testing.T) {
	record := func(s *server) {
		s.failures = append(s.failures, snapshot.Failure{Slot: 1, Pid: 101, WaitStart: start.Add(time.Second), FailedAt: s.wall(), Mode: 8, Reason: snapshot.FailCancelled})
	}
	stop := moment{at: 2 * time.Second, reasons: WokeStop}
	tests := []struct {
		name   string
		script []moment
		want   history.Outcome
	}{
		{"record and end in one turn", []moment{{at: 1500 * time.Millisecond, do: fails(snapshot.FailLockTimeout, "")}, stop}, history.LockTimeout},
		{"the record a little later", []moment{{at: 1500 * time.Millisecond, do: nobodyWaits}, {at: 1530 * time.Millisecond, do: record}, stop}, history.Cancelled},
		{"after the stop", []moment{stop, {at: 2005 * time.Millisecond, do: fails(snapshot.FailServerStop, "")}}, history.ServerStop},
		{"the record after the stop", []moment{{at: 1995 * time.Millisecond, do: nobodyWaits}, stop, {at: 2015 * time.Millisecond, do: record}}, history.Cancelled},
		{"no record", []moment{{at: 1995 * time.Millisecond, do: nobodyWaits}, stop}, history.Failed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := &server{status: snapshot.EndedFailed, script: append([]moment{{at: time.Second, do: alterWaits}}, tt.script...)}
			sink := &recorder{}
			play(t, srv, sink, testConfig(), time.Hour)
			closed := sink.closedEpisodes()
			if len(closed) != 1 || closed[0].Outcome != tt.want {
				t.Fatalf("ended %+v, want one with %v", closed, tt.want)
			}
		})
	}
}

func TestDeadlockOfStrangersIsDescribed(t *testing.T) {
	const text = "Process 201 waits for ShareLock on transaction 8; blocked by process 202.\nProcess 202 waits for ShareLock on transaction 9; blocked by process 201."
	srv := &server{pids: map[int32]int32{202: 7}, script: []moment{{at: time.Second, do: func(s *server) {
		s.failures = append(s.failures, snapshot.Failure{Slot: 6, Pid: 201, WaitStart: s.wall() - 1000, FailedAt: s.wall(), Mode: 5, Reason: snapshot.FailDeadlock, Text: text})
	}}}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 3*time.Second)
	var found []history.Deadlock
	for _, b := range sink.batches {
		found = append(found, b.Deadlocks...)
	}
	if len(found) != 1 || len(found[0].Members) != 2 {
		t.Fatalf("got %+v", found)
	}
	for i, want := range []struct {
		slot  int32
		query string
	}{{6, "statement of 201, at most 64 bytes"}, {7, "statement of 202, at most 64 bytes"}} {
		if m := found[0].Members[i]; m.Session.Slot != want.slot || m.Session.Query != want.query || m.IsVictim != (i == 0) {
			t.Errorf("member %d: %+v", i, m.Session)
		}
	}
}

// setClock sets the clock of the server by so much at a moment.
func setClock(at, by time.Duration) moment {
	return moment{at: at, do: func(s *server) { s.set += by }}
}

// A wait from 1 s to 2.5 s, by the clock that nobody sets.
func TestClockIsSetWhileSomebodyWaits(t *testing.T) {
	cancelled := func(s *server) {
		w := s.waits[0]
		s.failures = append(s.failures, snapshot.Failure{Slot: w.Slot, Pid: w.Pid, WaitStart: w.WaitStart, FailedAt: s.wall() - 2000, Mode: 8, Reason: snapshot.FailCancelled})
		s.status = snapshot.EndedFailed
		nobodyWaits(s)
	}
	tests := []struct {
		name   string
		steps  []moment
		end    func(*server)
		at     time.Duration // of the wait in the history
		gap    time.Duration // 0: none
		failed bool
	}{
		{"not at all", nil, nobodyWaits, time.Second, 0, false},
		{"an hour forwards", []moment{setClock(2*time.Second, time.Hour)}, nobodyWaits, time.Second, time.Hour, false},
		{"an hour back", []moment{setClock(2*time.Second, -time.Hour)}, nobodyWaits, time.Second, 0, false},
		{"forwards, and cancelled", []moment{setClock(2*time.Second, time.Hour)}, cancelled, time.Second, time.Hour, true},
		{"back, and cancelled", []moment{setClock(2*time.Second, -time.Hour)}, cancelled, time.Second, 0, true},
		{"back by less than it waits", []moment{setClock(2*time.Second, -time.Second)}, nobodyWaits, time.Second, 0, false},
		{"to and fro", []moment{setClock(1500*time.Millisecond, time.Minute), setClock(2*time.Second, -time.Hour)}, nobodyWaits, time.Second, time.Minute, false},
		{"between its begin and the first look", []moment{setClock(1005*time.Millisecond, time.Hour)}, nobodyWaits, time.Second, time.Hour, false},
		{"just before the end", []moment{setClock(2495*time.Millisecond, time.Hour)}, nobodyWaits, time.Second, time.Hour, false},
		{"just before it is cancelled", []moment{setClock(2495*time.Millisecond, -time.Hour)}, cancelled, time.Second, 0, true},
		{"before it begins", []moment{setClock(500*time.Millisecond, time.Hour)}, nobodyWaits, time.Hour + time.Second, time.Hour, false},
		{"slowly", []moment{setClock(1500*time.Millisecond, 20*time.Millisecond)}, nobodyWaits, time.Second, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			script := append([]moment{{at: 1001 * time.Millisecond, do: func(s *server) {
				alterWaits(s)
				s.waits[0].WaitStart = start.Add(time.Second + s.set)
				s.queue[0].WaitStart = s.waits[0].WaitStart
			}}}, tt.steps...)
			script = append(script, moment{at: 2500 * time.Millisecond, do: tt.end})
			slices.SortStableFunc(script, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
			sink := &recorder{}
			play(t, &server{script: script}, sink, testConfig(), 4*time.Second)
			closed := sink.closedEpisodes()
			if len(closed) != 1 || closed[0].Outcome.IsFailure() != tt.failed {
				t.Fatalf("closed %+v", closed)
			}
			e := &closed[0]
			if e.Start != start.Add(tt.at) {
				t.Errorf("began at %v, want %v", e.Start.Sub(start), tt.at)
			}
			if off := e.End.Sub(e.Start) - 1500*time.Millisecond; off.Abs() > 25*time.Millisecond {
				t.Errorf("%v long, want 1.5s", e.End.Sub(e.Start))
			}
			for _, edge := range e.Edges {
				if edge.From != e.Start || edge.To != e.End {
					t.Errorf("edge from %v to %v", edge.From.Sub(start), edge.To.Sub(start))
				}
			}
			var gap time.Duration
			for _, g := range sink.gaps() {
				if g.Reason != history.GapClock {
					t.Errorf("gap %+v", g)
				}
				gap += g.Ended.Sub(g.Began)
			}
			if gap != tt.gap && (gap-tt.gap).Abs() > time.Millisecond {
				t.Errorf("gaps of %v, want %v", gap, tt.gap)
			}
		})
	}
}

// The periodic flush does not say that all is told while it is not known how a
// wait has ended; neither to the history nor to sessions, who see it when there is
// nothing to write.
func TestNotCompleteBeyondWhatIsHeldBack(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other bool // somebody else waits
	}{{"others wait", true}, {"nobody waits", false}} {
		t.Run(tt.name, func(t *testing.T) {
			held := 0 // times that it was said while it was not known
			for offset := 0 * time.Millisecond; offset < time.Second; offset += 10 * time.Millisecond {
				seen, over := start.Add(1980*time.Millisecond+offset), start.Add(1985*time.Millisecond+offset)
				told := start.Add(2050*time.Millisecond + offset)
				said := func(what string, complete, now snapshot.Micros) {
					if now > over && now < told && complete != 0 {
						held++
						if complete > seen {
							t.Errorf("offset %v: %s complete up to %v at %v", offset, what, complete.Sub(start), now.Sub(start))
						}
					}
				}
				srv := &server{status: snapshot.EndedFailed, script: []moment{
					{at: time.Second, do: func(s *server) {
						alterWaits(s)
						if tt.other {
							s.waits = append(s.waits, snapshot.Wait{Lock: 2, WaitStart: s.wall(), Slot: 2, Pid: 102, WaitEvent: 0x03000000})
						}
					}},
					{at: 1990*time.Millisecond + offset, do: func(s *server) { s.waits = s.waits[1:] }},
					{at: 2050*time.Millisecond + offset, reasons: WokeNotify, do: func(s *server) {
						s.failures = append(s.failures, snapshot.Failure{Slot: 1, Pid: 101, WaitStart: start.Add(time.Second), FailedAt: over, Mode: 8, Reason: snapshot.FailCancelled})
					}}}}
				for at := over.Add(5 * time.Millisecond); at < told; at = at.Add(10 * time.Millisecond) {
					srv.script = append(srv.script, moment{at: at.Sub(start), reasons: WokeNotify}) // it is published
				}
				slices.SortStableFunc(srv.script, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
				sink := &recorder{}
				sink.pushed = func(b *history.Batch) { said("history", b.CompleteTo, srv.wall()) }
				srv.publish = func(st *Status) { said("status", st.LastFlush, srv.wall()) }
				play(t, srv, sink, testConfig(), 5*time.Second)
				if e := sink.closedEpisodes(); len(e) != 1 || e[0].End != over {
					t.Errorf("offset %v: closed %+v, want an end as recorded", offset, e)
				}
			}
			if held == 0 {
				t.Error("nothing was said while the wait was held back")
			}
		})
	}
}
