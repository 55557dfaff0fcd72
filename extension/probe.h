/*
 * probe.h
 *		The border between the C shim and the Go library.
 *
 * Only fixed-width numbers cross it: no server header is included here, so one
 * Go source serves every server version.  Buffers belong to the caller (Go),
 * are never kept by C after a call has returned, and contain no pointers.
 * All but last_error return a PlhResult; the text behind PLH_ERROR is fetched
 * with last_error.  All functions may be called on the worker's main thread
 * only, and none lets a server error pass into Go.
 *
 * Wall-clock times are microseconds since 2000-01-01 00:00 UTC, the server's
 * own form; 0 means "not known".  Times named _ns are CLOCK_MONOTONIC.
 *
 * The Go side mirrors these structs in gosrc/snapshot; gosrc/probe refuses to
 * compile when sizes or offsets differ.
 */
#ifndef PLH_PROBE_H
#define PLH_PROBE_H

#include <stdint.h>

/* To be raised when the meaning of something here changes. */
#define PLH_INTERFACE_VERSION 1

typedef enum PlhResult
{
	PLH_OK = 0,
	PLH_ERROR = -1,				/* a server error was caught, see last_error */
	PLH_BUSY = -2,				/* a lock was not free and we do not wait */
	PLH_TOO_SMALL = -3			/* the caller's buffer cannot hold the answer */
} PlhResult;

/* ---- one sweep over the processes: who waits for a heavyweight lock ---- */

typedef enum PlhWaitStatus
{
	PLH_WAITING = 0,
	PLH_ENDED_GRANTED = 1,		/* waits no more, the lock was granted */
	PLH_ENDED_FAILED = 2,		/* waits no more, the lock was not granted */
	PLH_ENDED_UNKNOWN = 3,		/* waits no more, how was not to be seen yet */
	PLH_ENDED_LEFT = 4			/* the process waits again already, or has left the
								 * slot: granted, unless there is a PlhFailure */
} PlhWaitStatus;

typedef struct PlhWait
{
	uint64_t	lock;			/* address of the lock: an identity, nothing more */
	int64_t		wait_start;		/* the server's own, 0 = not yet published */
	int32_t		slot;			/* number of the PGPROC */
	int32_t		pid;
	int32_t		status;			/* PlhWaitStatus */
	uint32_t	wait_event_info;
} PlhWait;

/* Why the wait probe came back; several may be set. */
#define PLH_WAKE_CHANGED	0x01	/* a heavyweight waiter came, changed or went */
#define PLH_WAKE_DEADLINE	0x02	/* the caller's deadline has come */
#define PLH_WAKE_STOP		0x04	/* SIGTERM */
#define PLH_WAKE_RELOAD		0x08	/* the configuration files were read again */
#define PLH_WAKE_FLUSH		0x10	/* a session asked for flush() */
#define PLH_WAKE_NOTIFY		0x20	/* wake_fd was written by a goroutine */
#define PLH_WAKE_STOPPING	0x40	/* postmaster.pid says the server is stopping */
#define PLH_WAKE_POKED		0x80	/* the extension was created in this server */
#define PLH_WAKE_FAILED		0x100	/* there are records of failed waits to be read */
#define PLH_WAKE_ACTIVITY	0x200	/* activity() has rows: a second is complete, or room is short */

/* What the wait probe looks at; several may be set. */
#define PLH_TRACK_LOCKS		0x01	/* who waits for a heavyweight lock; else none is found */
#define PLH_TRACK_LOAD		0x02	/* what every process is doing, see activity() */
#define PLH_TRACK_LWLOCKS	0x04	/* and which LWLock it waits for; with PLH_TRACK_LOAD */
#define PLH_TRACK_PAGES		0x08	/* and which page; with PLH_TRACK_LOAD */

/*
 * Histogram of nanoseconds: bucket i counts values v with i = 4*log2(v) in
 * quarter steps, i.e. four buckets an octave; the last one takes the rest.
 * Bucket 4*k + q holds 2^k * (1 + q/4) <= v < 2^k * (1 + (q+1)/4).
 */
#define PLH_HIST_BUCKETS 160

