/*
 * probe_fastpath.c
 *		How near sessions are to the end of their fast path.
 *
 * A weak lock on a relation goes to a slot of the process's own, as long as
 * there is one; what finds none goes to the shared lock table, through one of
 * its 16 partition locks, exclusive.  Ten times a second the slots in use of
 * every process in a transaction are counted; what one process was seen with
 * while it ran one statement becomes a row at the end of the second, provided
 * that some process had at least half of its slots in use: else nobody is near
 * the end, and there is nothing to tell.
 *
 * Locking.  The slots are read without a lock: a word of 64 bits holds 16 of
 * them and was true at some moment, no two words need belong together.  Of a
 * process that has no slot left the locks that went to the shared table are
 * counted, as probe_rows.c looks through its own locks: one partition at a
 * time, shared, when it is free, within a budget that both keep to.  That has
 * to be done at once: the transactions of pgbench -S last a fraction of a
 * millisecond.
 */
#include "plh.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"

#include "compat.h"

/*
 * Time between two looks, whatever the period of sampling.  Of 100 idle
 * sessions one takes 0.7 us; of 100 in transactions with no slot left 33 us, a
 * walk over 16 partitions included.  More often adds up to more than the sweeps
 * (and each look fetches a cache line that its process is about to write); one
 * a second would meet few transactions of a millisecond.
 */
#define LOOK_EVERY_NS (100 * INT64CONST(1000000))

/*
 * Words of slots read in one look: from 18 on a process can have up to 1024 of
 * them.  What is over has its turn in the next look.
 */
#define WORDS_EACH_LOOK 4096

/*
 * Locks looked at in one partition: about two cache misses each while it is
 * held.  A process with more of them there has at least so many.
 */
#define MAX_OWN_LOCKS 256

/*
 * Partition locks taken in a second for this and for the rows behind waits.
 * The latter can be looked for while the wait lasts only, so half is theirs.
 */
#define PARTITIONS_EACH_SECOND 200
#define PARTITIONS_HERE 100

/* Statements that are told apart of one process in one second, the heaviest. */
#define STATEMENTS 4

#define MICROS_PER_SECOND INT64CONST(1000000)
#define NANOS_PER_SECOND INT64CONST(1000000000)

/* What a process was seen with while it ran one statement; the most of each. */
typedef struct Seen
{
	int64		query_id;		/* 0 also while it used less than half of its slots */
	uint32		slots_used;
	int32		spilled;		/* -1: not looked for */
	uint32		looks;
	uint32		looks_full;
} Seen;

/* A process that held relation locks in the second that goes on. */
typedef struct Holder
{
	int			pid;			/* 0: none was seen */
	uint32		database;
	uint32		role;
	bool		walked;			/* its locks in the shared table were looked for */
	uint32		n_seen;
	Seen		seen[STATEMENTS];

	/* Its transaction, which may go on for many seconds. */
	int			owner;			/* the process, pid says so for the second only */
	uint32		lxid;
	uint32		slots_used;		/* the most so far */
	int32		spilled;		/* the same, -1 while it is not known */
	int64		query_id;		/* of the statement that ran when it was seen with so many */
} Holder;

typedef struct FastPath
{
	PgBackendStatus *status_array;
	Holder	   *holders;		/* one for each process there can be */

	PlhSlotUse *rows;			/* not yet fetched */
	uint32		rows_room;
	uint32		n_rows;
	uint32		n_complete;		/* of these, of complete seconds */
	uint32		lost;			/* rows that had no room */

	int64		second;			/* wall clock: begin of the one that goes on, 0: none */
	bool		is_worth_it;	/* somebody had half of his slots in use in it */
	int64		last_look_ns;
	uint32		next;			/* slot with which the next look begins */

	/* Partition locks taken in the second of the monotonic clock since then. */
	int64		budget_since_ns;
	uint32		taken_here;
	uint32		taken_elsewhere;
} FastPath;

/* The worker's own; used on its main thread only. */
static FastPath *fastpath;

