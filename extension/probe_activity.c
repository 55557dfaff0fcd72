/*
 * probe_activity.c
 *		What every process is doing, at each tick: load.
 *
 * A tick adds the time since the one before to what each process was seen
 * doing.  As long as a process is seen doing the same, that is one run; a run
 * becomes a row when it ends and at each full second, and Go fetches the rows
 * once a second.  So a thousand waiters cost a thousand rows a second, whatever
 * the rate.
 *
 * Like the sweep in probe_procs.c, on whose ticks it runs, it takes no lock and
 * reads aligned words that others write meanwhile: each value was true at some
 * moment.  A session that stays idle costs three words of one or two cache
 * lines: it begins a transaction before it does anything.  Of the status entries,
 * whose cache lines are written by every statement, it reads some words of a
 * process that does something else than at the tick before, and of one in a
 * transaction at every tenth tick of the same: whose entry it is, the query
 * identifier, and the state while it waits for its client.
 *
 * Those that wait for an LWLock or a page are set aside until all have been
 * looked at: which it is, is found for all of them together
 * (probe_lwlocks.c, probe_buffers.c).  What was found belongs to the run; when the
 * process has been woken, and has no CPU yet, the run goes on with what it was.
 */
#include "plh.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "compat.h"

/* After so many ticks of one run its query identifier is read again. */
#define LOOK_AGAIN 10

#define MICROS_PER_SECOND INT64CONST(1000000)

/* Seconds that may lie between two calls of activity(); Go comes in each. */
#define SECONDS_ROOM 64

/* Sessions of our own that are told apart; there are three at most at one time. */
#define OURS_ROOM 16

typedef enum Doing
{
	ABSENT = 0,					/* no process, or one that is not to be counted */
	IDLE,						/* waits for work */
	IDLE_IN_TRANSACTION,
	ACTIVE
} Doing;

/* What the process in a slot is doing.  The worker's own. */
typedef struct Slot
{
	int			pid;			/* 0: none */
	int32		backend_type;	/* PLH_TYPE_UNKNOWN until its status entry is there */
	uint32		database;
	uint32		role;

	/* The run that goes on. */
	Doing		doing;
	uint32		event;
	uint32		lxid;
	int32		lwlock_mode;
	int64		query_id;
	int64		time_us;		/* in this second */
	int64		length_us;		/* in all */
	uint32		ticks;

	/* With flags set: what it waits for, and what stood ahead in this second. */
	uint32		flags;			/* PLH_RUN_* */
	PlhTarget	target;
	int64		ahead_us;
	int64		exclusive_us;
	int64		shared_us;
	uint32		waiters_max;
} Slot;

/* What has to be known of a slot when nothing happens there: all of them fit into the nearest cache. */
typedef struct Glance
{
	int			pid;			/* as in Slot */
	bool		is_idle_client; /* a client backend that is IDLE */
} Glance;

typedef struct Activity
{
	PgBackendStatus *status_array;
	Slot	   *slots;			/* one for each process there can be */
	Glance	   *glances;		/* the same */
	uint32		ticks;
	PlhWaiters	waiters;		/* of the tick that goes on; room for as many */
	uint32	   *order;			/* to group them */
	int32_t		ours[OURS_ROOM];	/* pids of sessions of ours */
	uint32		n_ours;

	PlhRun	   *runs;			/* rows not yet fetched */
	uint32		runs_room;
	uint32		n_runs;
	PlhSecond	seconds[SECONDS_ROOM];
	uint32		n_seconds;
	uint32		lost;			/* rows that had no room */

	PlhSecond	now;			/* the second that goes on; samples 0: none */
	int64		last_ns;		/* monotonic time of the last tick, 0 = none */
	int64		period_ns;		/* as of that tick: the next one still stands for it */
} Activity;

static Activity *activity;