typedef struct PlhWake
{
	int64_t		now;			/* wall clock of the last sweep */
	int64_t		now_ns;			/* monotonic clock of the last sweep */
	int64_t		previous;		/* the sweep before it, told by the clock of now; 0 = none */
	int64_t		gap_began;		/* wall clock: longest hole between two sweeps */
	int64_t		gap_ended;		/* of this call, 0 when none was over 1 s and 3 periods */
	uint64_t	flush_request;	/* highest flush() ticket seen */
	uint32_t	reasons;		/* PLH_WAKE_* */
	uint32_t	n_found;		/* rows in found: waiters, and known ones that ended */
	uint32_t	n_waiting;		/* of these, still waiting */
	uint32_t	n_lost;			/* rows that found had no room for */
	uint32_t	partitions_taken;	/* to count locks beyond the fast path, see fastpath() */
	uint32_t	partitions_busy;
	uint32_t	unused;
	uint32_t	ticks_done;		/* ticks since the previous return */
	uint32_t	ticks_late;		/* of these, late by over half a period */
	uint32_t	ticks_missed;	/* due, but overtaken by the next one */
	uint32_t	last_sweep_ns;	/* the sweep this answer comes from; not in sweep_hist */
	uint32_t	last_was_tick;	/* 1 when that sweep was a due tick, not an extra one */
	uint32_t	sweep_hist[PLH_HIST_BUCKETS];	/* the quiet sweeps before it */
	uint32_t	hold_hist[PLH_HIST_BUCKETS];	/* time each of partitions_taken was held */
} PlhWake;

/* ---- the heavyweight wait graph ---- */

#define PLH_LOCK_TRUNCATED	0x01	/* holders or queue did not fit */
#define PLH_LOCK_APART		0x02	/* taken at another moment than its neighbours */

typedef struct PlhLock
{
	uint64_t	lock;			/* same identity as in PlhWait */
	uint32_t	field1;			/* LOCKTAG as it is */
	uint32_t	field2;
	uint32_t	field3;
	uint16_t	field4;
	uint8_t		type;
	uint8_t		method;
	uint32_t	first_holder;	/* range in holders */
	uint32_t	n_holders;
	uint32_t	first_queued;	/* range in queue, in queue order */
	uint32_t	n_queued;
	uint32_t	total_granted;	/* the server's own count of granted requests */
	uint32_t	flags;			/* PLH_LOCK_* */
} PlhLock;

#define PLH_HOLDER_PREPARED	0x01	/* a prepared transaction: no process, pid 0 */

typedef struct PlhHolder
{
	int32_t		slot;
	int32_t		pid;			/* 0 for a prepared transaction */
	int32_t		leader_slot;	/* of its lock group, itself when alone */
	int32_t		leader_pid;
	uint32_t	hold_mask;		/* bit (1 << mode) for each mode held */
	uint32_t	xid;			/* prepared transactions only */
	uint32_t	database;		/* prepared transactions only */
	uint32_t	role;			/* prepared transactions only */
	uint32_t	flags;			/* PLH_HOLDER_* */
	uint32_t	unused;
} PlhHolder;

typedef struct PlhQueued
{
	int64_t		wait_start;
	int32_t		slot;
	int32_t		pid;
	int32_t		leader_slot;
	int32_t		leader_pid;
	int32_t		mode;
	uint32_t	unused;
} PlhQueued;

#define PLH_WALK_INSIST		0x01	/* in: wait for a busy partition */
#define PLH_WALK_APART		0x01	/* out: not one moment (over 4 partitions) */
#define PLH_WALK_OVERFLOW	0x02	/* out: a buffer was too small */

typedef struct PlhWalk
{
	int64_t		taken_at;		/* wall clock */
	uint32_t	request;		/* in: PLH_WALK_INSIST */
	uint32_t	flags;			/* out */
	uint32_t	n_locks;
	uint32_t	n_holders;
	uint32_t	n_queued;
	uint32_t	n_moved;		/* waiters whose lock went away before we got there */
	uint32_t	partitions_taken;
	uint32_t	partitions_busy;
	uint32_t	walk_ns;
	uint32_t	unused;
	uint32_t	hold_hist[PLH_HIST_BUCKETS];	/* time each partition was held */
} PlhWalk;

/* ---- the row behind a wait for a transaction ---- */

