/*
 * errhook.c
 *		How waits ended that were not granted: each session leaves a record of
 *		every wait of its own that failed, and why.
 *
 * Runs in every process of a server that has preloaded us.  After a wait for a
 * heavyweight lock, MyProc->waitStatus stays at OK or ERROR until the process
 * waits again.  The error of a failed wait is raised when the status is ERROR
 * already and before the process does anything else, so whoever looks at the
 * status in an error sees each failure (two exceptions are named below).  Two
 * places look:
 *
 * - a context callback at the bottom of error_context_stack.  The server calls it
 *	 for every error while it is raised: also for one that log_min_messages or
 *	 client_min_messages hide, and for one that an EXCEPTION block will catch.
 *	 It adds no context.  It is put there in the postmaster and inherited.  A
 *	 process that has recovered from an error has an empty stack, also outside of any
 *	 transaction, and gets it back when the memory of that error is freed; after errors
 *	 within errors, which free it first, at the next end of a transaction.
 * - the callbacks at the abort of a transaction or subtransaction, for
 *	 what may have happened before that.  By then the error is out of reach: such
 *	 a record says "failed" and no more, "terminated" when the process is exiting, or
 *	 what the first place has noted.
 *
 * The exceptions: from 18 on a deadlock that is found before the wait begins leaves the
 * status alone and is known by its error; and some errors leave the process in the
 * queue, and its status at WAITING, until the abort: one that a parallel worker has
 * sent to its waiting leader, from 17 on transaction_timeout, and from 19 on the
 * replay on a standby when it ends the session.  Of these the first
 * place notes why, and the abort tells of it.
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
 * Nothing here waits or takes a lock, and nothing allocates (but gettext, for the
 * error of a parallel worker and the detail of a conflict): an "out of memory" would
 * take the place of the error that is being raised.  To see more of it than its
 * SQLSTATE there is only CopyErrorData(), which copies all of it; it is called
 * when all the texts together fit into memory that was set aside at start
 * (copy_error()).  An error that does not fit is read as it is when it comes by the
 * log hook, before the abort.  One that is caught, or hidden from the log, is told by
 * its SQLSTATE: a deadlock without its members (not at all when the status is not
 * that of its wait, see above), and a cancel or a statement timeout as "failed".
 *
 * On a standby the same place notes statements and sessions that the replay has
 * cancelled and ended, whether they waited or not.
 *
 * A failed wait costs that copy, and the end of a session none (but a look at
 * postmaster.pid); everything else costs a load and a compare, from 18 on a call.
 */
#include "plh.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/timeout.h"

#include "compat.h"

/*
 * Room for the copy of one error, kept with the process.  Smaller: more errors
 * of long statements in functions, which their context quotes, are told by
 * their SQLSTATE alone.  Larger: costs address space; a page is only touched by
 * a process whose wait has failed.
 */
#define ERROR_COPY_ROOM (128 * 1024)

/* Of it, for what is no text: headers, the struct, names of files and functions. */
#define ERROR_COPY_FRAME (8 * 1024)

/* With this block size the context above cuts all chunks from its first block, of any size. */
#define ERROR_COPY_BLOCK (16 * ERROR_COPY_ROOM)

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

/* The server's words for what stood in the way of the replay; the same from 15 to 19. */
static const struct
{
	const char *detail;
	PlhConflict conflict;
}			conflict_words[] =
{
	{"User was holding a relation lock for too long.", PLH_CONFLICT_LOCK},
	{"User query might have needed to see row versions that must be removed.", PLH_CONFLICT_SNAPSHOT},
	{"User was holding shared buffer pin for too long.", PLH_CONFLICT_BUFFER_PIN},
	{"User was or might have been using tablespace that must be dropped.", PLH_CONFLICT_TABLESPACE},
	{"User was connected to a database that must be dropped.", PLH_CONFLICT_DATABASE},
	{"User transaction caused buffer deadlock with recovery.", PLH_CONFLICT_DEADLOCK},
	{"User was using a logical replication slot that must be invalidated.", PLH_CONFLICT_SLOT},
};

/* Of this process: the wait whose failure the abort will tell of, and why that was. */
static TimestampTz noted_start = 0;
static int32 noted_reason = PLH_FAIL_FAILED;

/* Of this process: the error that is being raised did not fit into error_copy, and the log has not seen it yet. */
static bool error_is_unread = false;

static void on_error(void *arg);
static void on_error_over(void *arg);

static ErrorContextCallback bottom = {.previous = NULL, .callback = on_error, .arg = NULL};

/* Of this process: true while the reset of ErrorContext calls on_error_over(), which it does once. */
static bool end_is_awaited = false;
static MemoryContextCallback error_end = {.func = on_error_over, .arg = NULL};

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