/* Main code of the worker, after BackgroundWorkerInitializeConnection(). */
void
plh_prepare_activity_probe(void)
{
	activity = MemoryContextAllocZero(TopMemoryContext, sizeof(Activity));
	activity->status_array = plh_status_array();
	activity->slots = MemoryContextAllocZero(TopMemoryContext, sizeof(Slot) * PLH_MAX_PROCESSES());
	activity->glances = MemoryContextAllocZero(TopMemoryContext, sizeof(Glance) * PLH_MAX_PROCESSES());

	/* A tick ends one run of each process at most, and a second another one. */
	activity->runs_room = 4 * PLH_MAX_PROCESSES() + 1024;
	activity->runs = MemoryContextAlloc(TopMemoryContext, sizeof(PlhRun) * activity->runs_room);

	activity->waiters.all = MemoryContextAlloc(TopMemoryContext, sizeof(PlhWaiter) * PLH_MAX_PROCESSES());
	activity->waiters.place = MemoryContextAllocZero(TopMemoryContext, sizeof(uint32) * PLH_MAX_PROCESSES());
	activity->order = MemoryContextAlloc(TopMemoryContext, sizeof(uint32) * PLH_MAX_PROCESSES());
	plh_prepare_lwlocks();
	plh_prepare_pages();
}

/* Its part in the second that goes on is put down, or nobody's. */
static void
forget_part(Slot *slot)
{
	slot->time_us = slot->ahead_us = slot->exclusive_us = slot->shared_us = 0;
	slot->waiters_max = 0;
}

/* Writes down what a process did in this second; ended when it does not go on. */
static void
put_down(Slot *slot, uint32 number, bool ended)
{
	PlhRun	   *run;

	if (slot->doing != ACTIVE || slot->time_us == 0)
	{
		forget_part(slot);
		return;
	}
	if (activity->n_runs >= activity->runs_room)
	{
		activity->lost++;
		forget_part(slot);
		return;
	}
	run = &activity->runs[activity->n_runs++];
	run->second = activity->now.second;
	run->query_id = slot->query_id;
	run->time_us = slot->time_us;
	run->ended_us = ended ? slot->length_us : 0;
	run->slot = (int32_t) number;
	run->pid = slot->pid;
	run->wait_event_info = slot->event;
	run->lwlock_mode = slot->lwlock_mode;
	run->backend_type = slot->backend_type;
	run->database = slot->database;
	run->role = slot->role;
	run->flags = slot->flags;
	run->ahead_us = slot->ahead_us;
	run->exclusive_us = slot->exclusive_us;
	run->shared_us = slot->shared_us;
	run->target = slot->target;
	run->waiters_max = slot->waiters_max;
	forget_part(slot);
}

static void
close_second(void)
{
	uint32		i;

	if (activity->now.samples == 0)
		return;
	for (i = plh_slot(0); i < PLH_MAX_PROCESSES(); i = plh_slot(i + 1))
		if (activity->slots[i].pid != 0)
			put_down(&activity->slots[i], i, false);
	if (activity->n_seconds < SECONDS_ROOM)
		activity->seconds[activity->n_seconds++] = activity->now;
	else
		activity->lost++;
	memset(&activity->now, 0, sizeof(activity->now));
}

static void
end_run(Slot *slot, uint32 number)
{
	put_down(slot, number, true);
	slot->doing = ABSENT;
	slot->length_us = 0;
	slot->ticks = 0;
	slot->query_id = 0;
	slot->flags = 0;
	memset(&slot->target, 0, sizeof(slot->target));
}

/* A process not seen before is in the slot. */
static void
meet(Slot *slot, const PGPROC *proc, int pid)
{
	memset(slot, 0, sizeof(*slot));
	slot->pid = pid;
	slot->backend_type = PLH_TYPE_UNKNOWN;
	slot->database = *(const volatile Oid *) &proc->databaseId;
	slot->role = *(const volatile Oid *) &proc->roleId;
}

/* Its type; false when the entry is being written, or not that of the process any more. */
static bool
read_type(PgBackendStatus *entry, int pid, int32 *type)
{
	volatile PgBackendStatus *source = entry;
	bool		is_its;
	int			before;
	int			after;

	pgstat_begin_read_activity(source, before);
	is_its = source->st_procpid == pid && PLH_HAS_INTRODUCED_ITSELF(source->st_state);
	*type = source->st_backendType;
	pgstat_end_read_activity(source, after);
	return is_its && pgstat_read_activity_complete(before, after);
}