typedef enum PlhRowStatus
{
	PLH_ROW_FOUND = 1,
	PLH_ROW_NONE = 2,			/* the process holds no lock on a tuple */
	PLH_ROW_GONE = 3			/* it does not wait for that lock any more */
} PlhRowStatus;

typedef struct PlhRow
{
	uint64_t	lock;			/* in, like the next three: the wait as in PlhWait */
	int64_t		wait_start;
	int32_t		slot;
	int32_t		pid;
	int32_t		status;			/* PlhRowStatus */
	uint32_t	database;		/* 0 for a shared relation */
	uint32_t	relation;
	uint32_t	page;
	uint32_t	tuple;
	uint32_t	partitions_taken;
	uint32_t	partitions_busy;
	uint32_t	unused;
} PlhRow;

/* ---- who the participants are ---- */

typedef enum PlhSessionStatus
{
	PLH_SESSION_FOUND = 1,
	PLH_SESSION_GONE = 2,		/* no such process any more */
	PLH_SESSION_TORN = 3		/* changed under every try; ask again */
} PlhSessionStatus;

typedef enum PlhState
{
	PLH_STATE_UNKNOWN = 0,
	PLH_STATE_IDLE = 1,
	PLH_STATE_ACTIVE = 2,
	PLH_STATE_IDLE_IN_TRANSACTION = 3,
	PLH_STATE_FASTPATH = 4,
	PLH_STATE_IDLE_IN_TRANSACTION_ABORTED = 5,
	PLH_STATE_DISABLED = 6,
	PLH_STATE_STARTING = 7
} PlhState;

#define PLH_SESSION_TO_PREVENT_WRAPAROUND 0x01	/* autovacuum that must not yield */

typedef struct PlhSession
{
	int64_t		backend_start;
	int64_t		xact_start;		/* 0 outside a transaction */
	int64_t		query_start;
	int64_t		state_change;
	int64_t		query_id;		/* 0 = none */
	int32_t		slot;			/* in; -1: wherever pid is, and out */
	int32_t		pid;			/* in */
	int32_t		status;			/* PlhSessionStatus */
	int32_t		state;			/* PlhState */
	int32_t		leader_pid;		/* lock group leader, 0 when alone */
	uint32_t	database;
	uint32_t	role;
	uint32_t	flags;			/* PLH_SESSION_* */
	uint32_t	text_offset;	/* of the query text in the text buffer */
	uint32_t	text_length;	/* bytes copied */
	uint32_t	text_cut;		/* 1 when the text may go on */
	uint32_t	unused;
	char		backend_type[64];	/* as in pg_stat_activity, NUL-terminated */
	char		application_name[64];
	char		client_addr[64];	/* numeric; empty for a socket or none */
} PlhSession;

/* ---- what a blocker did before: statements of its transaction, as samples saw them ---- */

typedef struct PlhTransaction
{
	int64_t		backend_start;	/* out: whose statements these are */
	int64_t		xact_start;		/* out */
	int32_t		slot;			/* in: a process, or */
	int32_t		pid;			/* in */
	uint32_t	xid;			/* in: a prepared transaction, 0 = a process */
	uint32_t	n_statements;	/* out: 0 when nothing is known */
	uint32_t	left_out;		/* out: statements seen that had to make room */
	uint32_t	unused;
} PlhTransaction;

typedef struct PlhStatement
{
	int64_t		first_seen;		/* wall clock of the look */
	int64_t		last_seen;
	int64_t		query_start;	/* of its latest run */
	int64_t		query_id;		/* 0 = none */
	uint32_t	samples;
	int32_t		state;			/* PlhState, when last seen */
	uint32_t	text_offset;	/* in the text buffer */
	uint32_t	text_length;	/* bytes copied */
	char		wait_event_type[32];	/* what it was last seen to wait for; empty: was not */
	char		wait_event[64];
} PlhStatement;

/* ---- waits that failed, as their sessions saw it ---- */

typedef enum PlhFailReason
{
	PLH_FAIL_FAILED = 0,		/* not to be told from the error, or it was not seen */
	PLH_FAIL_LOCK_TIMEOUT = 1,
	PLH_FAIL_STATEMENT_TIMEOUT = 2,
	PLH_FAIL_CANCELLED = 3,
	PLH_FAIL_TERMINATED = 4,
	PLH_FAIL_DEADLOCK = 5,
	PLH_FAIL_SERVER_STOP = 6,
	PLH_FAIL_RECOVERY_CONFLICT = 7, /* a standby: in the way of the replay */

	/* Of no wait: the replay has cancelled a statement, or ended a session. */
	PLH_FAIL_CONFLICT = 8
} PlhFailReason;

