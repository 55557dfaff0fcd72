/*
 * plh.h
 *		What the files of the shim share.
 */
#ifndef PLH_H
#define PLH_H

#include "postgres.h"

#include "compat.h"

#include <signal.h>

#include "lib/stringinfo.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/timestamp.h"

#include "probe.h"

/* ---- guc.c: settings; written by the server's own machinery ---- */

extern bool plh_enable_query_id;
extern char *plh_database;
extern char *plh_conninfo;
extern int	plh_shared_memory;
extern double plh_hot_page_budget;

extern void plh_define_settings(void);
extern bool plh_log_level_allows(int32 level);

extern void plh_append_settings(StringInfo out);

/* ---- shmem.c: what the worker and the sessions tell each other ---- */

typedef struct PlhShared
{
	/* Set once when shared memory is made. */
	LWLock	   *lock;

	/*
	 * Written by the worker, read by sessions; both hold lock.  While it
	 * samples the worker takes it only when it is free (plh_probe_publish).
	 */
	PlhStatus	status;

	/*
	 * The worker's process: slot of its PGPROC (PLH_NO_SLOT for none), its
	 * pid (0 for none), and its start.  Written by the worker when it starts
	 * and ends, read by anybody.
	 */
	pg_atomic_uint32 worker_slot;
	pg_atomic_uint32 worker_pid;
	pg_atomic_uint64 worker_start;

	/* Written by the worker at each sweep; readers may lag. */
	pg_atomic_uint64 last_tick;
	pg_atomic_uint32 slots_watched;

	/*
	 * flush() takes a ticket from flush_requested; the worker sets
	 * flush_done to the highest ticket answered and wakes flushed.
	 */
	pg_atomic_uint64 flush_requested;
	pg_atomic_uint64 flush_done;
	ConditionVariable flushed;

	/* Raised by the session that committed CREATE EXTENSION, taken by the worker. */
	pg_atomic_uint32 poked;

	/*
	 * Lives of the worker that ended within a minute of their start, in a
	 * row.  Written by the worker only; paces restarts.
	 */
	pg_atomic_uint32 short_lives;
} PlhShared;

#define PLH_NO_SLOT PG_UINT32_MAX

/* ---- slots.c: which slots of the process array are worth a look ---- */

/* Slots from one up to another (excluded) that nobody has been in; the worker's own. */
typedef struct PlhHole
{
	uint32		from;
	uint32		to;
} PlhHole;

extern PlhHole plh_hole;

extern void plh_prepare_slots(void);
extern void plh_choose_slots(int64 now_ns);
extern void plh_take_in(uint32 slot);
extern uint32 plh_slots_watched(void);

/* Slot i, or the next one that is to be looked at: for (i = plh_slot(0); ...; i = plh_slot(i + 1)). */
static inline uint32
plh_slot(uint32 i)
{
	return i == plh_hole.from ? plh_hole.to : i;
}

/* ---- errhook.c: waits that failed, as their sessions saw it ---- */

/*
 * Records kept for each slot, one less of them to be read: bounds how many
 * failed waits of one session the worker learns of between two of its looks.
 */
#define PLH_FAILURES_KEPT 8

/* Written by the process in the slot, see written; the worker copies and checks. */
typedef struct PlhFailureRecord
{
	TimestampTz backend_start;
	TimestampTz wait_start;		/* 0: the wait had not begun, as it seems; failed_at: for certain */
	TimestampTz failed_at;
	uint64		text;			/* number of its PlhDeadlockText, 0 for none */
	int32		pid;
	int16		mode;
	int16		reason;			/* PlhFailReason */
} PlhFailureRecord;

typedef struct PlhSlotFailures
{
	/*
	 * Records written so far; the next one goes to ring[written %
	 * PLH_FAILURES_KEPT].  Written by the process in the slot alone, after the record
	 * and a barrier, and goes on with the next process; read by the worker.
	 */
	pg_atomic_uint64 written;
	PlhFailureRecord ring[PLH_FAILURES_KEPT];
} PlhSlotFailures;