/* Main code of the worker, after BackgroundWorkerInitializeConnection(). */
void
plh_prepare_fastpath_probe(void)
{
	fastpath = MemoryContextAllocZero(TopMemoryContext, sizeof(FastPath));
	fastpath->status_array = plh_status_array();
	fastpath->holders = MemoryContextAllocZero(TopMemoryContext, sizeof(Holder) * PLH_MAX_PROCESSES());

	/* Go comes each second; what two of them can become has room. */
	fastpath->rows_room = 2 * STATEMENTS * PLH_MAX_PROCESSES();
	fastpath->rows = MemoryContextAlloc(TopMemoryContext, sizeof(PlhSlotUse) * fastpath->rows_room);
}

/* ---- the budget of partition locks ---- */

static void
renew_budget(int64 now_ns)
{
	if (now_ns - fastpath->budget_since_ns < NANOS_PER_SECOND)
		return;
	fastpath->budget_since_ns = now_ns;
	fastpath->taken_here = fastpath->taken_elsewhere = 0;
}

/* Told by the other one that keeps to it, probe_rows.c. */
void
plh_count_partitions(uint32 taken)
{
	renew_budget(plh_monotonic_ns());
	fastpath->taken_elsewhere += taken;
}

/* True when a walk over all partitions can be paid for. */
static bool
can_walk(int64 now_ns)
{
	renew_budget(now_ns);
	return fastpath->taken_here + NUM_LOCK_PARTITIONS <= PARTITIONS_HERE &&
		fastpath->taken_here + fastpath->taken_elsewhere + NUM_LOCK_PARTITIONS <= PARTITIONS_EACH_SECOND;
}

/* ---- what went to the shared table for lack of a slot ---- */

/*
 * Partition lock held.  Counts relations, as a slot does, whatever modes are
 * held of one.  Left out is what would not have got a slot anyway: strong
 * modes, shared relations (which are of no database), and what somebody else
 * holds in a strong mode.  What somebody waits for in one counts: a lock that is
 * moved out of a slot for that leaves it empty, and the process is not full.
 */
static int32
count_spilled(PGPROC *proc, int32 partition, uint32 database)
{
	const LOCKMASK weak = LOCKBIT_ON(AccessShareLock) | LOCKBIT_ON(RowShareLock) | LOCKBIT_ON(RowExclusiveLock);
	const LOCKMASK strong = LOCKBIT_ON(ShareLock) | LOCKBIT_ON(ShareRowExclusiveLock) |
		LOCKBIT_ON(ExclusiveLock) | LOCKBIT_ON(AccessExclusiveLock);
	PROCLOCK   *entry = NULL;
	uint32		steps = 0;
	int32		n = 0;

	while ((entry = plh_next_own_proclock(proc, partition, entry)) != NULL && steps++ < MAX_OWN_LOCKS)
	{
		const LOCK *lock = entry->tag.myLock;

		if (entry->holdMask != 0 && (entry->holdMask & ~weak) == 0 &&
			lock->tag.locktag_type == LOCKTAG_RELATION && lock->tag.locktag_field1 == database &&
			(lock->grantMask & strong) == 0)
			n++;
	}
	return n;
}

/*
 * -1: it was on to another transaction meanwhile, or every partition was busy.
 * With some of them busy it is at least so many.
 */
static int32
walk_own_locks(PGPROC *proc, uint32 lxid, uint32 database, PlhWake *wake)
{
	uint32		taken = 0;
	uint32		busy = 0;
	int32		n = 0;
	int32		partition;

	for (partition = 0; partition < NUM_LOCK_PARTITIONS; partition++)
	{
		LWLock	   *lock = &MainLWLockArray[LOCK_MANAGER_LWLOCK_OFFSET + partition].lock;
		int64		since;

		if (!plh_has_own_proclocks(proc, partition))
			continue;
		if (!LWLockConditionalAcquire(lock, LW_SHARED))
		{
			busy++;
			continue;
		}
		since = plh_monotonic_ns();
		taken++;
		n += count_spilled(proc, partition, database);
		LWLockRelease(lock);
		plh_hist_add(wake->hold_hist, (uint64) (plh_monotonic_ns() - since));
	}
	fastpath->taken_here += taken;
	wake->partitions_taken += taken;
	wake->partitions_busy += busy;
	if (plh_lxid(proc) != lxid || (taken == 0 && busy > 0))
		return -1;
	return n;
}