/* What stood in the way of the replay, in mode of a PLH_FAIL_CONFLICT. */
typedef enum PlhConflict
{
	PLH_CONFLICT_OTHER = 0,		/* the server says it in words of its own */
	PLH_CONFLICT_LOCK = 1,
	PLH_CONFLICT_SNAPSHOT = 2,
	PLH_CONFLICT_BUFFER_PIN = 3,
	PLH_CONFLICT_TABLESPACE = 4,
	PLH_CONFLICT_DATABASE = 5,
	PLH_CONFLICT_DEADLOCK = 6,	/* a buffer pin, while waiting for the replay */
	PLH_CONFLICT_SLOT = 7		/* a logical replication slot */
} PlhConflict;
#define PLH_CONFLICT_ENDED 0x100	/* beside it: the session was ended */

typedef struct PlhFailure
{
	int64_t		backend_start;
	int64_t		wait_start;		/* 0: a deadlock that was found before the wait began, as it seems; for certain: failed_at */
	int64_t		failed_at;
	int32_t		slot;
	int32_t		pid;			/* 0: no record, lost says how many there were */
	int32_t		mode;			/* asked for; PlhConflict */
	int32_t		reason;			/* PlhFailReason */
	uint32_t	lost;			/* records of this slot that were lost before this one */
	uint32_t	text_offset;	/* in the text buffer; deadlocks: the detail of the error; conflicts: see describe_self() */
	uint32_t	text_length;	/* 0 when there is none */
	uint32_t	text_cut;		/* 1 when the text goes on */
} PlhFailure;

/* ---- what every process was doing: load ---- */

/* Backend types are the server's own numbers, and these. */
#define PLH_TYPE_UNKNOWN		(-1)	/* it has not introduced itself yet */
#define PLH_TYPE_PARALLEL_WORKER 1000

/* Which of the locks of a tranche, or which page, a process waited for. */
typedef enum PlhTargetKind
{
	PLH_TARGET_NONE = 0,		/* not looked for */
	PLH_TARGET_UNKNOWN = 1,		/* looked for, and not found */
	PLH_TARGET_SINGLE = 2,		/* the only lock of its tranche */
	PLH_TARGET_PARTITION = 3,	/* number: which partition, from 0 */
	PLH_TARGET_MEMBER = 4,		/* number: which of the locks that an extension asked for, from 0 */
	PLH_TARGET_PROCESS = 5,		/* number: pid whose fast-path lock it is */
	PLH_TARGET_PAGE = 6			/* the page that the rest tells; number: PlhPageRole */
} PlhTargetKind;

/* What a page says that it is; holds for pages of btree indexes only. */
typedef enum PlhPageRole
{
	PLH_ROLE_NONE = 0,			/* nothing, or it is no such page */
	PLH_ROLE_META = 1,
	PLH_ROLE_ROOT = 2,
	PLH_ROLE_INNER = 3,
	PLH_ROLE_LEAF = 4,			/* that has a right neighbour */
	PLH_ROLE_RIGHTMOST_LEAF = 5,
	PLH_ROLE_ONLY_LEAF = 6		/* and root */
} PlhPageRole;

/* All that does not apply is 0, so that equal ones have equal bytes. */
typedef struct PlhTarget
{
	int32_t		kind;			/* PlhTargetKind */
	uint32_t	number;
	uint32_t	tablespace;
	uint32_t	database;		/* 0: shared */
	uint32_t	relfile;		/* number of its file, not its OID */
	int32_t		fork;
	uint32_t	block;
} PlhTarget;

#define PLH_RUN_LWLOCK		0x01	/* counts among LWLock waits */
#define PLH_RUN_PAGE		0x02	/* counts among waits for pages */