/* Its status entry, NULL when it has none (yet); with the first one its kind, database and role. */
static PgBackendStatus *
identify(Slot *slot, const PGPROC *proc)
{
	PgBackendStatus *entry = plh_status_of(activity->status_array, proc, slot->pid);
	int32		type;

	if (entry == NULL || slot->backend_type != PLH_TYPE_UNKNOWN)
		return entry;
	if (!read_type(entry, slot->pid, &type))
		return NULL;
	slot->backend_type = type;
	if (slot->backend_type == B_BG_WORKER)
	{
		PGPROC	   *leader = *(PGPROC *const volatile *) &proc->lockGroupLeader;

		if (leader != NULL && leader != proc)
			slot->backend_type = PLH_TYPE_PARALLEL_WORKER;
	}
	slot->database = *(const volatile Oid *) &proc->databaseId;
	slot->role = *(const volatile Oid *) &proc->roleId;
	return entry;
}

/*
 * What a process that waits for its client does: that is no load, but in COPY.
 * One without an entry says who it is, within a transaction of its own.
 */
static Doing
doing_of_client_read(uint32 lxid, PgBackendStatus *entry)
{
	BackendState state;

	if (lxid == 0 || entry == NULL)
		return IDLE;
	state = *(const volatile BackendState *) &entry->st_state;
	return state == STATE_RUNNING || state == STATE_FASTPATH ? ACTIVE : IDLE_IN_TRANSACTION;
}

/* True when the run of the slot goes on, as far as what is waited for does not tell otherwise. */
static bool
goes_on(const Slot *slot, int pid, uint32 event, uint32 lxid, int32 mode)
{
	return slot->doing != ABSENT && slot->pid == pid && slot->event == event &&
		slot->lxid == lxid && slot->lwlock_mode == mode;
}

/* A session of ours: the observer is not counted among those whom it observes. */
static bool
is_ours(int pid)
{
	uint32		i;

	for (i = 0; i < activity->n_ours; i++)
		if (activity->ours[i] == pid)
			return true;
	return false;
}

