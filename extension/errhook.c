/*
 * errhook.c
 *		How waits ended that were not granted: each session leaves a record of
 *		every wait of its own that failed, and why.
 *
 * Runs in every process of a server that has preloaded us.  After a wait for a
 * heavyweight lock, MyProc->waitStatus stays at OK or ERROR until the process
 * waits again.  The error of a failed wait is raised when the status is ERROR
 * already and before the process does anything else, so whoever looks at the
 * status in an error sees each failure.  Two places look:
 *
 * - a context callback at the bottom of error_context_stack.  The server calls it
 *	 for every error while it is raised: also for one that log_min_messages or
 *	 client_min_messages hide, and for one that an EXCEPTION block will catch.
 *	 It adds no context.  It is put there in the postmaster and inherited; a
 *	 process that has recovered from an error has an empty stack, and gets it
 *	 back at the next end of a transaction or subtransaction.
 * - the callbacks at the abort of a transaction or subtransaction, for
 *	 what may have happened before that.  By then the error is out of reach: such
 *	 a record says "failed" and no more.
 *
 * (The log hook would be too late and too little: an error that is not logged or
 * that is caught does not come by there.)
 *
 * So: no record of a wait, by the time its process waits again or has left its
 * slot, means that the lock was granted.
 *
 * The wait is named by its start as the server publishes it: the deadlock timer
 * of a process starts with each wait, that time is the published one, and it
 * is still there when the wait is over (PGPROC.waitStart is not).  It also says
 * which failure has been reported: the status stays ERROR, and a later abort of
 * the same transaction is no second failure.
 *
 * Nothing here raises an error, waits or takes a lock.  A failed wait costs a
 * copy of its error, in memory set aside at start (and a look at postmaster.pid
 * when the session was told to end); everything else costs a load and a compare.
 */
#include "plh.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/timeout.h"

#include "compat.h"

/*
 * Room for the copy of one error, kept with the process: no allocation for any
 * but a deadlock of very many.  Costs address space; a page is only touched
 * by a process whose wait has failed.
 */
#define ERROR_COPY_ROOM (64 * 1024)

/*
 * The deadlock check runs when the deadlock timer of the wait goes off, and its
 * error follows at once.  A timer that went off longer ago than this belongs to an
 * earlier wait: the server found this deadlock before it began to wait.
 */
#define CHECK_RUNS_WITHIN (1 * USECS_PER_SEC)

/* Set in the postmaster, inherited by every process; never changed later. */
PlhFailures *plh_failures = NULL;

static MemoryContext error_copy;

/* Of this process: start of the wait that was last reported as failed. */
static TimestampTz reported_start = 0;

static void on_error(void *arg);

static ErrorContextCallback bottom = {.previous = NULL, .callback = on_error, .arg = NULL};

Size
plh_failures_size(void)
{
	return add_size(offsetof(PlhFailures, slots),
					mul_size(sizeof(PlhSlotFailures), PLH_MAX_PROCESSES_AT_REQUEST()));
}

void
plh_start_failures(void)
{
	bool		found;
	uint32		i;

	plh_failures = ShmemInitStruct("pg_lock_history failures", plh_failures_size(), &found);
	if (found)
		return;
	memset(plh_failures, 0, plh_failures_size());
	pg_atomic_init_u64(&plh_failures->news, 0);
	pg_atomic_init_u64(&plh_failures->next_text, 1);
	for (i = 0; i < PLH_DEADLOCK_TEXTS; i++)
		pg_atomic_init_u32(&plh_failures->texts[i].turn, 0);
	for (i = 0; i < PLH_MAX_PROCESSES(); i++)
		pg_atomic_init_u64(&plh_failures->slots[i].written, 0);
}

/* True while MyProc's last wait is a failed one. */
static inline bool
wait_has_failed(void)
{
	return MyProc != NULL && MyProc->waitStatus == PROC_WAIT_STATUS_ERROR && plh_failures != NULL;
}

static inline bool
is_reported(void)
{
	return get_timeout_start_time(DEADLOCK_TIMEOUT) == reported_start;
}

/*
 * Leaves the text of a deadlock for the worker; its number, or 0 when the place
 * for it is being written by somebody else.
 */
static uint64
leave_text(const char *text)
{
	uint64		number = pg_atomic_fetch_add_u64(&plh_failures->next_text, 1);
	PlhDeadlockText *place = &plh_failures->texts[number % PLH_DEADLOCK_TEXTS];
	uint32		turn = pg_atomic_read_u32(&place->turn);

	if ((turn & 1) != 0 || !pg_atomic_compare_exchange_u32(&place->turn, &turn, turn + 1))
		return 0;
	place->number = number;
	place->length = (uint32) strlen(text);
	place->is_cut = place->length > sizeof(place->text);
	place->length = Min(place->length, sizeof(place->text));
	memcpy(place->text, text, place->length);
	pg_write_barrier();
	pg_atomic_write_u32(&place->turn, turn + 2);
	return number;
}

static bool
is_message(const ErrorData *error, const char *id)
{
	/* The identifier is the text before translation. */
	return error->message_id != NULL && strncmp(error->message_id, id, strlen(id)) == 0;
}