/* True while MyProc stands in a queue. */
static inline bool
is_in_queue(void)
{
	return MyProc != NULL && MyProc->waitStatus == PROC_WAIT_STATUS_WAITING && plh_failures != NULL;
}

/* True while MyProc's last wait is a failed one that has not been reported. */
static inline bool
is_new_failure(void)
{
	return wait_has_failed() && get_timeout_start_time(DEADLOCK_TIMEOUT) != reported_start;
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

/*
 * A copy of the error that is being raised, until the next one; NULL when it has
 * more texts than there is room for.  They all are in ErrorContext, so it is
 * known how long they are at most.
 */
static const ErrorData *
copy_error(void)
{
	MemoryContext caller;
	const ErrorData *error;

	if (MemoryContextMemAllocated(ErrorContext, true) > ERROR_COPY_ROOM - ERROR_COPY_FRAME)
		return NULL;
	MemoryContextReset(error_copy);
	caller = MemoryContextSwitchTo(error_copy);
	error = CopyErrorData();
	MemoryContextSwitchTo(caller);
	return error;
}

static bool
is_message(const ErrorData *error, const char *id)
{
	/* The identifier is the text before translation. */
	if (error->message_id != NULL)
		return strncmp(error->message_id, id, strlen(id)) == 0;
	/* An error that a parallel worker has sent has none; the worker speaks our language. */
	return error->message != NULL && strcmp(error->message, _(id)) == 0;
}

/*
 * An error of RAISE has another identifier, and one that was passed on has none: a
 * leader that is told of its worker's deadlock is no victim itself.
 */
static bool
is_deadlock(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED && error->message_id != NULL &&
		is_message(error, "deadlock detected");
}

/* The replay on a standby, with several SQLSTATEs; it also ends sessions. */
static bool
is_conflict(const ErrorData *error)
{
	return is_message(error, "canceling statement due to conflict with recovery") ||
		is_message(error, "terminating connection due to conflict with recovery");
}

/* What the error of a failed wait says of it. */
static int32
reason_of(const ErrorData *error)
{
	if (is_deadlock(error))
		return PLH_FAIL_DEADLOCK;
	if (is_conflict(error))
		return PLH_FAIL_RECOVERY_CONFLICT;
	if (error->elevel >= FATAL)
		return PLH_FAIL_TERMINATED;
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && is_message(error, "canceling statement due to lock timeout"))
		return PLH_FAIL_LOCK_TIMEOUT;
	/* The same SQLSTATE as a cancel's. */
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED && is_message(error, "canceling statement due to statement timeout"))
		return PLH_FAIL_STATEMENT_TIMEOUT;
	/* By a user; autovacuum by the session it blocks. */
	return is_message(error, "canceling ") || is_message(error, "canceling statement due to user request") ?
		PLH_FAIL_CANCELLED : PLH_FAIL_FAILED;
}

/* In a wait these end the session, whatever else the error says. */
static inline bool
ends_session(int code)
{
	return code == ERRCODE_ADMIN_SHUTDOWN || code == ERRCODE_CONNECTION_FAILURE || code == ERRCODE_DATABASE_DROPPED;
}

/* What its SQLSTATE alone says. */
static int32
reason_of_code(int code)
{
	switch (code)
	{
		case ERRCODE_ADMIN_SHUTDOWN:
			return plh_server_is_stopping() ? PLH_FAIL_SERVER_STOP : PLH_FAIL_TERMINATED;
		case ERRCODE_CONNECTION_FAILURE:
			return PLH_FAIL_TERMINATED;
		case ERRCODE_DATABASE_DROPPED:	/* on the primary */
			return PLH_FAIL_RECOVERY_CONFLICT;
		case ERRCODE_T_R_DEADLOCK_DETECTED:
			return PLH_FAIL_DEADLOCK;
		case ERRCODE_LOCK_NOT_AVAILABLE:
			return PLH_FAIL_LOCK_TIMEOUT;
		default:
			return PLH_FAIL_FAILED;
	}
}

/*
 * Start of the wait that has failed.  A deadlock may be found before the wait
 * begins: then the timer is still that of an earlier wait.  Where that is certain,
 * since the earlier one has been reported or is of an earlier statement, this one is
 * told to begin now; where it seems so, the start is 0.  That leaves, before 18, a wait
 * of the same statement whose check has just run: the worker compares what it was for.
 */
static TimestampTz
start_of_failed(int32 reason, TimestampTz now)
{
	TimestampTz start = get_timeout_start_time(DEADLOCK_TIMEOUT);
	TimestampTz checked = get_timeout_finish_time(DEADLOCK_TIMEOUT);

	if (reason != PLH_FAIL_DEADLOCK)
		return start;
	if (!is_new_failure())
		return now;
	if (!PLH_EARLY_DEADLOCK_IS_WAIT)
		return start;
	if (start < GetCurrentStatementStartTimestamp())
		return now;
	return checked <= now && now - checked <= CHECK_RUNS_WITHIN ? start : 0;
}