/* A process that was active, and did the same all the time. */
typedef struct PlhRun
{
	int64_t		second;			/* wall clock: begin of the second that this is of */
	int64_t		query_id;		/* 0 = none */
	int64_t		time_us;		/* real time that the samples stand for */
	int64_t		ended_us;		/* when it ended in this second: how long it was in all */
	int32_t		slot;
	int32_t		pid;
	uint32_t	wait_event_info;	/* 0 = on CPU */
	int32_t		lwlock_mode;	/* PlhLWLockMode when it waits for one, or for a page; else -1 */
	int32_t		backend_type;
	uint32_t	database;
	uint32_t	role;
	uint32_t	flags;			/* PLH_RUN_* */

	/* What it waited for, with flags set. */
	int64_t		ahead_us;		/* of time_us, when it was seen what stood ahead */
	int64_t		exclusive_us;	/* of these, a process that held it exclusively */
	int64_t		shared_us;		/* the number of those that held it shared, times their time */
	PlhTarget	target;
	uint32_t	waiters_max;	/* at one tick, for the same in the same mode, with this one; not found are all one */
} PlhRun;

typedef enum PlhLWLockMode
{
	PLH_LW_EXCLUSIVE = 0,
	PLH_LW_SHARED = 1,
	PLH_LW_WAIT_UNTIL_FREE = 2, /* waits for somebody else to be done, without taking it */
	PLH_LW_SHARE_EXCLUSIVE = 3	/* alone but for those who hold it shared; pages of 19 */
} PlhLWLockMode;

/* The sums of a second, in session time. */
typedef struct PlhSecond
{
	int64_t		second;			/* wall clock: its begin */
	int64_t		sampled_us;		/* real time that its samples stand for */
	int64_t		clients_us;		/* client backends */
	int64_t		active_us;		/* of these, active */
	int64_t		idle_in_transaction_us;
	int64_t		waiting_us;		/* processes that wait for a heavyweight lock */
	uint32_t	samples;
	uint32_t	unused;
} PlhSecond;

typedef struct PlhActivity
{
	uint32_t	n_runs;
	uint32_t	n_seconds;
	uint32_t	lost;			/* rows that C had no room for */
	uint32_t	unused;
} PlhActivity;

typedef enum PlhNameKind
{
	PLH_NAME_EVENT_TYPE = 1,	/* of a wait_event_info */
	PLH_NAME_EVENT = 2,
	PLH_NAME_BACKEND_TYPE = 3,
	PLH_NAME_TRANCHE = 4		/* of a wait_event_info that counts among LWLock waits */
} PlhNameKind;

/* ---- the fast path: relation locks in slots of each process ---- */

/*
 * What a process was seen with in one second while it ran one statement: the
 * most of each.
 */
typedef struct PlhSlotUse
{
	int64_t		second;			/* wall clock: its begin */
	int64_t		query_id;		/* 0: none, or less than half of its slots were in use */
	int32_t		slot;
	int32_t		pid;
	uint32_t	database;
	uint32_t	role;
	uint32_t	slots_used;
	int32_t		spilled;		/* relation locks that found no slot, at least; -1: not looked for */
	uint32_t	looks;			/* how often it was seen with any */
	uint32_t	looks_full;		/* of these, with no slot left; 18: in one group at least */
} PlhSlotUse;

typedef struct PlhFastPath
{
	uint32_t	n_rows;
	uint32_t	lost;			/* rows that C had no room for */
	uint32_t	slots;			/* that each process has */
	uint32_t	max_locks;		/* max_locks_per_transaction */
} PlhFastPath;

/* ---- what the worker tells sessions through shared memory ---- */

typedef enum PlhLevel
{
	PLH_LOG_DEBUG = 0,
	PLH_LOG_INFO = 1,			/* the server's LOG */
	PLH_LOG_WARNING = 2
} PlhLevel;

typedef struct PlhStatus
{
	int64_t		last_flush;		/* history is complete up to then */
	int64_t		recording_since;	/* 0 when not recording */
	uint64_t	errors;
	uint64_t	rows_written;
	uint64_t	rows_merged;
	uint64_t	rows_dropped;
	uint64_t	queue_bytes;
	char		node[192];		/* name of this server in the history */
	char		target[256];	/* where history is written; no secrets */
	char		state[32];		/* one word or two: recording, disabled, ... */
	char		last_error[512];	/* empty when none since the last success */
	int64_t		last_error_at;
	char		hint[512];		/* what to do about the state, may be empty */
} PlhStatus;