/* Takes in what the process in a slot is doing; waiter is NULL unless that was set aside. */
static void
digest(uint32 number, int pid, uint32 event, uint32 lxid, int32 mode, const PlhWaiter *waiter, int64 passed_us)
{
	PGPROC	   *proc = &ProcGlobal->allProcs[number];
	Slot	   *slot = &activity->slots[number];
	uint32		class = event & 0xFF000000;
	bool		is_client;
	bool		same;

	if (slot->pid != pid)
	{
		end_run(slot, number);
		meet(slot, proc, pid);
	}

	same = goes_on(slot, pid, event, lxid, mode);
	if (same && slot->backend_type == PLH_TYPE_UNKNOWN)
	{
		(void) identify(slot, proc);
		same = slot->backend_type == PLH_TYPE_UNKNOWN;
	}
	if (same && waiter != NULL && memcmp(&slot->target, &waiter->target, sizeof(PlhTarget)) != 0)
	{
		/* Another lock of the same name; or the one that was not found before. */
		same = slot->target.kind <= PLH_TARGET_UNKNOWN;
		if (same)
			put_down(slot, number, false);
	}
	if (!same)
	{
		PgBackendStatus *entry;

		end_run(slot, number);
		entry = identify(slot, proc);
		slot->event = event;
		slot->lxid = lxid;
		slot->lwlock_mode = mode;
		if (class == PG_WAIT_ACTIVITY)
			slot->doing = IDLE;
		else if (class == PG_WAIT_EXTENSION && lxid == 0 &&
				 (slot->backend_type == B_BG_WORKER || slot->backend_type == PLH_TYPE_UNKNOWN))
			slot->doing = IDLE;	/* main loop of somebody else's worker, which may have no status entry */
		else if (event == WAIT_EVENT_CLIENT_READ)
			slot->doing = doing_of_client_read(lxid, entry);
		else if (event == PLH_WAIT_FOR_WAL)
			slot->doing = IDLE;
		else
			slot->doing = ACTIVE;
		if (slot->doing == ACTIVE && entry != NULL)
			slot->query_id = (int64) *(volatile uint64 *) &entry->st_query_id;
	}
	else if (++slot->ticks % LOOK_AGAIN == 0 && slot->doing != IDLE)
	{
		PgBackendStatus *entry = identify(slot, proc);
		int64		query_id = 0;

		if (event == WAIT_EVENT_CLIENT_READ)
		{
			/* A COPY may have begun or ended between two ticks. */
			Doing		doing = doing_of_client_read(lxid, entry);

			if (doing != slot->doing)
			{
				end_run(slot, number);
				slot->doing = doing;
			}
		}
		if (entry != NULL)
			query_id = (int64) *(volatile uint64 *) &entry->st_query_id;
		if (slot->doing == ACTIVE && query_id != slot->query_id)
		{
			/* The same wait of another statement: as good as another one. */
			end_run(slot, number);
			slot->doing = ACTIVE;
			slot->query_id = query_id;
		}
	}
	if (waiter != NULL)
	{
		slot->flags = waiter->flags;
		slot->target = waiter->target;
		slot->waiters_max = Max(slot->waiters_max, waiter->together);
		if (waiter->ahead_known)
		{
			slot->ahead_us += passed_us;
			slot->exclusive_us += waiter->exclusive ? passed_us : 0;
			slot->shared_us += waiter->shared * passed_us;
		}
	}

	is_client = slot->backend_type == B_BACKEND && !is_ours(pid);
	activity->glances[number].pid = pid;
	activity->glances[number].is_idle_client = slot->doing == IDLE && is_client;

	if (is_client)
		activity->now.clients_us += passed_us;
	if (slot->doing == IDLE_IN_TRANSACTION && is_client)
		activity->now.idle_in_transaction_us += passed_us;
	if (slot->doing == ACTIVE)
	{
		slot->time_us += passed_us;
		slot->length_us += passed_us;
		if (is_client)
			activity->now.active_us += passed_us;
		if (class == PG_WAIT_LOCK)
			activity->now.waiting_us += passed_us;
	}
}

/* What has to be found out about a process with this wait event: PLH_RUN_*. */
static uint32
looked_for(uint32 event, uint32 track)
{
	uint32		flags = 0;

	if ((track & PLH_TRACK_LWLOCKS) && plh_waits_for_lwlock(event))
		flags |= PLH_RUN_LWLOCK;
	if ((track & PLH_TRACK_PAGES) && plh_waits_for_page(event))
		flags |= PLH_RUN_PAGE;
	return flags;
}

/* Looks at one slot; a process about which more is to be found out is set aside. */
static void
look_at(uint32 number, int64 passed_us, uint32 track)
{
	PGPROC	   *proc = &ProcGlobal->allProcs[number];
	Slot	   *slot = &activity->slots[number];
	uint32		event = *(const volatile uint32 *) &proc->wait_event_info;
	uint32		lxid = plh_lxid(proc);
	int			pid = *(const volatile int *) &proc->pid;
	uint8		raw_mode = 0;
	int32		mode = -1;
	uint32		flags;

	if (pid == 0 || !plh_is_alive(proc, pid) || pid == MyProcPid)
	{
		if (slot->pid != 0)
		{
			end_run(slot, number);
			slot->pid = 0;
			memset(&activity->glances[number], 0, sizeof(Glance));
		}
		return;
	}
	if (plh_waits_for_lwlock(event))
	{
		raw_mode = *(const volatile uint8 *) &proc->lwWaitMode;
		mode = plh_lwlock_mode(event, raw_mode);
	}
	flags = looked_for(event, track);
	if (flags == 0)
		digest(number, pid, event, lxid, mode, NULL, passed_us);
	else
	{
		PlhWaiters *waiters = &activity->waiters;
		PlhWaiter  *waiter = &waiters->all[waiters->n++];

		memset(waiter, 0, sizeof(*waiter));
		waiter->slot = number;
		waiter->pid = pid;
		waiter->event = event;
		waiter->lxid = lxid;
		waiter->mode = mode;
		waiter->raw_mode = raw_mode;
		waiter->flags = flags;
		waiter->target.kind = PLH_TARGET_UNKNOWN;
		waiters->place[number] = waiters->n;
	}
}