/* Writes a record; text is the number of its text, 0 for none. */
static void
add_record(int32 reason, TimestampTz now, TimestampTz wait_start, int mode, uint64 text)
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
	record->failed_at = now;
	record->reason = reason;
	record->wait_start = wait_start;
	record->mode = mode;
	record->pid = MyProcPid;
	record->text = text;
	pg_write_barrier();
	pg_atomic_write_u64(&slot->written, n + 1);

	/* A full barrier: whoever sees the news sees the record. */
	(void) pg_atomic_fetch_add_u64(&plh_failures->news, 1);
}

/*
 * Reports the failure of the last wait; detail is the text of a deadlock, or
 * NULL.  has_begun: the timer of this process is that of the wait, as far as
 * start_of_failed() does not know better.
 */
static void
report_failure(int32 reason, const char *detail, bool has_begun)
{
	TimestampTz now = GetCurrentTimestamp();

	add_record(reason, now, has_begun ? start_of_failed(reason, now) : now,
			   PLH_EARLY_DEADLOCK_IS_WAIT || is_new_failure() || !has_begun ? MyProc->waitLockMode : NoLock,
			   detail != NULL ? leave_text(detail) : 0);
	reported_start = get_timeout_start_time(DEADLOCK_TIMEOUT);

	/* Its members go on at once: the sooner they are looked at, the better. */
	if (reason == PLH_FAIL_DEADLOCK)
		plh_wake_worker();
}

/* What describe_self() writes beside the statement takes no more: numbers, and three names of 64 bytes. */
#define PLH_DESCRIPTION_FRAME 512

/*
 * What pg_stat_activity has of this process, one thing a line, the statement
 * last: the session may be gone before the worker can look.
 */
static void
describe_self(char *text, size_t room)
{
	const PgBackendStatus *entry = MyBEEntry;
	char		address[64];
	size_t		whole = strnlen(entry->st_activity_raw, pgstat_track_activity_query_size - 1);
	size_t		used;

	plh_format_address(&entry->st_clientaddr, address, sizeof(address));
	used = snprintf(text, room, "%u\n%u\n%d\n%d\n" INT64_FORMAT "\n" INT64_FORMAT "\n" INT64_FORMAT "\n" INT64_FORMAT "\n%s\n%.95s\n%.64s\n",
					entry->st_databaseid, entry->st_userid, plh_translate_state(entry->st_state),
					whole + PLH_DESCRIPTION_FRAME > room || whole == (size_t) pgstat_track_activity_query_size - 1, /* it may go on */
					(int64) entry->st_query_id,
					(int64) entry->st_xact_start_timestamp, (int64) entry->st_activity_start_timestamp, (int64) entry->st_state_start_timestamp,
					address, MyBgworkerEntry != NULL ? MyBgworkerEntry->bgw_type : GetBackendTypeDesc(MyBackendType), entry->st_appname);
	strlcpy(text + used, entry->st_activity_raw, Min(whole + 1, room - used));
}

/* Reports that the replay has cancelled the statement of this process, or ended it. */
static void
report_conflict(const ErrorData *error)
{
	char		text[PLH_DEADLOCK_TEXT_SIZE];
	int			conflict = PLH_CONFLICT_OTHER;
	int			i;

	for (i = 0; i < lengthof(conflict_words); i++)
		if (error->detail != NULL && strcmp(error->detail, _(conflict_words[i].detail)) == 0)
			conflict = conflict_words[i].conflict;
	if (error->elevel >= FATAL)
		conflict |= PLH_CONFLICT_ENDED;
	text[0] = '\0';
	if (MyBEEntry != NULL)
		describe_self(text, sizeof(text));
	add_record(PLH_FAIL_CONFLICT, GetCurrentTimestamp(), 0, conflict, leave_text(text));
}

/* SQLSTATEs of what report_conflict() is about. */
static inline bool
may_be_conflict(int code)
{
	return code == ERRCODE_T_R_SERIALIZATION_FAILURE || code == ERRCODE_T_R_DEADLOCK_DETECTED ||
		code == ERRCODE_DATABASE_DROPPED;
}

/* On a primary a load and a compare. */
static inline bool
is_on_standby(void)
{
	return MyProc != NULL && plh_failures != NULL && RecoveryInProgress();
}

/*
 * Called for every message that is sent anywhere, while it is made.  A deadlock
 * is always a new failure: it may have been found before its wait began, when
 * the timer does not tell it from the last one.
 */