/* ---- the live area: what blocking_now, recent_waits() and recent_load() show ---- */

/*
 * A row for sessions: this prefix, then n_fields fields without padding, each
 * a kind byte and its value.  Go writes it, a session that reads takes it
 * apart by the columns of its row type (live_read.c).  Numbers are in the
 * machine's own byte order and not aligned.
 */
typedef struct PlhRecord
{
	uint32_t	length;			/* of all, this prefix included */
	uint32_t	role;			/* whose texts these are; 0 = not known: nobody's */
	int64_t		at;				/* end of an ended wait, begin of a second, 0 in the graph */
	uint32_t	n_fields;
	uint32_t	unused;
} PlhRecord;

typedef enum PlhField
{
	PLH_FIELD_NULL = 0,
	PLH_FIELD_INT = 1,			/* int64: numbers, oid, xid, bool, times */
	PLH_FIELD_INTS = 2,			/* uint32 count, then int32 each */
	PLH_FIELD_TEXT = 3			/* uint32 length, then UTF-8 */
} PlhField;

#define PLH_RING_WAITS	0		/* ended waits */
#define PLH_RING_LOAD	1		/* load by second */
#define PLH_RINGS		2

/* Set in the kind byte: shown to members of role and readers of all statistics only. */
#define PLH_FIELD_PRIVATE 0x80

/*
 * The table that C hands to Go.  self is passed back as it is.  wake_fd is an
 * eventfd: any thread may write 8 bytes to it to make wait() come back.
 */
typedef struct PlhProbes
{
	uint32_t	interface_version;	/* PLH_INTERFACE */
	int32_t		wake_fd;
	uint32_t	max_processes;	/* slots there are; no sweep finds more */
	uint32_t	graph_room;		/* bytes that live_graph can take */
	uint32_t	waits_room;		/* bytes of ended waits that are kept */
	uint32_t	load_room;		/* and of load */

	/*
	 * Sleeps and sweeps with the given period until one of PLH_WAKE_* holds.
	 * known: the waiters of the previous answer, in slot order.  found has
	 * room for 2 * max_processes rows at most; rows come in slot order, an
	 * ended wait before a new one of the same process.  period_ns 0 means
	 * that no ticks are wanted (disabled).  deadline_ns is CLOCK_MONOTONIC.
	 * track: PLH_TRACK_*.
	 */
	int32_t		(*wait) (int64_t period_ns, int64_t deadline_ns, uint32_t track,
						 const PlhWait *known, uint32_t n_known,
						 PlhWait *found, uint32_t found_room, PlhWake *wake);

	/* Copies the locks that the given processes wait for. */
	int32_t		(*locks) (const PlhWait *waits, uint32_t n_waits,
						  PlhLock *locks, uint32_t locks_room,
						  PlhHolder *holders, uint32_t holders_room,
						  PlhQueued *queue, uint32_t queue_room,
						  PlhWalk *walk);

	/*
	 * Finds the tuple that a waiting process has locked: whoever waits for a
	 * row's transaction holds that lock meanwhile.  PLH_BUSY when it may be in
	 * a partition that was not free.
	 */
	int32_t		(*row) (PlhRow *row);

	/* Fills in the given sessions; at most text_each bytes of text for each. */
	int32_t		(*sessions) (PlhSession *sessions, uint32_t n_sessions,
							 char *text, uint32_t text_room, uint32_t text_each);

	/* conflict[mode] is the mask of modes that conflict with mode 1..8. */
	int32_t		(*conflicts) (uint32_t *conflict, uint32_t room);

	/* Settings and facts about the server as one JSON object; *length is what it needs. */
	int32_t		(*settings) (char *json, uint32_t room, uint32_t *length);

	/* Writes one message to the server log; detail and hint may be empty. */
	int32_t		(*log) (int32_t level, const char *message, uint32_t message_length,
						const char *detail, uint32_t detail_length,
						const char *hint, uint32_t hint_length);

	int32_t		(*publish) (const PlhStatus *status);

	/*
	 * Replaces the graph that sessions see: rows records; left_out waiters had
	 * no room.  taken_at is when the locks were copied.
	 */
	int32_t		(*live_graph) (const char *records, uint32_t length, uint32_t rows,
							   uint32_t left_out, int64_t taken_at);

	/*
	 * Adds records to a ring (PLH_RING_*), oldest first; the oldest ones there
	 * make room.  skipped more did not get this far and count as overwritten.
	 * PLH_TOO_SMALL also for bytes that are no records.
	 */
	int32_t		(*live_ring) (uint32_t ring, const char *records, uint32_t length, uint32_t skipped);

	/* Wakes the sessions whose flush() ticket is not above this one. */
	int32_t		(*flushed) (uint64_t ticket);

	/* Text of the last PLH_ERROR; returns its length. */
	int32_t		(*last_error) (char *text, uint32_t room);

	/*
	 * *spare is 1 when more client slots are free than are reserved, so that a
	 * session of ours would not take one that a DBA may need; otherwise 0.
	 */
	int32_t		(*spare_slot) (int32_t *spare);

	/*
	 * Hands over the records of failed waits that are new since the last call,
	 * slot by slot, oldest first.  PLH_TOO_SMALL: there are more, call again.
	 */
	int32_t		(*failures) (PlhFailure *failures, uint32_t room,
							 char *text, uint32_t text_room, uint32_t *n_failures);

	/*
	 * Hands over what was noted since the last call: the runs of complete
	 * seconds and, when room became short, of the one that goes on.  finish:
	 * that one counts as complete, too.  PLH_TOO_SMALL leaves all in place and
	 * says what is needed.  ours: pids of our own sessions from now on; they
	 * have runs, but do not count in waiters_max.
	 */
	int32_t		(*activity) (uint32_t finish, const int32_t *ours, uint32_t n_ours,
							 PlhRun *runs, uint32_t runs_room,
							 PlhSecond *seconds, uint32_t seconds_room,
							 PlhActivity *answer);

	/* The server's name for a number; empty when it has none. */
	int32_t		(*name) (uint32_t kind, uint32_t number, char *text, uint32_t room);

	/*
	 * What has been seen of the transaction that a process is in, or of a
	 * prepared one, in no order.
	 */
	int32_t		(*statements) (PlhTransaction *transaction, PlhStatement *statements, uint32_t room,
							   char *text, uint32_t text_room);

	/*
	 * Hands over the use of the fast path in the seconds that are complete;
	 * finish: the one that goes on, too.  Of a second in which every process
	 * had over half of its slots free there are no rows.  PLH_TOO_SMALL leaves
	 * all in place and says what is needed.
	 */
	int32_t		(*fastpath) (uint32_t finish, PlhSlotUse *rows, uint32_t room, PlhFastPath *answer);
} PlhProbes;

