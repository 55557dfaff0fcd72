/*
 * probe_sessions.c
 *		Copies what is known of single sessions: the ones that take part in a
 *		wait.
 *
 * A session's entry in the status array is written by that session alone,
 * without a lock: it makes st_changecount odd, writes, makes it even again.  A
 * copy is good when the count was even and the same before and after.  The
 * tries are bounded: a session that lost its CPU in between must not hold us
 * up.  Entries are not read in each sweep: they are written with every
 * statement, and reading them pulls their cache lines away from the writers.
 */
#include "plh.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "libpq/pqcomm.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"

#include "compat.h"

#define TRIES 5

/* The worker's own: base of the server's status array, which never moves. */
static PgBackendStatus *status_array;

/* Main code of the worker, after BackgroundWorkerInitializeConnection(). */
void
plh_prepare_session_probe(void)
{
	status_array = plh_status_array();
}

int32_t
plh_translate_state(BackendState state)
{
	switch (state)
	{
		case STATE_IDLE:
			return PLH_STATE_IDLE;
		case STATE_RUNNING:
			return PLH_STATE_ACTIVE;
		case STATE_IDLEINTRANSACTION:
			return PLH_STATE_IDLE_IN_TRANSACTION;
		case STATE_FASTPATH:
			return PLH_STATE_FASTPATH;
		case STATE_IDLEINTRANSACTION_ABORTED:
			return PLH_STATE_IDLE_IN_TRANSACTION_ABORTED;
		case STATE_DISABLED:
			return PLH_STATE_DISABLED;
		PLH_STATE_CASE_STARTING
		default:
			return PLH_STATE_UNKNOWN;
	}
}

PgBackendStatus *
plh_status_entry(const PGPROC *proc, int pid)
{
	return plh_status_of(status_array, proc, pid);
}

/* What pg_stat_activity shows as client_addr: nothing for a local socket. */
void
plh_format_address(const SockAddr *addr, char *to, size_t room)
{
	const void *raw = NULL;

	if (addr->addr.ss_family == AF_INET)
		raw = &((const struct sockaddr_in *) &addr->addr)->sin_addr;
	else if (addr->addr.ss_family == AF_INET6)
		raw = &((const struct sockaddr_in6 *) &addr->addr)->sin6_addr;
	if (raw == NULL || inet_ntop(addr->addr.ss_family, raw, to, room) == NULL)
		to[0] = '\0';
}

/* One try; false when the entry changed meanwhile.  No lock, no allocation. */
static bool
copy_entry(PgBackendStatus *entry, PlhSession *session, BackendType *type,
		   SockAddr *addr, char *text, uint32 room)
{
	volatile PgBackendStatus *source = entry;
	int			before;
	int			after;
	uint32		whole;

	pgstat_begin_read_activity(source, before);

	session->status = source->st_procpid == session->pid ? PLH_SESSION_FOUND : PLH_SESSION_GONE;
	*type = source->st_backendType;
	memcpy(addr, unvolatize(SockAddr *, &source->st_clientaddr), sizeof(*addr));
	session->backend_start = source->st_proc_start_timestamp;
	session->xact_start = source->st_xact_start_timestamp;
	session->query_start = source->st_activity_start_timestamp;
	session->state_change = source->st_state_start_timestamp;
	session->state = plh_translate_state(source->st_state);
	session->database = source->st_databaseid;
	session->role = source->st_userid;
	session->query_id = (int64_t) source->st_query_id;
	strlcpy(session->application_name, source->st_appname, sizeof(session->application_name));

	/* The text area always ends with a zero byte. */
	whole = (uint32) strnlen(source->st_activity_raw, pgstat_track_activity_query_size - 1);
	session->text_length = Min(whole, room);
	session->text_cut = session->text_length < whole ||
		whole == (uint32) pgstat_track_activity_query_size - 1;
	memcpy(text, source->st_activity_raw, session->text_length);

	pgstat_end_read_activity(source, after);
	return pgstat_read_activity_complete(before, after);
}

/* Backend types have names; background workers bring their own. */
static void
name_type(PlhSession *session, BackendType type)
{
	const char *name = NULL;

	if (type == B_BG_WORKER)
		name = GetBackgroundWorkerTypeByPid(session->pid);
	if (name == NULL)
		name = GetBackendTypeDesc(type);
	strlcpy(session->backend_type, name, sizeof(session->backend_type));
}

static void
read_session(PlhSession *session, char *text, uint32 room)
{
	PGPROC	   *proc = &ProcGlobal->allProcs[session->slot];
	PGPROC	   *leader = *(PGPROC *const volatile *) &proc->lockGroupLeader;
	PgBackendStatus *entry = plh_status_entry(proc, session->pid);
	BackendType type = B_INVALID;
	SockAddr	addr;
	int			tries;

	session->status = PLH_SESSION_GONE;
	if (entry == NULL)
		return;

	for (tries = 0; tries < TRIES; tries++)
	{
		if (copy_entry(entry, session, &type, &addr, text, room))
			break;
		session->status = PLH_SESSION_TORN;
	}
	if (session->status != PLH_SESSION_FOUND)
	{
		session->text_length = 0;
		return;
	}

	/* Good enough for display; who belongs to a group is read with the locks. */
	session->leader_pid = leader != NULL && leader != proc ? leader->pid : 0;
	if ((*(const volatile uint8 *) &proc->statusFlags & PROC_VACUUM_FOR_WRAPAROUND) != 0)
		session->flags |= PLH_SESSION_TO_PREVENT_WRAPAROUND;
	plh_format_address(&addr, session->client_addr, sizeof(session->client_addr));
	name_type(session, type);
}

/* -1 when there is no such process.  One pass over all of them: for rare questions. */
static int32
slot_of_pid(int pid)
{
	uint32		i;

	for (i = 0; i < PLH_MAX_PROCESSES(); i++)
		if (*(const volatile int *) &ProcGlobal->allProcs[i].pid == pid &&
			*(const volatile int *) &ProcGlobal->allProcs[i].procLatch.owner_pid == pid)
			return (int32) i;
	return -1;
}

int32_t
plh_probe_sessions(PlhSession *sessions, uint32_t n_sessions,
				   char *text, uint32_t text_room, uint32_t text_each)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_OK;
	volatile uint32_t used = 0;
	uint32_t	i;

	plh_enter_probe();
	PG_TRY();
	{
		for (i = 0; i < n_sessions; i++)
		{
			PlhSession *session = &sessions[i];
			int32_t		slot = session->slot;
			int32_t		pid = session->pid;

			memset(session, 0, sizeof(*session));
			session->slot = slot;
			session->pid = pid;
			session->text_offset = used;
			if (slot == -1)
				session->slot = slot = slot_of_pid(pid);
			if (slot < 0 || (uint32) slot >= PLH_MAX_PROCESSES())
			{
				session->status = PLH_SESSION_GONE;
				continue;
			}
			read_session(session, text + used, Min(text_each, text_room - used));
			used += session->text_length;
		}
	}
	PG_CATCH();
	{
		LWLockReleaseAll();
		plh_keep_error(caller);
		result = PLH_ERROR;
	}
	PG_END_TRY();
	plh_leave_probe();
	return result;
}