/*
 * What the error of a failed wait says of it.  An error of RAISE has another
 * identifier than those of the server.
 */
static int32
reason_of(const ErrorData *error)
{
	/* The replay on a standby, with several SQLSTATEs; it also ends sessions. */
	if (is_message(error, "canceling statement due to conflict with recovery") ||
		is_message(error, "terminating connection due to conflict with recovery"))
		return PLH_FAIL_RECOVERY_CONFLICT;
	if (error->elevel >= FATAL)
		return error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN && plh_server_is_stopping() ?
			PLH_FAIL_SERVER_STOP : PLH_FAIL_TERMINATED;
	if (error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED && is_message(error, "deadlock detected"))
		return PLH_FAIL_DEADLOCK;
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && is_message(error, "canceling statement due to lock timeout"))
		return PLH_FAIL_LOCK_TIMEOUT;
	/* The same SQLSTATE as a cancel's. */
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED && is_message(error, "canceling statement due to statement timeout"))
		return PLH_FAIL_STATEMENT_TIMEOUT;
	/* By a user; autovacuum by the session it blocks. */
	return is_message(error, "canceling ") ? PLH_FAIL_CANCELLED : PLH_FAIL_FAILED;
}

/*
 * Start of the wait that has failed; 0 for a deadlock that was found before the
 * wait began, when the timer is still that of an earlier wait.
 */
static TimestampTz
start_of_failed(int32 reason, TimestampTz now)
{
	TimestampTz start = get_timeout_start_time(DEADLOCK_TIMEOUT);
	TimestampTz checked = get_timeout_finish_time(DEADLOCK_TIMEOUT);

	if (reason == PLH_FAIL_DEADLOCK &&
		(start == reported_start || checked > now || now - checked > CHECK_RUNS_WITHIN))
		return 0;
	return start;
}

/* Writes the record; error is NULL when there is none to be seen. */
static void
report_failure(const ErrorData *error)
{
	PlhSlotFailures *slot;
	PlhFailureRecord *record;
	uint64		n;
	int32		index = plh_slot_of(MyProc);

	if (index < 0 || (uint32) index >= PLH_MAX_PROCESSES())
		return;
	slot = &plh_failures->slots[index];
	n = pg_atomic_read_u64(&slot->written);
	record = &slot->ring[n % PLH_FAILURES_KEPT];

	/* Not before the count that says that this place may be written to. */
	pg_write_barrier();
	record->backend_start = MyStartTimestamp;
	record->failed_at = GetCurrentTimestamp();
	record->reason = error != NULL ? reason_of(error) : PLH_FAIL_FAILED;
	record->wait_start = start_of_failed(record->reason, record->failed_at);
	record->pid = MyProcPid;
	record->mode = MyProc->waitLockMode;
	record->text = record->reason == PLH_FAIL_DEADLOCK && error->detail != NULL ? leave_text(error->detail) : 0;
	pg_write_barrier();
	pg_atomic_write_u64(&slot->written, n + 1);
	reported_start = get_timeout_start_time(DEADLOCK_TIMEOUT);

	/* A full barrier: whoever sees the news sees the record. */
	(void) pg_atomic_fetch_add_u64(&plh_failures->news, 1);

	/* Its members go on at once: the sooner they are looked at, the better. */
	if (record->reason == PLH_FAIL_DEADLOCK)
		plh_wake_worker();
}

/*
 * Called for every message that is sent anywhere, while it is made.  A deadlock
 * is always a new failure: it may have been found before its wait began, when
 * the timer does not tell it from the last one.
 */
static void
on_error(void *arg)
{
	MemoryContext caller;
	ErrorData  *error;
	int			code;

	if (!wait_has_failed())
		return;
	code = geterrcode();
	if (code == ERRCODE_SUCCESSFUL_COMPLETION || (is_reported() && code != ERRCODE_T_R_DEADLOCK_DETECTED))
		return;

	caller = MemoryContextSwitchTo(error_copy);
	error = CopyErrorData();
	if (error->elevel >= ERROR && (!is_reported() || reason_of(error) == PLH_FAIL_DEADLOCK))
		report_failure(error);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(error_copy);
}

/* Where a process has lost our callback, nothing is below its stack. */
static inline void
watch_errors(void)
{
	if (error_context_stack == NULL)
		error_context_stack = &bottom;
}

static void
on_transaction(XactEvent event, void *arg)
{
	if ((event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT) &&
		wait_has_failed() && !is_reported())
		report_failure(NULL);
	watch_errors();
}

static void
on_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && wait_has_failed() && !is_reported())
		report_failure(NULL);
	watch_errors();				/* the error may have ended in a savepoint */
}

/* In the postmaster, while preloading; every process inherits all of it. */
void
plh_register_error_hooks(void)
{
	error_copy = AllocSetContextCreate(TopMemoryContext, "pg_lock_history error",
									   ERROR_COPY_ROOM, ERROR_COPY_ROOM, ERROR_COPY_ROOM);
	RegisterXactCallback(on_transaction, NULL);
	RegisterSubXactCallback(on_subtransaction, NULL);
	watch_errors();
}