/* ---- seconds ---- */

/* Turns what was seen of a process into rows. */
static void
put_down(Holder *holder, uint32 number)
{
	uint32		i;

	for (i = 0; i < holder->n_seen; i++)
	{
		const Seen *seen = &holder->seen[i];
		PlhSlotUse *row;

		if (fastpath->n_rows >= fastpath->rows_room)
		{
			fastpath->lost++;
			continue;
		}
		row = &fastpath->rows[fastpath->n_rows++];
		row->second = fastpath->second;
		row->query_id = seen->query_id;
		row->slot = (int32_t) number;
		row->pid = holder->pid;
		row->database = holder->database;
		row->role = holder->role;
		row->slots_used = seen->slots_used;
		row->spilled = seen->spilled;
		row->looks = seen->looks;
		row->looks_full = seen->looks_full;
	}
	holder->pid = 0;
}

static void
close_second(void)
{
	uint32		i;

	if (fastpath->second == 0)
		return;
	for (i = plh_slot(0); i < PLH_MAX_PROCESSES(); i = plh_slot(i + 1))
	{
		if (fastpath->holders[i].pid == 0)
			continue;
		if (fastpath->is_worth_it)
			put_down(&fastpath->holders[i], i);
		fastpath->holders[i].pid = 0;
	}
	if (!fastpath->is_worth_it)
		fastpath->n_rows = fastpath->n_complete;	/* of processes that have left */
	fastpath->n_complete = fastpath->n_rows;
	fastpath->second = 0;
	fastpath->is_worth_it = false;
}

static uint32
locks_of(const Seen *seen)
{
	return seen->slots_used + (uint32) Max(seen->spilled, 0);
}

/* Adds one look to what was seen of the process. */
static void
add_seen(Holder *holder, const Seen *look)
{
	Seen	   *lightest = &holder->seen[0];
	uint32		i;

	for (i = 0; i < holder->n_seen; i++)
	{
		Seen	   *seen = &holder->seen[i];

		if (seen->query_id == look->query_id)
		{
			seen->slots_used = Max(seen->slots_used, look->slots_used);
			seen->spilled = Max(seen->spilled, look->spilled);
			seen->looks += look->looks;
			seen->looks_full += look->looks_full;
			return;
		}
		if (locks_of(seen) < locks_of(lightest))
			lightest = seen;
	}
	if (holder->n_seen < STATEMENTS)
		holder->seen[holder->n_seen++] = *look;
	else if (locks_of(look) > locks_of(lightest))
		*lightest = *look;
}

/* ---- the look ---- */

/*
 * Which statement made it so many.  The transaction keeps its locks while it
 * runs others or is idle, so what is told is not the last one but the one that
 * ran when there were more than before.
 */
static int64
whose_locks(Holder *holder, const PGPROC *proc, uint32 lxid, const Seen *seen)
{
	bool		more = holder->query_id == 0;

	if (holder->owner != holder->pid || holder->lxid != lxid)
	{
		holder->owner = holder->pid;
		holder->lxid = lxid;
		holder->slots_used = 0;
		holder->spilled = -1;
	}
	if (seen->slots_used > holder->slots_used)
	{
		holder->slots_used = seen->slots_used;
		more = true;
	}
	if (seen->spilled > holder->spilled)
	{
		/* Not when they are counted for the first time: they were there before. */
		more |= holder->spilled >= 0;
		holder->spilled = seen->spilled;
	}
	if (more)
	{
		PgBackendStatus *entry = plh_status_of(fastpath->status_array, proc, holder->pid);

		holder->query_id = entry ? (int64) *(volatile uint64 *) &entry->st_query_id : 0;
	}
	return holder->query_id;
}

typedef struct Look
{
	int64		now_ns;
	PlhWake    *wake;
	uint32		words_left;
	bool		walked;			/* one walk a look, so that the budget lasts for the second */
} Look;