static int
compare_waiters(const void *left, const void *right, void *arg)
{
	const PlhWaiter *all = arg;
	const PlhWaiter *a = &all[*(const uint32 *) left];
	const PlhWaiter *b = &all[*(const uint32 *) right];

	if (a->event != b->event)
		return a->event < b->event ? -1 : 1;
	if (a->mode != b->mode)
		return a->mode < b->mode ? -1 : 1;
	return memcmp(&a->target, &b->target, sizeof(PlhTarget));
}

/* Counts those that wait for the same in the same mode, but for sessions of ours. */
static void
count_together(void)
{
	PlhWaiters *waiters = &activity->waiters;
	uint32		first,
				i;

	for (i = 0; i < waiters->n; i++)
		activity->order[i] = i;
	qsort_arg(activity->order, waiters->n, sizeof(uint32), compare_waiters, waiters->all);
	for (first = 0; first < waiters->n; first = i)
	{
		uint32		together = 0;
		uint32		k;

		for (i = first; i < waiters->n; i++)
		{
			if (compare_waiters(&activity->order[first], &activity->order[i], waiters->all) != 0)
				break;
			if (!is_ours(waiters->all[activity->order[i]].pid))
				together++;
		}
		for (k = first; k < i; k++)
			waiters->all[activity->order[k]].together = together;
	}
}

/* Those that were set aside. */
static void
digest_waiters(int64 passed_us)
{
	PlhWaiters *waiters = &activity->waiters;
	uint32		i;

	plh_find_lwlocks(waiters);
	plh_find_pages(waiters);
	for (i = 0; i < waiters->n; i++)
	{
		PlhWaiter  *w = &waiters->all[i];
		const Slot *slot = &activity->slots[w->slot];

		waiters->place[w->slot] = 0;
		if (w->target.kind == PLH_TARGET_UNKNOWN && slot->target.kind != PLH_TARGET_NONE &&
			plh_waits_for_lwlock(w->event) &&
			*(const volatile uint8 *) &ProcGlobal->allProcs[w->slot].lwWaiting != 1 &&
			goes_on(slot, w->pid, w->event, w->lxid, w->mode))
			w->target = slot->target;	/* woken, and without a CPU: in no queue any more */
	}
	count_together();
	for (i = 0; i < waiters->n; i++)
	{
		const PlhWaiter *w = &waiters->all[i];

		digest(w->slot, w->pid, w->event, w->lxid, w->mode, w, passed_us);
	}
	waiters->n = 0;
}

/*
 * True when the slot is unused, as before, or its session goes on being idle,
 * which then counts.
 */
static inline bool
nothing_happens(uint32 number, int64 *idle_clients)
{
	const PGPROC *proc = &ProcGlobal->allProcs[number];
	const Glance *glance = &activity->glances[number];
	int			owner = *(const volatile int *) &proc->procLatch.owner_pid;

	if (owner == 0)
		return glance->pid == 0;
	if (!glance->is_idle_client || glance->pid != owner || plh_lxid(proc) != 0)
		return false;
	(*idle_clients)++;
	return true;
}

/* Those of a tick that was broken off, if ever one was. */
static inline void
forget_waiters(void)
{
	while (activity->waiters.n > 0)
		activity->waiters.place[activity->waiters.all[--activity->waiters.n].slot] = 0;
}

/*
 * Called after each sweep.  True when there are rows to be fetched: a second is
 * complete, or room becomes short.
 */
