package probe

/*
#cgo CFLAGS: -I${SRCDIR}/../../extension
#include <string.h>
#include "probe.h"
#include "statements.h"

// cgo cannot call through function pointers.
static inline int32_t call_wait(PlhProbes *p, int64_t period, int64_t deadline, uint32_t track,
	const PlhWait *known, uint32_t n_known, PlhWait *found, uint32_t room, PlhWake *wake)
{
	return p->wait(period, deadline, track, known, n_known, found, room, wake);
}
static inline int32_t call_locks(PlhProbes *p, const PlhWait *waits, uint32_t n,
	PlhLock *locks, uint32_t locks_room, PlhHolder *holders, uint32_t holders_room,
	PlhQueued *queue, uint32_t queue_room, PlhWalk *walk)
{
	return p->locks(waits, n, locks, locks_room, holders, holders_room, queue, queue_room, walk);
}
static inline int32_t call_row(PlhProbes *p, PlhRow *row) { return p->row(row); }
static inline int32_t call_sessions(PlhProbes *p, PlhSession *s, uint32_t n, char *text, uint32_t room, uint32_t each)
{
	return p->sessions(s, n, text, room, each);
}
static inline int32_t call_conflicts(PlhProbes *p, uint32_t *conflict, uint32_t room)
{
	return p->conflicts(conflict, room);
}
static inline int32_t call_settings(PlhProbes *p, char *json, uint32_t room, uint32_t *length)
{
	return p->settings(json, room, length);
}
static inline int32_t call_log(PlhProbes *p, int32_t level, const char *m, uint32_t ml,
	const char *d, uint32_t dl, const char *h, uint32_t hl)
{
	return p->log(level, m, ml, d, dl, h, hl);
}
static inline int32_t call_publish(PlhProbes *p, const PlhStatus *s) { return p->publish(s); }
static inline int32_t call_live_graph(PlhProbes *p, const char *r, uint32_t length, uint32_t rows, uint32_t left_out, int64_t taken_at)
{
	return p->live_graph(r, length, rows, left_out, taken_at);
}
static inline int32_t call_live_ring(PlhProbes *p, uint32_t ring, const char *r, uint32_t length, uint32_t skipped)
{
	return p->live_ring(ring, r, length, skipped);
}
static inline int32_t call_flushed(PlhProbes *p, uint64_t ticket) { return p->flushed(ticket); }
static inline int32_t call_spare_slot(PlhProbes *p, int32_t *spare) { return p->spare_slot(spare); }
static inline int32_t call_failures(PlhProbes *p, PlhFailure *f, uint32_t n, char *text, uint32_t room, uint32_t *found)
{
	return p->failures(f, n, text, room, found);
}
static inline int32_t call_activity(PlhProbes *p, uint32_t finish, const int32_t *ours, uint32_t n_ours, PlhRun *runs, uint32_t runs_room,
	PlhSecond *seconds, uint32_t seconds_room, PlhActivity *answer)
{
	return p->activity(finish, ours, n_ours, runs, runs_room, seconds, seconds_room, answer);
}
static inline int32_t call_name(PlhProbes *p, uint32_t kind, uint32_t number, char *text, uint32_t room)
{
	return p->name(kind, number, text, room);
}
static inline int32_t call_statements(PlhProbes *p, PlhTransaction *t, PlhStatement *s, uint32_t n, char *text, uint32_t room)
{
	return p->statements(t, s, n, text, room);
}
static inline int32_t call_fastpath(PlhProbes *p, uint32_t finish, PlhSlotUse *rows, uint32_t room, PlhFastPath *answer)
{
	return p->fastpath(finish, rows, room, answer);
}
static inline int32_t call_last_error(PlhProbes *p, char *text, uint32_t room) { return p->last_error(text, room); }
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/live"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/sampler"
	"pg_lock_history/gosrc/snapshot"
)

// The layouts must agree: an unsigned constant below zero does not compile.
const (
	_ = uint(unsafe.Sizeof(snapshot.Wait{}) - C.sizeof_PlhWait)
	_ = uint(C.sizeof_PlhWait - unsafe.Sizeof(snapshot.Wait{}))
	_ = uint(unsafe.Sizeof(snapshot.Lock{}) - C.sizeof_PlhLock)
	_ = uint(C.sizeof_PlhLock - unsafe.Sizeof(snapshot.Lock{}))
	_ = uint(unsafe.Sizeof(snapshot.Holder{}) - C.sizeof_PlhHolder)
	_ = uint(C.sizeof_PlhHolder - unsafe.Sizeof(snapshot.Holder{}))
	_ = uint(unsafe.Sizeof(snapshot.Queued{}) - C.sizeof_PlhQueued)
	_ = uint(C.sizeof_PlhQueued - unsafe.Sizeof(snapshot.Queued{}))

	_ = -(unsafe.Offsetof(snapshot.Wait{}.WaitEvent) ^ unsafe.Offsetof(C.PlhWait{}.wait_event_info))
	_ = -(unsafe.Offsetof(snapshot.Wait{}.Slot) ^ unsafe.Offsetof(C.PlhWait{}.slot))
	_ = -(unsafe.Offsetof(snapshot.Lock{}.Type) ^ unsafe.Offsetof(C.PlhLock{}._type))
	_ = -(unsafe.Offsetof(snapshot.Lock{}.FirstHolder) ^ unsafe.Offsetof(C.PlhLock{}.first_holder))
	_ = -(unsafe.Offsetof(snapshot.Lock{}.Flags) ^ unsafe.Offsetof(C.PlhLock{}.flags))
	_ = -(unsafe.Offsetof(snapshot.Holder{}.HoldMask) ^ unsafe.Offsetof(C.PlhHolder{}.hold_mask))
	_ = -(unsafe.Offsetof(snapshot.Holder{}.Flags) ^ unsafe.Offsetof(C.PlhHolder{}.flags))
	_ = -(unsafe.Offsetof(snapshot.Queued{}.Slot) ^ unsafe.Offsetof(C.PlhQueued{}.slot))
	_ = -(unsafe.Offsetof(snapshot.Queued{}.Mode) ^ unsafe.Offsetof(C.PlhQueued{}.mode))

	_ = uint(unsafe.Sizeof(snapshot.Run{}) - C.sizeof_PlhRun)
	_ = uint(C.sizeof_PlhRun - unsafe.Sizeof(snapshot.Run{}))
	_ = uint(unsafe.Sizeof(snapshot.Second{}) - C.sizeof_PlhSecond)
	_ = uint(C.sizeof_PlhSecond - unsafe.Sizeof(snapshot.Second{}))
	_ = -(unsafe.Offsetof(snapshot.Run{}.EndedUs) ^ unsafe.Offsetof(C.PlhRun{}.ended_us))
	_ = -(unsafe.Offsetof(snapshot.Run{}.WaitEvent) ^ unsafe.Offsetof(C.PlhRun{}.wait_event_info))
	_ = -(unsafe.Offsetof(snapshot.Run{}.Role) ^ unsafe.Offsetof(C.PlhRun{}.role))
	_ = -(unsafe.Offsetof(snapshot.Second{}.IdleInTransactionUs) ^ unsafe.Offsetof(C.PlhSecond{}.idle_in_transaction_us))
	_ = -(unsafe.Offsetof(snapshot.Second{}.Samples) ^ unsafe.Offsetof(C.PlhSecond{}.samples))
	_ = uint(unsafe.Sizeof(snapshot.SlotUse{}) - C.sizeof_PlhSlotUse)
	_ = uint(C.sizeof_PlhSlotUse - unsafe.Sizeof(snapshot.SlotUse{}))
	_ = -(unsafe.Offsetof(snapshot.SlotUse{}.Pid) ^ unsafe.Offsetof(C.PlhSlotUse{}.pid))
	_ = -(unsafe.Offsetof(snapshot.SlotUse{}.Spilled) ^ unsafe.Offsetof(C.PlhSlotUse{}.spilled))
	_ = -(unsafe.Offsetof(snapshot.SlotUse{}.LooksFull) ^ unsafe.Offsetof(C.PlhSlotUse{}.looks_full))
	_ = -(unsafe.Offsetof(snapshot.Run{}.AheadUs) ^ unsafe.Offsetof(C.PlhRun{}.ahead_us))
	_ = -(unsafe.Offsetof(snapshot.Run{}.Target) ^ unsafe.Offsetof(C.PlhRun{}.target))
	_ = -(unsafe.Offsetof(snapshot.Run{}.WaitersMax) ^ unsafe.Offsetof(C.PlhRun{}.waiters_max))
	_ = -(unsafe.Offsetof(snapshot.Target{}.Block) ^ unsafe.Offsetof(C.PlhTarget{}.block))
	_ = -uint((int(snapshot.TargetPage) ^ C.PLH_TARGET_PAGE) | (int(snapshot.RunPage) ^ C.PLH_RUN_PAGE) | (int(snapshot.RoleOnlyLeaf) ^ C.PLH_ROLE_ONLY_LEAF))
	_ = -uint((sampler.TrackLocks ^ C.PLH_TRACK_LOCKS) | (sampler.TrackLoad ^ C.PLH_TRACK_LOAD))
	_ = -uint((sampler.TrackLWLocks ^ C.PLH_TRACK_LWLOCKS) | (sampler.TrackPages ^ C.PLH_TRACK_PAGES))
	_ = -uint(sampler.WokeActivity ^ C.PLH_WAKE_ACTIVITY)
	_ = -uint((int(snapshot.TypeParallelWorker) ^ C.PLH_TYPE_PARALLEL_WORKER) | (int(snapshot.LWWaitUntilFree) ^ C.PLH_LW_WAIT_UNTIL_FREE))
	_ = -uint((int(snapshot.LWShareExcl) ^ C.PLH_LW_SHARE_EXCLUSIVE) | (int(snapshot.NameTranche) ^ C.PLH_NAME_TRANCHE))

	_ = -(sampler.MaxStatements ^ C.PLH_STATEMENTS_KEPT)
	_ = uint(sampler.HistogramBuckets - C.PLH_HIST_BUCKETS)
	_ = uint(C.PLH_HIST_BUCKETS - sampler.HistogramBuckets)
	_ = -(live.PrefixBytes ^ C.sizeof_PlhRecord)
	_ = -(0 ^ unsafe.Offsetof(C.PlhRecord{}.length))
	_ = -(4 ^ unsafe.Offsetof(C.PlhRecord{}.role))
	_ = -(8 ^ unsafe.Offsetof(C.PlhRecord{}.at))
	_ = -(16 ^ unsafe.Offsetof(C.PlhRecord{}.n_fields))
	_ = -uint((live.FieldNull ^ C.PLH_FIELD_NULL) | (live.FieldInt ^ C.PLH_FIELD_INT) | (live.FieldInts ^ C.PLH_FIELD_INTS) |
		(live.FieldText ^ C.PLH_FIELD_TEXT) | (live.FieldPrivate ^ C.PLH_FIELD_PRIVATE))
	_ = uint(sampler.WokeChanged - C.PLH_WAKE_CHANGED + C.PLH_WAKE_CHANGED - sampler.WokeChanged)
)

// Interface is what this library was built against: version and layout.
const Interface = C.PLH_INTERFACE

// textEach bounds the bytes read of one statement; the setting query_length
// cuts further. It also sizes the buffer together with the sessions of a call.
const textRoom = 1 << 20

// Table is the probe table of the shim. It implements sampler.Probes.
type Table struct {
	c        *C.PlhProbes
	wake     C.PlhWake
	walk     C.PlhWalk
	row      C.PlhRow
	sessions []C.PlhSession
	text     []byte
	json     []byte
	status   C.PlhStatus
	failures [failureRoom]C.PlhFailure
	activity C.PlhActivity
	fastpath C.PlhFastPath

	transaction C.PlhTransaction
	statements  [sampler.MaxStatements]C.PlhStatement
}

// failureRoom is how many failures are fetched in one call; there may be more calls.
const failureRoom = 512

// New wraps the table that C handed over as a pointer to PlhProbes. It stays
// valid for the life of the process.
func New(probes unsafe.Pointer) (*Table, error) {
	t := &Table{c: (*C.PlhProbes)(probes)}
	if v := uint32(t.c.interface_version); v != Interface {
		return nil, fmt.Errorf("the shim speaks interface %#x, this library %#x: install both from the same release", v, uint32(Interface))
	}
	t.text = make([]byte, textRoom)
	t.json = make([]byte, 16<<10)
	return t, nil
}

// MaxProcesses returns the number of slots there are.
func (t *Table) MaxProcesses() int { return int(t.c.max_processes) }

// LiveRoom returns the sizes of the live area's sections.
func (t *Table) LiveRoom() live.Room {
	return live.Room{Graph: int(t.c.graph_room), Waits: int(t.c.waits_room), Load: int(t.c.load_room)}
}

// Waker returns a function that makes a sleeping Wait come back. Unlike
// everything else here it may be called on any thread.
func (t *Table) Waker() func() {
	fd := int(t.c.wake_fd)
	return func() {
		one := [8]byte{1} // any number but zero, in native byte order
		// EAGAIN means that a wake-up is pending already; nothing else can
		// happen to an eventfd that is open.
		_, _ = syscall.Write(fd, one[:])
	}
}

// Wait implements sampler.Probes.
func (t *Table) Wait(period time.Duration, deadline sampler.Monotonic, track sampler.Track, known, found []snapshot.Wait, wake *sampler.Wake) (int, error) {
	rc := C.call_wait(t.c, C.int64_t(period.Nanoseconds()), C.int64_t(deadline), C.uint32_t(track),
		(*C.PlhWait)(unsafe.Pointer(unsafe.SliceData(known))), C.uint32_t(len(known)),
		(*C.PlhWait)(unsafe.Pointer(unsafe.SliceData(found))), C.uint32_t(len(found)), &t.wake)
	w := &t.wake
	wake.Now = snapshot.Micros(w.now)
	wake.NowNs = sampler.Monotonic(w.now_ns)
	wake.Previous = snapshot.Micros(w.previous)
	wake.GapBegan = snapshot.Micros(w.gap_began)
	wake.GapEnded = snapshot.Micros(w.gap_ended)
	wake.FlushRequest = uint64(w.flush_request)
	wake.Reasons = sampler.Reasons(w.reasons)
	wake.Waiting = int(w.n_waiting)
	wake.Lost = int(w.n_lost)
	wake.TicksDone = int64(w.ticks_done)
	wake.TicksLate = int64(w.ticks_late)
	wake.TicksMissed = int64(w.ticks_missed)
	wake.PartitionsTaken = int64(w.partitions_taken)
	wake.PartitionsBusy = int64(w.partitions_busy)
	wake.LastSweep = time.Duration(w.last_sweep_ns)
	wake.LastWasTick = w.last_was_tick != 0
	for i := range wake.Sweeps {
		wake.Sweeps[i] = uint32(w.sweep_hist[i])
		wake.Holds[i] = uint32(w.hold_hist[i])
	}
	return int(w.n_found), t.result("wait", rc)
}

// Locks implements sampler.Probes.
func (t *Table) Locks(waits []snapshot.Wait, insist bool, locks []snapshot.Lock, holders []snapshot.Holder, queue []snapshot.Queued, walk *sampler.Walk) error {
	t.walk.request = 0
	if insist {
		t.walk.request = C.PLH_WALK_INSIST
	}
	rc := C.call_locks(t.c,
		(*C.PlhWait)(unsafe.Pointer(unsafe.SliceData(waits))), C.uint32_t(len(waits)),
		(*C.PlhLock)(unsafe.Pointer(unsafe.SliceData(locks))), C.uint32_t(len(locks)),
		(*C.PlhHolder)(unsafe.Pointer(unsafe.SliceData(holders))), C.uint32_t(len(holders)),
		(*C.PlhQueued)(unsafe.Pointer(unsafe.SliceData(queue))), C.uint32_t(len(queue)), &t.walk)
	w := &t.walk
	walk.TakenAt = snapshot.Micros(w.taken_at)
	walk.Apart = w.flags&C.PLH_WALK_APART != 0
	walk.Overflow = w.flags&C.PLH_WALK_OVERFLOW != 0
	walk.Locks, walk.Holders, walk.Queued = int(w.n_locks), int(w.n_holders), int(w.n_queued)
	walk.Moved = int(w.n_moved)
	walk.PartitionsTaken = int64(w.partitions_taken)
	walk.PartitionsBusy = int64(w.partitions_busy)
	walk.Took = time.Duration(w.walk_ns)
	for i := range walk.Holds {
		walk.Holds[i] = uint32(w.hold_hist[i])
	}
	return t.result("locks", rc)
}

// Row implements sampler.Probes.
func (t *Table) Row(wait snapshot.Wait, row *sampler.Row) error {
	t.row = C.PlhRow{
		lock: C.uint64_t(wait.Lock), wait_start: C.int64_t(wait.WaitStart),
		slot: C.int32_t(wait.Slot), pid: C.int32_t(wait.Pid),
	}
	err := t.result("row", C.call_row(t.c, &t.row))
	r := &t.row
	*row = sampler.Row{
		Status:          sampler.RowStatus(r.status),
		PartitionsTaken: int64(r.partitions_taken),
		PartitionsBusy:  int64(r.partitions_busy),
	}
	if row.Status == sampler.RowFound {
		row.Tuple = lockmgr.Tag{Type: lockmgr.Tuple, Method: lockmgr.DefaultMethod,
			Field1: uint32(r.database), Field2: uint32(r.relation), Field3: uint32(r.page), Field4: uint16(r.tuple)}
	}
	return err
}

// Sessions implements sampler.Probes. It returns details in the order of refs,
// nil for a session that is gone or could not be read.
func (t *Table) Sessions(refs []sampler.Ref, textEach int, each func(i int, s *sampler.RawSession)) error {
	if len(refs) == 0 {
		return nil
	}
	if cap(t.sessions) < len(refs) {
		t.sessions = make([]C.PlhSession, len(refs))
	}
	rows := t.sessions[:len(refs)]
	for i, r := range refs {
		rows[i].slot, rows[i].pid = C.int32_t(r.Slot), C.int32_t(r.Pid)
	}
	if err := t.result("sessions", C.call_sessions(t.c, &rows[0], C.uint32_t(len(rows)),
		(*C.char)(unsafe.Pointer(&t.text[0])), C.uint32_t(len(t.text)), C.uint32_t(textEach))); err != nil {
		return err
	}
	for i := range rows {
		c := &rows[i]
		raw := sampler.RawSession{
			Status:          snapshot.SessionStatus(c.status),
			Slot:            int32(c.slot),
			Pid:             int32(c.pid),
			LeaderPid:       int32(c.leader_pid),
			State:           snapshot.State(c.state),
			Database:        uint32(c.database),
			Role:            uint32(c.role),
			Wraparound:      c.flags&C.PLH_SESSION_TO_PREVENT_WRAPAROUND != 0,
			TextCut:         c.text_cut != 0,
			BackendStart:    snapshot.Micros(c.backend_start),
			XactStart:       snapshot.Micros(c.xact_start),
			QueryStart:      snapshot.Micros(c.query_start),
			StateChange:     snapshot.Micros(c.state_change),
			QueryID:         int64(c.query_id),
			BackendType:     chars(&c.backend_type),
			ApplicationName: chars(&c.application_name),
			ClientAddr:      chars(&c.client_addr),
		}
		from, to := uint64(c.text_offset), uint64(c.text_offset)+uint64(c.text_length)
		if to <= uint64(len(t.text)) {
			raw.Text = t.text[from:to]
		}
		each(i, &raw)
	}
	return nil
}

// Failures implements sampler.Probes.
func (t *Table) Failures(dst []snapshot.Failure) ([]snapshot.Failure, error) {
	for {
		var n C.uint32_t
		rc := C.call_failures(t.c, &t.failures[0], failureRoom, (*C.char)(unsafe.Pointer(&t.text[0])), C.uint32_t(len(t.text)), &n)
		for i := range t.failures[:min(int(n), failureRoom)] {
			c := &t.failures[i]
			f := snapshot.Failure{
				BackendStart: snapshot.Micros(c.backend_start),
				WaitStart:    snapshot.Micros(c.wait_start),
				FailedAt:     snapshot.Micros(c.failed_at),
				Slot:         int32(c.slot),
				Pid:          int32(c.pid),
				Mode:         int32(c.mode),
				Reason:       snapshot.FailReason(c.reason),
				Lost:         uint32(c.lost),
				TextCut:      c.text_cut != 0,
			}
			if from, to := uint64(c.text_offset), uint64(c.text_offset)+uint64(c.text_length); to <= uint64(len(t.text)) {
				f.Text = string(t.text[from:to])
			}
			dst = append(dst, f)
		}
		if rc == C.PLH_TOO_SMALL && n > 0 {
			continue
		}
		return dst, t.result("failures", rc)
	}
}

// Statements implements sampler.Probes.
func (t *Table) Statements(of *sampler.Transaction, dst []sampler.RawStatement) ([]sampler.RawStatement, error) {
	t.transaction = C.PlhTransaction{slot: C.int32_t(of.Slot), pid: C.int32_t(of.Pid), xid: C.uint32_t(of.Xid)}
	if err := t.result("statements", C.call_statements(t.c, &t.transaction, &t.statements[0], C.uint32_t(len(t.statements)),
		(*C.char)(unsafe.Pointer(&t.text[0])), C.uint32_t(len(t.text)))); err != nil {
		return dst, err
	}
	of.BackendStart = snapshot.Micros(t.transaction.backend_start)
	of.XactStart = snapshot.Micros(t.transaction.xact_start)
	of.LeftOut = int64(t.transaction.left_out)
	for i := range t.statements[:min(int(t.transaction.n_statements), len(t.statements))] {
		c := &t.statements[i]
		raw := sampler.RawStatement{
			FirstSeen:     snapshot.Micros(c.first_seen),
			LastSeen:      snapshot.Micros(c.last_seen),
			QueryStart:    snapshot.Micros(c.query_start),
			QueryID:       int64(c.query_id),
			Samples:       int64(c.samples),
			State:         snapshot.State(c.state),
			WaitEventType: terminated((*[len(c.wait_event_type)]byte)(unsafe.Pointer(&c.wait_event_type))[:]),
			WaitEvent:     terminated((*[len(c.wait_event)]byte)(unsafe.Pointer(&c.wait_event))[:]),
		}
		if from, to := uint64(c.text_offset), uint64(c.text_offset)+uint64(c.text_length); to <= uint64(len(t.text)) {
			raw.Text = t.text[from:to]
		}
		dst = append(dst, raw)
	}
	return dst, nil
}

// terminated returns b up to its first NUL.
func terminated(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// chars returns the bytes of a NUL-terminated array of C; they are C's and
// valid until the next call.
func chars(a *[64]C.char) []byte {
	return terminated((*[64]byte)(unsafe.Pointer(a))[:])
}

// Conflicts returns the server's conflict table.
func (t *Table) Conflicts() (lockmgr.Conflicts, error) {
	var masks [16]C.uint32_t
	var conflicts lockmgr.Conflicts
	if err := t.result("conflicts", C.call_conflicts(t.c, &masks[0], C.uint32_t(len(masks)))); err != nil {
		return conflicts, err
	}
	for i := range conflicts {
		conflicts[i] = uint32(masks[i])
	}
	return conflicts, nil
}

// Settings returns settings and server facts as JSON.
func (t *Table) Settings() ([]byte, error) {
	for {
		var length C.uint32_t
		rc := C.call_settings(t.c, (*C.char)(unsafe.Pointer(&t.json[0])), C.uint32_t(len(t.json)), &length)
		if rc == C.PLH_TOO_SMALL && int(length) > len(t.json) {
			t.json = make([]byte, length)
			continue
		}
		if err := t.result("settings", rc); err != nil {
			return nil, err
		}
		return bytes.Clone(t.json[:length]), nil
	}
}

// Log writes one message to the server log.
func (t *Table) Log(m sampler.Message) error {
	data := func(s string) (*C.char, C.uint32_t) {
		return (*C.char)(unsafe.Pointer(unsafe.StringData(s))), C.uint32_t(len(s))
	}
	text, textLen := data(m.Text)
	detail, detailLen := data(m.Detail)
	hint, hintLen := data(m.Hint)
	return t.result("log", C.call_log(t.c, C.int32_t(m.Level), text, textLen, detail, detailLen, hint, hintLen))
}

// Publish shows st to sessions. Busy means: try again later.
func (t *Table) Publish(st *sampler.Status) error {
	c := &t.status
	*c = C.PlhStatus{
		last_flush:      C.int64_t(st.LastFlush),
		recording_since: C.int64_t(st.RecordingSince),
		errors:          C.uint64_t(st.Errors),
		rows_written:    C.uint64_t(st.RowsWritten),
		rows_merged:     C.uint64_t(st.RowsMerged),
		rows_dropped:    C.uint64_t(st.RowsDropped),
		queue_bytes:     C.uint64_t(st.QueueBytes),
		last_error_at:   C.int64_t(st.LastErrorAt),
	}
	fill(c.node[:], st.Node)
	fill(c.target[:], st.Target)
	fill(c.state[:], st.State)
	fill(c.last_error[:], st.LastError)
	fill(c.hint[:], st.Hint)
	return t.result("publish", C.call_publish(t.c, c))
}

// LiveGraph replaces the graph in the live area.
func (t *Table) LiveGraph(g *live.Graph) error {
	return t.result("live graph", C.call_live_graph(t.c, (*C.char)(unsafe.Pointer(unsafe.SliceData(g.Records))),
		C.uint32_t(len(g.Records)), C.uint32_t(g.Rows), C.uint32_t(g.LeftOut), C.int64_t(g.TakenAt)))
}

// LiveWaits adds ended waits to the live area.
func (t *Table) LiveWaits(records []byte, skipped int) error {
	return t.liveRing(C.PLH_RING_WAITS, records, skipped)
}

// LiveLoad adds load to the live area.
func (t *Table) LiveLoad(records []byte, skipped int) error {
	return t.liveRing(C.PLH_RING_LOAD, records, skipped)
}

func (t *Table) liveRing(ring C.uint32_t, records []byte, skipped int) error {
	return t.result("live ring", C.call_live_ring(t.c, ring, (*C.char)(unsafe.Pointer(unsafe.SliceData(records))),
		C.uint32_t(len(records)), C.uint32_t(skipped)))
}

// fill copies s into an array of C, cut to leave room for the closing NUL.
func fill(to []C.char, s string) {
	n := min(len(s), len(to)-1)
	for n > 0 && n < len(s) && s[n]&0xC0 == 0x80 {
		n-- // not in the middle of a character
	}
	for i := 0; i < n; i++ {
		to[i] = C.char(s[i])
	}
	to[n] = 0
}

// Flushed answers flush() up to ticket.
func (t *Table) Flushed(ticket uint64) error {
	return t.result("flushed", C.call_flushed(t.c, C.uint64_t(ticket)))
}

// Activity implements sampler.Probes.
func (t *Table) Activity(finish bool, a *sampler.Activity) error {
	var now C.uint32_t
	if finish {
		now = 1
	}
	for {
		runs, seconds := a.Runs[:cap(a.Runs)], a.Seconds[:cap(a.Seconds)]
		rc := C.call_activity(t.c, now, (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(a.Ours))), C.uint32_t(len(a.Ours)),
			(*C.PlhRun)(unsafe.Pointer(unsafe.SliceData(runs))), C.uint32_t(len(runs)),
			(*C.PlhSecond)(unsafe.Pointer(unsafe.SliceData(seconds))), C.uint32_t(len(seconds)), &t.activity)
		n, m := int(t.activity.n_runs), int(t.activity.n_seconds)
		if rc == C.PLH_TOO_SMALL {
			a.Runs, a.Seconds = make([]snapshot.Run, 0, n+n/4), make([]snapshot.Second, 0, m+8)
			continue
		}
		if rc != C.PLH_OK {
			n, m = 0, 0
		}
		a.Runs, a.Seconds, a.Lost = a.Runs[:n], a.Seconds[:m], int(t.activity.lost)
		return t.result("activity", rc)
	}
}

// FastPath implements sampler.Probes.
func (t *Table) FastPath(finish bool, f *sampler.FastPath) error {
	var now C.uint32_t
	if finish {
		now = 1
	}
	for {
		rows := f.Rows[:cap(f.Rows)]
		rc := C.call_fastpath(t.c, now, (*C.PlhSlotUse)(unsafe.Pointer(unsafe.SliceData(rows))), C.uint32_t(len(rows)), &t.fastpath)
		n := int(t.fastpath.n_rows)
		if rc == C.PLH_TOO_SMALL {
			f.Rows = make([]snapshot.SlotUse, 0, n+n/4)
			continue
		}
		if rc != C.PLH_OK {
			n = 0
		}
		f.Rows, f.Lost = rows[:n], int(t.fastpath.lost)
		f.Slots = history.Slots{Each: int32(t.fastpath.slots), MaxLocks: int32(t.fastpath.max_locks)}
		return t.result("fastpath", rc)
	}
}

// Name implements sampler.Probes.
func (t *Table) Name(kind snapshot.NameKind, number uint32) (string, error) {
	var text [64]C.char
	err := t.result("name", C.call_name(t.c, C.uint32_t(kind), C.uint32_t(number), &text[0], C.uint32_t(len(text))))
	if err != nil {
		return "", err
	}
	return string(chars(&text)), nil
}

// SpareSlot implements sampler.Probes.
func (t *Table) SpareSlot() (bool, error) {
	var spare C.int32_t
	err := t.result("spare slot", C.call_spare_slot(t.c, &spare))
	return spare != 0, err
}

func (t *Table) result(name string, rc C.int32_t) error {
	switch rc {
	case C.PLH_OK:
		return nil
	case C.PLH_BUSY:
		return sampler.ErrBusy
	case C.PLH_TOO_SMALL:
		return fmt.Errorf("probe %s: buffer too small", name)
	default:
		var text [1024]byte
		C.call_last_error(t.c, (*C.char)(unsafe.Pointer(&text[0])), C.uint32_t(len(text)))
		n := bytes.IndexByte(text[:], 0)
		return fmt.Errorf("probe %s: %w", name, errors.New(string(text[:max(n, 0)])))
	}
}