static void
look_at(uint32 number, Look *look)
{
	PGPROC	   *proc = &ProcGlobal->allProcs[number];
	Holder	   *holder = &fastpath->holders[number];
	uint32		lxid = plh_lxid(proc);
	const uint64 *words;
	int			pid;
	uint32		group;
	Seen		seen = {0};

	if (lxid == 0)
		return;
	pid = *(const volatile int *) &proc->pid;
	if (pid == 0 || pid == MyProcPid || !plh_is_alive(proc, pid))
		return;
	words = plh_fastpath_words(proc);
	if (words == NULL)
		return;
	look->words_left -= Min(look->words_left, PLH_FASTPATH_GROUPS());
	for (group = 0; group < PLH_FASTPATH_GROUPS(); group++)
	{
		uint64		word = *(const volatile uint64 *) &words[group];
		uint32		used = (uint32) __builtin_popcountll((word | word >> 1 | word >> 2) & PLH_FASTPATH_FIRST_BITS);

		seen.slots_used += used;
		if (used == PLH_FASTPATH_GROUP_SLOTS)
			seen.looks_full = 1;
	}
	if (seen.slots_used == 0 || !plh_is_alive(proc, pid))
		return;

	if (holder->pid != pid)
	{
		/* The first of it in this second, or another one has left the slot. */
		if (holder->pid != 0)
			put_down(holder, number);
		holder->pid = pid;
		holder->database = *(const volatile Oid *) &proc->databaseId;
		holder->role = *(const volatile Oid *) &proc->roleId;
		holder->walked = false;
		holder->n_seen = 0;
	}
	seen.looks = 1;
	seen.spilled = -1;
	if (seen.looks_full && !holder->walked && !look->walked && can_walk(look->now_ns))
	{
		seen.spilled = walk_own_locks(proc, lxid, holder->database, look->wake);
		holder->walked = seen.spilled >= 0;
		look->walked = true;
		fastpath->next = number + 1;	/* the others have their turn */
	}
	if (seen.looks_full || 2 * seen.slots_used >= PLH_FASTPATH_GROUPS() * PLH_FASTPATH_GROUP_SLOTS)
	{
		fastpath->is_worth_it = true;
		seen.query_id = whose_locks(holder, proc, lxid, &seen);
	}
	add_seen(holder, &seen);
}

/* Called at each due tick while load is sampled. */
void
plh_note_fastpath(PlhWake *wake, int64 period_ns)
{
	int64		second = wake->now - wake->now % MICROS_PER_SECOND;
	Look		look = {0};
	uint32		number;
	uint32		left;

	if (fastpath->second != 0 && fastpath->second != second)
		close_second();
	if (wake->now_ns - fastpath->last_look_ns < LOOK_EVERY_NS - period_ns / 2)
		return;
	fastpath->last_look_ns = wake->now_ns;
	fastpath->second = second;

	look.now_ns = wake->now_ns;
	look.wake = wake;
	look.words_left = WORDS_EACH_LOOK;
	for (left = plh_slots_watched(), number = fastpath->next; left > 0 && look.words_left > 0; left--)
	{
		number = plh_slot(number) < PLH_MAX_PROCESSES() ? plh_slot(number) : plh_slot(0);
		look_at(number++, &look);
	}
	if (left > 0)
		fastpath->next = number;
}

/* Load is not sampled any more. */
void
plh_forget_fastpath(void)
{
	close_second();
	fastpath->last_look_ns = 0;
}

int32_t
plh_probe_fastpath(uint32_t finish, PlhSlotUse *rows, uint32_t room, PlhFastPath *answer)
{
	plh_enter_probe();
	memset(answer, 0, sizeof(*answer));
	answer->slots = PLH_FASTPATH_GROUPS() * PLH_FASTPATH_GROUP_SLOTS;
	answer->max_locks = (uint32_t) max_locks_per_xact;
	if (finish)
		close_second();
	answer->n_rows = fastpath->n_complete;
	if (room < fastpath->n_complete)
	{
		plh_leave_probe();
		return PLH_TOO_SMALL;
	}
	memcpy(rows, fastpath->rows, sizeof(PlhSlotUse) * fastpath->n_complete);
	fastpath->n_rows -= fastpath->n_complete;
	memmove(fastpath->rows, fastpath->rows + fastpath->n_complete, sizeof(PlhSlotUse) * fastpath->n_rows);
	fastpath->n_complete = 0;
	answer->lost = fastpath->lost;
	fastpath->lost = 0;
	plh_leave_probe();
	return PLH_OK;
}