/* Deadlocks between two looks of the worker whose text is not lost. */
#define PLH_DEADLOCK_TEXTS 32
#define PLH_DEADLOCK_TEXT_SIZE 4096

typedef struct PlhDeadlockText
{
	/*
	 * Odd while the text is being written.  A session makes it odd by
	 * compare-and-swap, or gives up; so there is one writer at a time, and a
	 * reader that finds it even and the same before and after has a good copy.
	 */
	pg_atomic_uint32 turn;

	/* All below are written by the session that made turn odd. */
	uint32		length;
	uint64		number;			/* which of all texts it is */
	bool		is_cut;
	char		text[PLH_DEADLOCK_TEXT_SIZE];	/* the detail of the error, no NUL */
} PlhDeadlockText;

typedef struct PlhFailures
{
	/* Raised by any session after each record; the sweep reads it. */
	pg_atomic_uint64 news;

	/* Number of the next text; taken by any session. */
	pg_atomic_uint64 next_text;

	PlhDeadlockText texts[PLH_DEADLOCK_TEXTS];
	PlhSlotFailures slots[FLEXIBLE_ARRAY_MEMBER];	/* by number of the PGPROC */
} PlhFailures;

/* NULL when the library was not preloaded. */
extern PlhFailures *plh_failures;

extern Size plh_failures_size(void);
extern void plh_start_failures(void);
extern void plh_register_error_hooks(void);
extern void plh_see_logged(const ErrorData *error);

/* ---- loghook.c ---- */

extern void plh_register_log_hook(void);

/* The worker's side, in probe_failures.c. */
extern bool plh_failures_are_news(void);

/* NULL when the library was not preloaded. */
extern PlhShared *plh_shared;

extern void plh_register_shmem(void);
extern void plh_wake_worker(void);

/* ---- live.c: the area that holds the latest graph, ended waits and load ---- */

typedef enum PlhSection
{
	PLH_SECTION_GRAPH,
	PLH_SECTION_WAITS,			/* the rings, in the order of PLH_RING_* */
	PLH_SECTION_LOAD,
	PLH_SECTIONS
} PlhSection;

typedef struct PlhGraphFacts
{
	TimestampTz taken_at;		/* 0 when there was none yet */
	uint32		length;			/* bytes */
	uint32		rows;
	uint32		left_out;		/* waiters that had no room */
} PlhGraphFacts;

typedef struct PlhRingFacts
{
	uint64		records;		/* that are there */
	uint64		overwritten;	/* and that are there no more */
	TimestampTz oldest;			/* time of the first that is there, 0 when none is */
} PlhRingFacts;

typedef struct PlhLiveFacts
{
	PlhGraphFacts graph;
	PlhRingFacts waits;
	PlhRingFacts load;
} PlhLiveFacts;

/* What one reader has copied. */
typedef struct PlhLiveCopy
{
	PlhLiveFacts facts;
	char		node[sizeof(((PlhStatus *) 0)->node)];
	char	   *data[PLH_SECTIONS]; /* NULL when not asked for; rings oldest first */
	size_t		length[PLH_SECTIONS];
} PlhLiveCopy;

extern Size plh_live_size(void);
extern void plh_init_live(void);
extern void plh_live_rooms(uint32_t *graph_room, uint32_t *waits_room, uint32_t *load_room);
extern void plh_read_live_facts(PlhLiveFacts *facts);
extern void plh_copy_live(PlhLiveCopy *copy, uint32 sections);

extern int32_t plh_probe_live_graph(const char *records, uint32_t length, uint32_t rows,
									uint32_t left_out, int64_t taken_at);
extern int32_t plh_probe_live_ring(uint32_t ring, const char *records, uint32_t length, uint32_t skipped);

/* ---- sqlfuncs.c ---- */

#define PLH_PRELOAD_HINT "Add pg_lock_history to shared_preload_libraries in postgresql.conf and restart the server."

extern char *plh_fit_encoding(const char *text);

/* ---- worker.c ---- */

extern void plh_register_worker(void);
extern PGDLLEXPORT void plh_worker_main(Datum arg);
extern bool plh_server_is_stopping(void);