bool
plh_note_activity(int64 now, int64 now_ns, int64 period_ns, uint32 track)
{
	int64		second = now - now % MICROS_PER_SECOND;
	int64		passed_us = (now_ns - activity->last_ns) / 1000;
	int64		idle_clients = 0;
	bool		thorough;
	uint32		i;

	/* What nobody saw is a gap, or little: the first tick stands for a period. */
	if (activity->last_ns == 0 || passed_us > Max(MICROS_PER_SECOND, 3 * Max(period_ns, activity->period_ns) / 1000))
		passed_us = period_ns / 1000;
	activity->period_ns = period_ns;
	activity->last_ns = now_ns;

	if (activity->now.samples != 0 && activity->now.second != second)
		close_second();
	activity->now.second = second;
	activity->now.sampled_us += passed_us;
	activity->now.samples++;
	forget_waiters();

	/* Now and then all are looked at: what begins no transaction is not overlooked for long. */
	thorough = activity->ticks++ % LOOK_AGAIN == 0;
	for (i = plh_slot(0); i < PLH_MAX_PROCESSES(); i = plh_slot(i + 1))
		if (thorough || !nothing_happens(i, &idle_clients))
			look_at(i, passed_us, track);
	if (activity->waiters.n > 0)
		digest_waiters(passed_us);
	activity->now.clients_us += idle_clients * passed_us;

	return activity->n_seconds > 0 ||
		activity->runs_room - activity->n_runs < 2 * PLH_MAX_PROCESSES();
}

/* Load is not sampled any more; the runs that went on end here. */
void
plh_forget_activity(void)
{
	uint32		i;

	if (activity->last_ns == 0)
		return;
	close_second();
	for (i = 0; i < PLH_MAX_PROCESSES(); i++)
	{
		memset(&activity->slots[i], 0, sizeof(Slot));
		memset(&activity->glances[i], 0, sizeof(Glance));
	}
	activity->last_ns = 0;
}

int32_t
plh_probe_activity(uint32_t finish, const int32_t *ours, uint32_t n_ours,
				   PlhRun *runs, uint32_t runs_room,
				   PlhSecond *seconds, uint32_t seconds_room, PlhActivity *answer)
{
	plh_enter_probe();
	memset(answer, 0, sizeof(*answer));
	activity->n_ours = Min(n_ours, OURS_ROOM);
	if (activity->n_ours > 0)
		memcpy(activity->ours, ours, sizeof(int32_t) * activity->n_ours);
	if (finish)
		close_second();
	if (runs_room < activity->n_runs || seconds_room < activity->n_seconds)
	{
		answer->n_runs = activity->n_runs;
		answer->n_seconds = activity->n_seconds;
		plh_leave_probe();
		return PLH_TOO_SMALL;
	}
	memcpy(runs, activity->runs, sizeof(PlhRun) * activity->n_runs);
	memcpy(seconds, activity->seconds, sizeof(PlhSecond) * activity->n_seconds);
	answer->n_runs = activity->n_runs;
	answer->n_seconds = activity->n_seconds;
	answer->lost = activity->lost;
	activity->n_runs = activity->n_seconds = activity->lost = 0;
	plh_leave_probe();
	return PLH_OK;
}

/* NULL for what there is no name for. */
static const char *
name_of(uint32_t kind, uint32_t number)
{
	switch (kind)
	{
		case PLH_NAME_EVENT_TYPE:
			return pgstat_get_wait_event_type(number);
		case PLH_NAME_EVENT:
			return pgstat_get_wait_event(number);
		case PLH_NAME_TRANCHE:
			/* The same name in every version, whether they are LWLocks there or not. */
			return plh_waits_for_content(number) ? "BufferContent" : pgstat_get_wait_event(number);
		case PLH_NAME_BACKEND_TYPE:
			if (number == PLH_TYPE_PARALLEL_WORKER)
				return "parallel worker";
			return number < PLH_BACKEND_TYPES ? GetBackendTypeDesc((BackendType) number) : NULL;
		default:
			return NULL;
	}
}

int32_t
plh_probe_name(uint32_t kind, uint32_t number, char *text, uint32_t room)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_OK;

	plh_enter_probe();
	PG_TRY();
	{
		const char *name = name_of(kind, number);

		strlcpy(text, name ? name : "", room);
	}
	PG_CATCH();
	{
		/* From 17 on the server raises for a number that nobody registered. */
		LWLockReleaseAll();
		plh_keep_error(caller);
		result = PLH_ERROR;
	}
	PG_END_TRY();
	plh_leave_probe();
	return result;
}