/*
 * What both libraries must agree on, or the worker refuses to run: the version
 * above, and the layout of everything here as far as sizes tell.
 */
#define PLH_LAYOUT \
	(sizeof(PlhWait) + 3 * sizeof(PlhWake) + 5 * sizeof(PlhLock) + 7 * sizeof(PlhHolder) + \
	 11 * sizeof(PlhQueued) + 13 * sizeof(PlhWalk) + 17 * sizeof(PlhSession) + \
	 19 * sizeof(PlhStatus) + 23 * sizeof(PlhProbes) + 29 * sizeof(PlhRecord) + 31 * sizeof(PlhRow) + \
	 37 * sizeof(PlhFailure) + 41 * sizeof(PlhRun) + 43 * sizeof(PlhSecond) + 47 * sizeof(PlhActivity) + \
	 53 * sizeof(PlhTransaction) + 59 * sizeof(PlhStatement) + \
	 61 * sizeof(PlhSlotUse) + 67 * sizeof(PlhFastPath))
#define PLH_INTERFACE ((uint32_t) (PLH_INTERFACE_VERSION << 20 | (PLH_LAYOUT & 0xfffff)))

/*
 * What the Go library exports.  plh_interface_version() is asked first and
 * returns PLH_INTERFACE; plh_run() returns when the worker has to stop: 0 when all is written, 1
 * when the Go side gave up (its last message is in the log).
 */
typedef uint32_t (*PlhInterfaceVersionFunction) (void);
typedef int32_t (*PlhRunFunction) (PlhProbes *probes);

#endif							/* PLH_PROBE_H */