/* The worker's role of OID 10, read once at start; empty when it could not be. */
extern const char *plh_bootstrap_role(void);

/* Up to when the life before this one had written its history; 0 when there was none. */
extern TimestampTz plh_previous_flush(void);

/* ---- goload.c ---- */

extern bool plh_load_go(char *error, size_t error_room, const char **hint);
extern int	plh_run_go(PlhProbes *probes);

/*
 * Every probe that reads or writes what others may touch stands between these two.  A death of the Go runtime that was
 * noticed meanwhile is carried out when the probe leaves.
 */
extern void plh_enter_probe(void);
extern void plh_leave_probe(void);

/* The wait probe lets signals in and is not watched by the watchdog. */
extern void plh_enter_wait(void);
extern void plh_leave_wait(void);

/* A shutdown request was taken by the wait probe: Go now has a grace period. */
extern void plh_alert_watchdog(void);

/* True when the wait probe has to come back because Go has died. */
extern bool plh_go_has_died(void);

/* ---- probe_*.c: the table handed to Go ---- */

extern void plh_prepare_wait_probe(void);
extern void plh_prepare_lock_probe(void);
extern void plh_prepare_session_probe(void);
extern void plh_prepare_failure_probe(void);
extern void plh_prepare_activity_probe(void);
extern void plh_prepare_fastpath_probe(void);

/*
 * True when the slot is taken by the process pid, which lives.  Before 17 a slot
 * keeps the pid of a process that has ended; the owner of the latch is what
 * tells.  It is set last when a process starts.
 */
static inline bool
plh_is_alive(const PGPROC *proc, int pid)
{
	int			owner = *(const volatile int *) &proc->procLatch.owner_pid;

	pg_read_barrier();
	return owner != 0 && owner == pid && *(const volatile int *) &proc->pid == pid;
}

/* probe_activity.c, called by the wait probe. */
extern bool plh_note_activity(int64 now, int64 now_ns, int64 period_ns, uint32 track);
extern void plh_forget_activity(void);

extern void plh_prepare_statement_probe(void);

/* probe_statements.c, called by the wait probe. */
extern void plh_look_at_statements(int64 at, int64 now_ns);
/* probe_fastpath.c, the same; and the budget that the row probe shares with it. */
extern void plh_note_fastpath(PlhWake *wake, int64 period_ns);
extern void plh_forget_fastpath(void);
extern void plh_count_partitions(uint32 taken);
/* A process that waits for an LWLock or a page at the tick that goes on. */
typedef struct PlhWaiter
{
	uint32		slot;
	int			pid;
	uint32		event;
	uint32		lxid;
	int32		mode;			/* PlhLWLockMode, -1 when it waits for a pin */
	uint8		raw_mode;		/* the same as its lwWaitMode */
	uint32		flags;			/* PLH_RUN_*: what is looked for */

	/* What is found. */
	PlhTarget	target;
	bool		ahead_known;
	bool		exclusive;		/* held exclusively */
	uint32		shared;			/* held shared, so often */
	uint32		together;		/* waiters for the same in the same mode */
} PlhWaiter;

/* Waiters of one tick; place finds one by its slot. */
typedef struct PlhWaiters
{
	PlhWaiter  *all;
	uint32		n;
	uint32	   *place;			/* index in all + 1, by slot; 0: does not wait */
} PlhWaiters;

/* probe_lwlocks.c, called at each tick with a waiter by probe_activity.c. */
extern void plh_prepare_lwlocks(void);
extern void plh_find_lwlocks(PlhWaiters *waiters);

/* A lock that processes queue up for: an LWLock, or that on the content of a page. */
typedef struct PlhQueue
{
	uint32		event;			/* of those who wait; PLH_CONTENT_EVENT for a page, whatever their mode */
	const proclist_head *waiters;
	const void *lock;
	PlhHolders	(*holders) (const void *lock);
} PlhQueue;

extern uint32 plh_place_queue(PlhWaiters *waiters, const PlhQueue *queue, int head, const PlhTarget *target);