static void
on_error(void *arg)
{
	const ErrorData *error;
	bool		is_waiting = is_in_queue();
	bool		is_new = is_new_failure();
	bool		on_standby = is_on_standby();
	int32		reason;
	int			code;

	if (!end_is_awaited)
	{
		end_is_awaited = true;
		MemoryContextRegisterResetCallback(ErrorContext, &error_end);
	}

	/* Most messages: no wait has failed or goes on, and no deadlock is found without one. */
	if (!is_new && !is_waiting && PLH_EARLY_DEADLOCK_IS_WAIT && !wait_has_failed() && !on_standby)
		return;
	code = geterrcode();
	if (!is_new && !is_waiting && (code != ERRCODE_T_R_DEADLOCK_DETECTED || MyProc == NULL || plh_failures == NULL) &&
		!(on_standby && may_be_conflict(code)))
		return;

	/* Not an error at all. */
	if (ERRCODE_TO_CATEGORY(code) == ERRCODE_SUCCESSFUL_COMPLETION || ERRCODE_TO_CATEGORY(code) == ERRCODE_WARNING)
		return;

	error = ends_session(code) && !(on_standby && may_be_conflict(code)) ? NULL : copy_error();
	if (error == NULL || error->elevel >= ERROR)
	{
		reason = error != NULL ? reason_of(error) : reason_of_code(code);
		error_is_unread = error == NULL && !ends_session(code);
		/* Its own error: that of a parallel worker, passed on by the leader, has no identifier. */
		if (on_standby && error != NULL && error->message_id != NULL && is_conflict(error))
			report_conflict(error);
		if (is_waiting && reason == PLH_FAIL_RECOVERY_CONFLICT && pg_atomic_read_u64(&MyProc->waitStart) == 0)
		{
			/*
			 * It has a pin that the replay waits for, and is about to wait for
			 * the replay: the server finds that out between joining the queue
			 * and starting the timer, which is that of an earlier wait.
			 */
			report_failure(reason, NULL, false);
		}
		else if (is_waiting || error_is_unread)
		{
			/*
			 * A code that ends a session comes from a parallel worker, since its own takes
			 * a process out of the queue first; but for the replay, which is what it is for both.
			 */
			noted_start = get_timeout_start_time(DEADLOCK_TIMEOUT);
			noted_reason = is_waiting && error == NULL && reason != PLH_FAIL_RECOVERY_CONFLICT ? PLH_FAIL_FAILED : reason;
		}
		else if (is_new || reason == PLH_FAIL_DEADLOCK)
			report_failure(reason, error != NULL && reason == PLH_FAIL_DEADLOCK ? error->detail : NULL, true);
	}
	if (error != NULL)
		MemoryContextReset(error_copy);
}

/*
 * Called for every message that goes to the server log.  An error does when it has
 * passed all who could have caught it, and its transaction has not been aborted yet.
 */
void
plh_see_logged(const ErrorData *error)
{
	int32		reason;

	if (!error_is_unread || error->elevel < ERROR)
		return;
	error_is_unread = false;
	reason = reason_of(error);
	if (is_on_standby() && error->message_id != NULL && is_conflict(error))
		report_conflict(error);
	if (is_in_queue())
		noted_reason = reason;
	else if (is_new_failure() || reason == PLH_FAIL_DEADLOCK)
		report_failure(reason, reason == PLH_FAIL_DEADLOCK ? error->detail : NULL, true);
}

/*
 * Where a process has lost our callback, nothing is below its stack.  One that
 * exits has emptied it on purpose.
 */
static inline void
watch_errors(void)
{
	if (error_context_stack == NULL && !proc_exit_inprogress)
		error_context_stack = &bottom;
}

/* The process has recovered from the error, or it was caught. */
static void
on_error_over(void *arg)
{
	end_is_awaited = false;
	error_is_unread = false;
	watch_errors();
}

/* Why a wait has failed whose error is out of reach. */
static int32
reason_at_abort(void)
{
	int32		noted = noted_start == get_timeout_start_time(DEADLOCK_TIMEOUT) ? noted_reason : PLH_FAIL_FAILED;

	/* An error in a wait ends the process only as its last one. */
	return proc_exit_inprogress && noted != PLH_FAIL_RECOVERY_CONFLICT ? PLH_FAIL_TERMINATED : noted;
}

/* At an abort. */
static inline void
report_unseen(void)
{
	if (is_new_failure())
		report_failure(reason_at_abort(), NULL, true);
}

static void
on_transaction(XactEvent event, void *arg)
{
	watch_errors();
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT)
		report_unseen();
}

static void
on_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		report_unseen();
}

/* In the postmaster, while preloading; every process inherits all of it. */
void
plh_register_error_hooks(void)
{
	error_copy = GenerationContextCreate(TopMemoryContext, "pg_lock_history error",
										 ERROR_COPY_ROOM, ERROR_COPY_ROOM, ERROR_COPY_BLOCK);
	RegisterXactCallback(on_transaction, NULL);
	RegisterSubXactCallback(on_subtransaction, NULL);
	watch_errors();
}
