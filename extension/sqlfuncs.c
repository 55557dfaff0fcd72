/*
 * sqlfuncs.c
 *		Functions that sessions call.  They read the shared area under its own
 *		lock and wait for nobody else's.  When the library was not preloaded
 *		each says so, with what to do.
 */
#include "plh.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(plh_worker_status);
PG_FUNCTION_INFO_V1(plh_flush);
PG_FUNCTION_INFO_V1(plh_announce);
PG_FUNCTION_INFO_V1(plh_mode_conflicts);

/* This session's own: CREATE EXTENSION ran in the current transaction. */
static bool poke_at_commit = false;

typedef struct Rows
{
	Tuplestorestate *store;
	TupleDesc	description;
} Rows;

/*
 * The worker writes UTF-8, perhaps cut in the middle of a character, and has
 * no database whose encoding it could know.  What this one cannot hold for
 * sure is shown as question marks.
 */
char *
plh_fit_encoding(const char *text)
{
	char	   *copy = pstrdup(text);
	char	   *c;

	if (GetDatabaseEncoding() == PG_UTF8 &&
		pg_verify_mbstr(PG_UTF8, copy, strlen(copy), true))
		return copy;
	for (c = copy; *c; c++)
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	return copy;
}

static void
put_text(Rows *rows, const char *key, const char *value)
{
	Datum		values[2];
	bool		nulls[2] = {false, false};

	values[0] = CStringGetTextDatum(key);
	if (value != NULL && value[0] != '\0')
		values[1] = CStringGetTextDatum(plh_fit_encoding(value));
	else
	{
		values[1] = (Datum) 0;
		nulls[1] = true;
	}
	tuplestore_putvalues(rows->store, rows->description, values, nulls);
}

static void
put_time(Rows *rows, const char *key, TimestampTz time)
{
	put_text(rows, key, time == 0 ? NULL :
			 DatumGetCString(DirectFunctionCall1(timestamptz_out, TimestampTzGetDatum(time))));
}

static void
put_count(Rows *rows, const char *key, uint64 count)
{
	put_text(rows, key, psprintf(UINT64_FORMAT, count));
}

/*
 * What blocking_now and recent_waits() would show.  While nobody waits no graph
 * is published, but each sweep says that there is none (or, for a tick or two
 * while a reader keeps the area, that the first one is still to come).
 */
static void
put_live(Rows *rows)
{
	PlhLiveFacts facts;
	TimestampTz as_of;

	plh_read_live_facts(&facts);
	as_of = facts.graph.taken_at;
	if (as_of != 0 && facts.graph.rows == 0 && facts.graph.left_out == 0)
		as_of = Max(as_of, (TimestampTz) pg_atomic_read_u64(&plh_shared->last_tick));
	put_time(rows, "live_as_of", as_of);
	put_text(rows, "live_waits",
			 facts.waits.records == 0 ? psprintf("none, " UINT64_FORMAT " overwritten", facts.waits.overwritten) :
			 psprintf(UINT64_FORMAT " that ended since %s, " UINT64_FORMAT " overwritten", facts.waits.records,
					  DatumGetCString(DirectFunctionCall1(timestamptz_out, TimestampTzGetDatum(facts.waits.oldest))),
					  facts.waits.overwritten));
	put_time(rows, "live_load_since", facts.load.oldest);
	put_count(rows, "live_left_out", facts.graph.left_out);
}

/*
 * True in a database that has the extension but not the history, as far as
 * that is known here: conninfo may lead anywhere.
 */
static bool
history_is_elsewhere(void)
{
	const char *here = get_database_name(MyDatabaseId);

	return plh_conninfo[0] == '\0' && here != NULL && strcmp(here, plh_database) != 0;
}

Datum
plh_worker_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result;
	Rows		rows;
	PlhStatus	status;
	uint32		pid;

	InitMaterializedSRF(fcinfo, 0);
	result = (ReturnSetInfo *) fcinfo->resultinfo;
	rows.store = result->setResult;
	rows.description = result->setDesc;

	if (plh_shared == NULL)
	{
		put_text(&rows, "state", "not preloaded");
		put_text(&rows, "hint", PLH_PRELOAD_HINT);
		put_text(&rows, "version", PLH_VERSION);
		return (Datum) 0;
	}

	/* Copy under the lock, format afterwards. */
	LWLockAcquire(plh_shared->lock, LW_SHARED);
	status = plh_shared->status;
	LWLockRelease(plh_shared->lock);
	pid = pg_atomic_read_u32(&plh_shared->worker_pid);

	if (pid == 0)
	{
		put_text(&rows, "state", "not running");
		put_text(&rows, "hint",
				 pg_atomic_read_u64(&plh_shared->worker_start) == 0 ?
				 "The worker has not run since the server was started. When that stays so, there was no slot for it: raise max_worker_processes and restart the server." :
				 "The worker starts again by itself, within a minute at most; when it does not, the server log tells why.");
	}
	else
	{
		put_text(&rows, "state", status.state[0] ? status.state : "starting");
		if (status.hint[0] == '\0' && history_is_elsewhere())
			put_text(&rows, "hint", psprintf("The history is in database \"%s\", not in this one.", plh_database));
		else
			put_text(&rows, "hint", status.hint);
	}
	put_text(&rows, "version", PLH_VERSION);
	put_text(&rows, "pid", pid == 0 ? NULL : psprintf("%u", pid));
	put_text(&rows, "node", status.node);
	put_text(&rows, "database", plh_database);
	put_text(&rows, "writes_to", pid == 0 ? NULL : status.target);
	put_text(&rows, "sample_period", GetConfigOptionByName("pg_lock_history.sample_period", NULL, false));
	put_time(&rows, "running_since", pid == 0 ? 0 : (TimestampTz) pg_atomic_read_u64(&plh_shared->worker_start));
	put_time(&rows, "recording_since", status.recording_since);
	put_time(&rows, "last_tick", (TimestampTz) pg_atomic_read_u64(&plh_shared->last_tick));
	put_count(&rows, "slots_watched", pg_atomic_read_u32(&plh_shared->slots_watched));
	put_time(&rows, "last_flush", status.last_flush);
	put_text(&rows, "last_error", status.last_error);
	put_time(&rows, "last_error_at", status.last_error_at);
	put_count(&rows, "errors", status.errors);
	put_count(&rows, "rows_written", status.rows_written);
	put_count(&rows, "rows_merged", status.rows_merged);
	put_count(&rows, "rows_dropped", status.rows_dropped);
	put_count(&rows, "queue_bytes", status.queue_bytes);
	put_live(&rows);
	return (Datum) 0;
}