/* First process in the queue of a lock; no number of a process when there is none. */
static inline int
plh_queue_head(const proclist_head *waiters)
{
	return *(const volatile int *) &waiters->head;
}

/* probe_buffers.c, the same. */
extern void plh_prepare_pages(void);
extern bool plh_waits_for_page(uint32 event);
extern void plh_find_pages(PlhWaiters *waiters);

extern int	plh_wake_fd(void);

extern int32_t plh_probe_wait(int64_t period_ns, int64_t deadline_ns, uint32_t track,
							  const PlhWait *known, uint32_t n_known,
							  PlhWait *found, uint32_t found_room, PlhWake *wake);
extern int32_t plh_probe_locks(const PlhWait *waits, uint32_t n_waits,
							   PlhLock *locks, uint32_t locks_room,
							   PlhHolder *holders, uint32_t holders_room,
							   PlhQueued *queue, uint32_t queue_room,
							   PlhWalk *walk);
extern int32_t plh_probe_row(PlhRow *row);
extern int32_t plh_probe_sessions(PlhSession *sessions, uint32_t n_sessions,
								  char *text, uint32_t text_room, uint32_t text_each);
extern int32_t plh_probe_conflicts(uint32_t *conflict, uint32_t room);
extern int32_t plh_probe_settings(char *json, uint32_t room, uint32_t *length);
extern int32_t plh_probe_log(int32_t level, const char *message, uint32_t message_length,
							 const char *detail, uint32_t detail_length,
							 const char *hint, uint32_t hint_length);
extern int32_t plh_probe_publish(const PlhStatus *status);
extern int32_t plh_probe_flushed(uint64_t ticket);
extern int32_t plh_probe_failures(PlhFailure *failures, uint32_t room,
								  char *text, uint32_t text_room, uint32_t *n_failures);
extern int32_t plh_probe_activity(uint32_t finish, const int32_t *ours, uint32_t n_ours,
								  PlhRun *runs, uint32_t runs_room,
								  PlhSecond *seconds, uint32_t seconds_room, PlhActivity *answer);
extern int32_t plh_probe_name(uint32_t kind, uint32_t number, char *text, uint32_t room);
extern int32_t plh_probe_statements(PlhTransaction *transaction, PlhStatement *statements, uint32_t room,
									char *text, uint32_t text_room);
extern int32_t plh_probe_fastpath(uint32_t finish, PlhSlotUse *rows, uint32_t room, PlhFastPath *answer);
extern int32_t plh_probe_last_error(char *text, uint32_t room);
extern int32_t plh_probe_spare_slot(int32_t *spare);

/* Members of a JSON object; out ends with the object's "{" or its last member. */
extern void plh_json_string(StringInfo out, const char *key, const char *value);
extern void plh_json_int(StringInfo out, const char *key, int64 value);
extern void plh_json_real(StringInfo out, const char *key, double value);
extern void plh_json_bool(StringInfo out, const char *key, bool value);

/* In probe_sessions.c: the status entry of a process, NULL when there is none. */
extern PgBackendStatus *plh_status_entry(const PGPROC *proc, int pid);
extern int32_t plh_translate_state(BackendState state);
extern void plh_format_address(const SockAddr *addr, char *to, size_t room);

/* Keeps the caught server error for last_error; call inside PG_CATCH. */
extern void plh_keep_error(MemoryContext context);

/* CLOCK_MONOTONIC in nanoseconds. */
extern int64 plh_monotonic_ns(void);

/* Adds one value to a histogram of PLH_HIST_BUCKETS (see probe.h). */
static inline void
plh_hist_add(uint32_t *hist, uint64 ns)
{
	int			octave,
				bucket;

	if (ns < 4)
		ns = 4;					/* quarter steps need two more bits */
	octave = 63 - __builtin_clzll(ns);
	bucket = 4 * octave + (int) ((ns >> (octave - 2)) & 3);
	hist[bucket < PLH_HIST_BUCKETS ? bucket : PLH_HIST_BUCKETS - 1]++;
}

#endif							/* PLH_H */
