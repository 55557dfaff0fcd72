/*
 * worker.c
 *		The life of the background worker: registration, signals, what it
 *		needs to know of the server once, loading of Go, and the end.
 *
 * States, as shown by status(): see extension/README.md.
 */
#include "plh.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/pidfile.h"

#include "compat.h"

/* A life shorter than this counts as short; see wait_before_another_life(). */
#define SHORT_LIFE_US (60 * USECS_PER_SEC)

/* In the data directory, which is our working directory; private to the server. */
#define POSTMASTER_PID_FILE "postmaster.pid"

/* Longest pause between two short lives. */
#define MAX_PAUSE_S 60

/* Worker only; written once at start. */
static char bootstrap_role[NAMEDATALEN];
static TimestampTz previous_flush;

void
plh_register_worker(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	strlcpy(worker.bgw_name, "pg_lock_history", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "pg_lock_history", BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = 1;	/* pauses after repeated deaths are our own */
	strlcpy(worker.bgw_library_name, "pg_lock_history", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "plh_worker_main", sizeof(worker.bgw_function_name));
	RegisterBackgroundWorker(&worker);
}

const char *
plh_bootstrap_role(void)
{
	return bootstrap_role;
}

TimestampTz
plh_previous_flush(void)
{
	return previous_flush;
}

/*
 * True when postmaster.pid says that the server is stopping.  During a smart
 * shutdown this is the only sign: the postmaster signals workers only after
 * the last client has left, and our writer is a client.
 *
 * Read with plain system calls: no memory, no errors, no file descriptor that
 * the server's machinery would have to know of.
 */
bool
plh_server_is_stopping(void)
{
	char		content[BLCKSZ];
	ssize_t		length;
	char	   *line = content;
	int			i;
	int			fd = open(POSTMASTER_PID_FILE, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	length = read(fd, content, sizeof(content) - 1);
	close(fd);
	if (length <= 0)
		return false;
	content[length] = '\0';

	for (i = 1; i < LOCK_FILE_LINE_PM_STATUS; i++)
	{
		line = strchr(line, '\n');
		if (line == NULL)
			return false;
		line++;
	}
	return strncmp(line, PM_STATUS_STOPPING, strlen("stopping")) == 0;
}

/*
 * Name of the bootstrap superuser, as whom the writer connects when conninfo
 * is empty.  Never waits: when pg_authid or its index is locked by somebody,
 * the name stays unknown and Go says what to set.
 */
static void
read_bootstrap_role(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (ConditionalLockRelationOid(AuthIdRelationId, AccessShareLock) &&
		ConditionalLockRelationOid(AuthIdOidIndexId, AccessShareLock))
	{
		char	   *name = GetUserNameFromId(BOOTSTRAP_SUPERUSERID, true);

		if (name)
			strlcpy(bootstrap_role, name, sizeof(bootstrap_role));
	}
	CommitTransactionCommand();
}

/* before_shmem_exit callback. */
static void
say_goodbye(int code, Datum arg)
{
	pg_atomic_write_u32(&plh_shared->worker_slot, PLH_NO_SLOT);
	pg_atomic_write_u32(&plh_shared->worker_pid, 0);
}

/*
 * Sleeps in C until there is a reason to look again; true when the worker has
 * to end.  Used before Go is loaded, and when it cannot be.
 */
static bool
sleep_without_go(long timeout_ms)
{
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;

	if (timeout_ms >= 0)
		events |= WL_TIMEOUT;
	(void) WaitLatch(MyLatch, events, timeout_ms, plh_wait_event("PgLockHistoryMain"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return ShutdownRequestPending;
}

/*
 * A library that dies again and again must not fill the server log: after
 * each short life in a row the next one begins later, 1 s, 2 s, 4 s ... 60 s.
 */
static void
wait_before_another_life(void)
{
	uint32		lives = pg_atomic_read_u32(&plh_shared->short_lives);
	TimestampTz previous = (TimestampTz) pg_atomic_read_u64(&plh_shared->worker_start);
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until;

	/* The previous life began after its own pause, so this is its length. */
	if (previous == 0 || now - previous > SHORT_LIFE_US)
		lives = 0;

	if (lives >= 2)
	{
		until = now + Min(1 << Min(lives - 2, 6), MAX_PAUSE_S) * USECS_PER_SEC;
		for (;;)
		{
			long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);

			if (left <= 0 || ConfigReloadPending)
				break;			/* a reload may bring what was missing */
			if (sleep_without_go(left))
				proc_exit(1);
		}
	}

	/* Taken back by plh_worker_main when this life ends in good order. */
	pg_atomic_write_u32(&plh_shared->short_lives, lives + 1);
}

/* From here on sessions see this life; what the last one said is no longer true. */
static void
announce_life(void)
{
	LWLockAcquire(plh_shared->lock, LW_EXCLUSIVE);
	previous_flush = plh_shared->status.last_flush;
	plh_shared->status.state[0] = '\0';
	plh_shared->status.hint[0] = '\0';
	plh_shared->status.recording_since = 0;
	LWLockRelease(plh_shared->lock);

	pg_atomic_write_u64(&plh_shared->worker_start, (uint64) GetCurrentTimestamp());
	pg_atomic_write_u32(&plh_shared->worker_slot, (uint32) plh_slot_of(MyProc));
	pg_atomic_write_u32(&plh_shared->worker_pid, (uint32) MyProcPid);
}

static void
publish_failure(const char *error, const char *hint)
{
	PlhStatus	status;

	memset(&status, 0, sizeof(status));
	strlcpy(status.state, "no library", sizeof(status.state));
	strlcpy(status.last_error, error, sizeof(status.last_error));
	status.last_error_at = GetCurrentTimestamp();
	strlcpy(status.hint, hint, sizeof(status.hint));
	LWLockAcquire(plh_shared->lock, LW_EXCLUSIVE);
	/* The next life has to know up to when history was written. */
	status.last_flush = plh_shared->status.last_flush;
	memcpy(status.node, plh_shared->status.node, sizeof(status.node));
	plh_shared->status = status;
	LWLockRelease(plh_shared->lock);
}

static void
fill_probe_table(PlhProbes *probes)
{
	memset(probes, 0, sizeof(*probes));
	probes->interface_version = PLH_INTERFACE;
	probes->wake_fd = plh_wake_fd();
	probes->max_processes = PLH_MAX_PROCESSES();
	plh_live_rooms(&probes->graph_room, &probes->waits_room, &probes->load_room);
	probes->wait = plh_probe_wait;
	probes->locks = plh_probe_locks;
	probes->row = plh_probe_row;
	probes->sessions = plh_probe_sessions;
	probes->conflicts = plh_probe_conflicts;
	probes->settings = plh_probe_settings;
	probes->log = plh_probe_log;
	probes->publish = plh_probe_publish;
	probes->live_graph = plh_probe_live_graph;
	probes->live_ring = plh_probe_live_ring;
	probes->flushed = plh_probe_flushed;
	probes->last_error = plh_probe_last_error;
	probes->spare_slot = plh_probe_spare_slot;
	probes->activity = plh_probe_activity;
	probes->fastpath = plh_probe_fastpath;
	probes->name = plh_probe_name;
	probes->failures = plh_probe_failures;
	probes->statements = plh_probe_statements;
}

void
plh_worker_main(Datum arg)
{
	PlhProbes	probes;
	char		error[512];
	const char *hint;
	int			code;

	/*
	 * All handlers have to be in place before Go is loaded (goload.c).
	 * SIGINT: pg_cancel_backend() has nothing to cancel here.
	 */
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pqsignal(SIGINT, PLH_SIG_IGN);

	before_shmem_exit(say_goodbye, (Datum) 0);

	wait_before_another_life();
	announce_life();
	read_bootstrap_role();
	plh_prepare_slots();
	plh_prepare_wait_probe();
	plh_prepare_lock_probe();
	plh_prepare_session_probe();
	plh_prepare_statement_probe();
	plh_prepare_failure_probe();
	plh_prepare_activity_probe();
	plh_prepare_fastpath_probe();

	if (!plh_load_go(error, sizeof(error), &hint))
	{
		if (ShutdownRequestPending)
			proc_exit(1);		/* the dry run got the same signal */
		publish_failure(error, hint);
		ereport(WARNING,
				(errmsg("pg_lock_history: could not load the analysis library, nothing is recorded"),
				 errdetail_internal("%s", error),
				 errhint("%s", hint)));

		/* A reload is the sign to try again, in a new process. */
		while (!ConfigReloadPending && !sleep_without_go(-1))
			;
		pg_atomic_write_u32(&plh_shared->short_lives, 0);
		proc_exit(1);
	}

	fill_probe_table(&probes);
	code = plh_run_go(&probes);

	if (code == 0)
		pg_atomic_write_u32(&plh_shared->short_lives, 0);

	/*
	 * 0 would mean "never start me again": that is right only when the server
	 * is going down.
	 */
	proc_exit(plh_server_is_stopping() ? 0 : 1);
}