/* Longest time that flush() waits. */
#define MAX_FLUSH_MS (INT64CONST(86400000) * 365)

/* The time of an interval in milliseconds; months count 30 days as elsewhere. */
static int64
timeout_ms(const Interval *interval)
{
	int64		days = (int64) interval->day + (int64) interval->month * DAYS_PER_MONTH;

	if (days >= 365 || interval->time / 1000 >= MAX_FLUSH_MS)
		return MAX_FLUSH_MS;
	return Max(interval->time / 1000 + days * INT64CONST(86400000), 0);
}

Datum
plh_flush(PG_FUNCTION_ARGS)
{
	TimestampTz until;
	uint64		ticket;
	uint32		wait_event;
	bool		done;

	if (plh_shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_lock_history is not loaded by the server, nothing is recorded"),
				 errhint(PLH_PRELOAD_HINT)));

	if (history_is_elsewhere())
		ereport(WARNING,
				(errmsg("the history is in database \"%s\", not in this one", plh_database)));

	wait_event = plh_wait_event("PgLockHistoryFlush");
	until = GetCurrentTimestamp() + timeout_ms(PG_GETARG_INTERVAL_P(0)) * INT64CONST(1000);
	ticket = pg_atomic_add_fetch_u64(&plh_shared->flush_requested, 1);

	ConditionVariablePrepareToSleep(&plh_shared->flushed);
	plh_wake_worker();
	while (!(done = pg_atomic_read_u64(&plh_shared->flush_done) >= ticket))
	{
		long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);

		if (left <= 0)
			break;
		ConditionVariableTimedSleep(&plh_shared->flushed, Min(left, 1000), wait_event);
	}
	ConditionVariableCancelSleep();
	PG_RETURN_BOOL(done);
}

static void
poke_worker(XactEvent event, void *arg)
{
	/* What is prepared is somebody else's to commit; the writer's own look finds it. */
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (event == XACT_EVENT_COMMIT && poke_at_commit)
	{
		pg_atomic_write_u32(&plh_shared->poked, 1);
		plh_wake_worker();
	}
	poke_at_commit = false;
}

/*
 * Called once by CREATE EXTENSION.  The worker looks for the extension rarely;
 * it is told here when the transaction that made it commits.
 */
Datum
plh_announce(PG_FUNCTION_ARGS)
{
	/* This session's own. */
	static bool registered = false;
	if (plh_shared == NULL)
	{
		ereport(WARNING,
				(errmsg("pg_lock_history is not loaded by the server, nothing will be recorded"),
				 errhint(PLH_PRELOAD_HINT)));
		PG_RETURN_VOID();
	}
	if (history_is_elsewhere())
		ereport(WARNING,
				(errmsg("the history is recorded in database \"%s\", not in this one", plh_database),
				 errhint("Create the extension there, or set pg_lock_history.database to \"%s\" and reload.",
						 get_database_name(MyDatabaseId))));

	if (!registered)
	{
		RegisterXactCallback(poke_worker, NULL);
		registered = true;
	}
	poke_at_commit = true;
	PG_RETURN_VOID();
}

/* Mask of the modes that conflict with a mode, from the server's own table. */
Datum
plh_mode_conflicts(PG_FUNCTION_ARGS)
{
	int32		mode = PG_GETARG_INT32(0);
	LOCKTAG		tag;
	LockMethod	method;

	SET_LOCKTAG_RELATION(tag, 0, 0);
	method = GetLockTagsMethodTable(&tag);
	if (mode < 1 || mode > method->numLockModes)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock mode %d does not exist", mode),
				 errdetail("Lock modes are numbered from 1 (AccessShareLock) to %d (AccessExclusiveLock).",
						   method->numLockModes)));
	PG_RETURN_INT32(method->conflictTab[mode]);
}
