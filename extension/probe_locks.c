/*
 * probe_locks.c
 *		Copies the locks that somebody waits for: holders in the way, and the
 *		queue in order.
 *
 * Locking.  A lock is stable while its partition lock is held, shared: every
 * change to a LOCK, its PROCLOCKs, its queue, and to waitLock, waitProcLock
 * and waitLockMode of its waiters is made under that lock, exclusive.  Only
 * the partitions of awaited locks are taken, in ascending order, up to
 * TOGETHER of them at once; with more, one at a time, and the answer is marked
 * as not taken at one moment.  Nothing is allocated and nothing can raise an
 * error while one is held; the walk costs about one cache miss an entry.
 *
 * Safety of following waitLock.  LOCK memory belongs to a shared hash table:
 * never unmapped, but an entry may be freed and used for another lock at any
 * time before we hold the right partition.  So the tag is copied unlocked,
 * its partition locked, and then both is asked again: does the process still
 * wait for this LOCK, and does its tag still belong to the partition held?
 */
#include "plh.h"

#include "access/twophase.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/memutils.h"

#include "compat.h"

/*
 * Partition locks held together for a picture of one moment.  More would be
 * felt by sessions that need any of them; usually one is enough.
 */
#define TOGETHER 4

/* Holders copied of one lock; a lock with more is marked as cut. */
#define MAX_HOLDERS 1024

/* One process that waits, as far as known before its partition is locked. */
typedef struct Target
{
	LOCK	   *lock;
	int32		slot;
	int32		partition;
} Target;

typedef struct Output
{
	PlhLock    *locks;
	PlhHolder  *holders;
	PlhQueued  *queue;
	uint32_t	locks_room;
	uint32_t	holders_room;
	uint32_t	queue_room;
	PlhWalk    *walk;
} Output;

/* The worker's own; room for every process, made once. */
static Target *targets;

/* Main code of the worker, before Go runs: may raise. */
void
plh_prepare_lock_probe(void)
{
	targets = MemoryContextAllocZero(TopMemoryContext,
									 sizeof(Target) * PLH_MAX_PROCESSES());
}

static LWLock *
partition_lock(int32 partition)
{
	return &MainLWLockArray[LOCK_MANAGER_LWLOCK_OFFSET + partition].lock;
}

static int
compare_targets(const void *a, const void *b)
{
	const Target *x = a;
	const Target *y = b;

	if (x->partition != y->partition)
		return x->partition < y->partition ? -1 : 1;
	if (x->lock != y->lock)
		return (uintptr_t) x->lock < (uintptr_t) y->lock ? -1 : 1;
	return x->slot - y->slot;
}

/*
 * Fetches what copy_queue() will read of a waiter into the cache, before the
 * partition is locked: most of the time it would be held is cache misses.  A
 * prefetch needs no valid pointer, so it does not matter if it is out of date.
 */
static void
warm(const PGPROC *proc)
{
	const PROCLOCK *entry = *(PROCLOCK *const volatile *) &proc->waitProcLock;

	__builtin_prefetch(&proc->PLH_WAIT_LINK);
	__builtin_prefetch(&proc->pid);
	__builtin_prefetch((const char *) &proc->waitStart);
	__builtin_prefetch(entry);
	__builtin_prefetch((const char *) entry + sizeof(PROCLOCK) - 1);
}

/* Where the awaited locks live; read without any lock, so only a guess. */
static uint32
find_targets(const PlhWait *waits, uint32_t n_waits, PlhWalk *walk)
{
	uint32		n = 0;
	uint32		i;

	for (i = 0; i < n_waits && n < PLH_MAX_PROCESSES(); i++)
	{
		LOCK	   *lock;
		LOCKTAG		tag;

		if (waits[i].status != PLH_WAITING || waits[i].slot < 0 ||
			(uint32) waits[i].slot >= PLH_MAX_PROCESSES())
			continue;
		lock = *(LOCK *const volatile *) &ProcGlobal->allProcs[waits[i].slot].waitLock;
		if (lock == NULL)
		{
			walk->n_moved++;
			continue;
		}
		pg_read_barrier();
		tag = *(const volatile LOCKTAG *) &lock->tag;
		warm(&ProcGlobal->allProcs[waits[i].slot]);
		targets[n].lock = lock;
		targets[n].slot = waits[i].slot;
		targets[n].partition = (int32) LockHashPartition(LockTagHashCode(&tag));
		n++;
	}
	qsort(targets, n, sizeof(Target), compare_targets);
	return n;
}

/* Partition lock held. True when slot waits for lock, and lock lives here. */
static bool
still_waits(const Target *target)
{
	const PGPROC *proc = &ProcGlobal->allProcs[target->slot];

	return *(LOCK *const volatile *) &proc->waitLock == target->lock &&
		(int32) LockHashPartition(LockTagHashCode(&target->lock->tag)) == target->partition;
}

/* Partition lock held.  All modes that stand against one that is waited for. */
static LOCKMASK
modes_in_the_way(const LOCK *lock)
{
	LockMethod	method = GetLocksMethodTable(lock);
	LOCKMASK	mask = 0;
	int			mode;

	for (mode = 1; mode <= method->numLockModes; mode++)
		if (lock->waitMask & LOCKBIT_ON(mode))
			mask |= method->conflictTab[mode];
	return mask;
}

/*
 * Partition lock held.  PGPROC memory is permanent, so pids may be read; a
 * member of a lock group lets go of its locks before it leaves the group, and
 * the leader's slot is not used again while there are members.
 */
static void
copy_holders(LOCK *lock, PlhLock *to, Output *out)
{
	PlhWalk    *walk = out->walk;
	LOCKMASK	in_the_way = modes_in_the_way(lock);
	uint32		bound = PLH_MAX_PROCESSES() + (uint32) max_prepared_xacts;
	PROCLOCK   *entry = NULL;
	uint32		steps = 0;

	to->first_holder = walk->n_holders;
	while ((entry = plh_next_proclock(lock, entry)) != NULL)
	{
		PGPROC	   *proc = entry->tag.myProc;
		PGPROC	   *leader = entry->groupLeader;
		PlhHolder  *holder;

		if (steps++ >= bound)
			break;				/* no lock has more entries than processes */
		if ((entry->holdMask & in_the_way) == 0)
			continue;
		if (to->n_holders >= MAX_HOLDERS || walk->n_holders >= out->holders_room)
		{
			to->flags |= PLH_LOCK_TRUNCATED;
			if (walk->n_holders >= out->holders_room)
				walk->flags |= PLH_WALK_OVERFLOW;
			break;
		}
		holder = &out->holders[walk->n_holders++];
		to->n_holders++;
		memset(holder, 0, sizeof(*holder));
		holder->slot = plh_slot_of(proc);
		holder->pid = proc->pid;
		holder->leader_slot = plh_slot_of(leader);
		holder->leader_pid = leader->pid;
		holder->hold_mask = (uint32_t) entry->holdMask;
		if (proc->pid == 0 && holder->slot >= (int32) PLH_MAX_PROCESSES())
		{
			holder->flags = PLH_HOLDER_PREPARED;
			holder->xid = proc->xid;
			holder->database = proc->databaseId;
			holder->role = proc->roleId;
		}
	}
}

/* Partition lock held. */
static void
copy_queue(LOCK *lock, PlhLock *to, Output *out)
{
	PlhWalk    *walk = out->walk;
	PGPROC	   *proc = NULL;
	uint32		steps = 0;

	to->first_queued = walk->n_queued;
	while ((proc = plh_next_waiter(lock, proc)) != NULL)
	{
		PGPROC	   *leader;
		PlhQueued  *queued;

		if (steps++ >= PLH_MAX_PROCESSES() || walk->n_queued >= out->queue_room)
		{
			to->flags |= PLH_LOCK_TRUNCATED;
			walk->flags |= PLH_WALK_OVERFLOW;
			break;
		}
		leader = proc->waitProcLock ? proc->waitProcLock->groupLeader : proc;
		queued = &out->queue[walk->n_queued++];
		to->n_queued++;
		memset(queued, 0, sizeof(*queued));
		queued->wait_start = (int64_t) pg_atomic_read_u64(&proc->waitStart);
		queued->slot = plh_slot_of(proc);
		queued->pid = proc->pid;
		queued->leader_slot = plh_slot_of(leader);
		queued->leader_pid = leader->pid;
		queued->mode = proc->waitLockMode;
	}
}

/* Partition lock held.  Copies the locks of targets[from..to). */
static void
copy_partition(uint32 from, uint32 to, uint32_t flags, Output *out)
{
	PlhWalk    *walk = out->walk;
	uint32		i = from;

	while (i < to)
	{
		LOCK	   *lock = targets[i].lock;
		uint32		same = i;
		bool		found = false;

		/* The waiters of one lock stand together; one that still waits is enough. */
		while (same < to && targets[same].lock == lock)
		{
			if (!found && still_waits(&targets[same]))
				found = true;
			else if (!found)
				walk->n_moved++;
			same++;
		}
		i = same;
		if (!found)
			continue;
		if (walk->n_locks >= out->locks_room)
		{
			walk->flags |= PLH_WALK_OVERFLOW;
			return;
		}
		{
			PlhLock    *copy = &out->locks[walk->n_locks++];

			memset(copy, 0, sizeof(*copy));
			copy->lock = (uint64_t) (uintptr_t) lock;
			copy->field1 = lock->tag.locktag_field1;
			copy->field2 = lock->tag.locktag_field2;
			copy->field3 = lock->tag.locktag_field3;
			copy->field4 = lock->tag.locktag_field4;
			copy->type = lock->tag.locktag_type;
			copy->method = lock->tag.locktag_lockmethodid;
			copy->total_granted = (uint32_t) lock->nGranted;
			copy->flags = flags;
			copy_holders(lock, copy, out);
			copy_queue(lock, copy, out);
		}
	}
}

static bool
take_partition(int32 partition, PlhWalk *walk)
{
	LWLock	   *lock = partition_lock(partition);

	if (walk->request & PLH_WALK_INSIST)
		LWLockAcquire(lock, LW_SHARED);
	else if (!LWLockConditionalAcquire(lock, LW_SHARED))
	{
		walk->partitions_busy++;
		return false;
	}
	walk->partitions_taken++;
	return true;
}

/* One moment for all: the partitions are held together. */
static int32_t
copy_together(const uint32 *start, uint32 n_partitions, Output *out)
{
	PlhWalk    *walk = out->walk;
	int64		held_since[TOGETHER];
	int64		let_go[TOGETHER];
	uint32		taken;
	uint32		i;
	bool		all = true;

	for (taken = 0; taken < n_partitions; taken++)
	{
		if (!take_partition(targets[start[taken]].partition, walk))
		{
			all = false;
			break;
		}
		held_since[taken] = plh_monotonic_ns();
	}
	if (all)
	{
		walk->taken_at = (int64_t) GetCurrentTimestamp();
		for (i = 0; i < n_partitions; i++)
			copy_partition(start[i], start[i + 1], 0, out);
	}
	for (i = taken; i > 0; i--)
	{
		LWLockRelease(partition_lock(targets[start[i - 1]].partition));
		let_go[i - 1] = plh_monotonic_ns();
	}
	for (i = 0; i < taken; i++)
		plh_hist_add(walk->hold_hist, (uint64) (let_go[i] - held_since[i]));
	return all ? PLH_OK : PLH_BUSY;
}

/* Too many partitions: one after the other, each at its own moment. */
static int32_t
copy_apart(const uint32 *start, uint32 n_partitions, Output *out)
{
	PlhWalk    *walk = out->walk;
	int32_t		result = PLH_OK;
	uint32		i;

	walk->flags |= PLH_WALK_APART;
	walk->taken_at = (int64_t) GetCurrentTimestamp();
	for (i = 0; i < n_partitions; i++)
	{
		int32		partition = targets[start[i]].partition;
		int64		since;

		if (!take_partition(partition, walk))
		{
			result = PLH_BUSY;
			break;				/* an incomplete graph would show wrong roots */
		}
		since = plh_monotonic_ns();
		copy_partition(start[i], start[i + 1], PLH_LOCK_APART, out);
		LWLockRelease(partition_lock(partition));
		plh_hist_add(walk->hold_hist, (uint64) (plh_monotonic_ns() - since));
	}
	return result;
}

static int32_t
walk_locks(const PlhWait *waits, uint32_t n_waits, Output *out)
{
	uint32		n = find_targets(waits, n_waits, out->walk);
	uint32		start[NUM_LOCK_PARTITIONS + 1];
	uint32		n_partitions = 0;
	uint32		i;

	for (i = 0; i < n; i++)
		if (i == 0 || targets[i].partition != targets[i - 1].partition)
			start[n_partitions++] = i;
	start[n_partitions] = n;

	if (n_partitions <= TOGETHER)
		return copy_together(start, n_partitions, out);
	return copy_apart(start, n_partitions, out);
}

int32_t
plh_probe_locks(const PlhWait *waits, uint32_t n_waits,
				PlhLock *locks, uint32_t locks_room,
				PlhHolder *holders, uint32_t holders_room,
				PlhQueued *queue, uint32_t queue_room,
				PlhWalk *walk)
{
	MemoryContext caller = CurrentMemoryContext;
	Output		out;
	uint32_t	request = walk->request;
	int64		started = plh_monotonic_ns();
	int32_t		result;

	memset(walk, 0, sizeof(*walk));
	walk->request = request;
	out.locks = locks;
	out.holders = holders;
	out.queue = queue;
	out.locks_room = locks_room;
	out.holders_room = holders_room;
	out.queue_room = queue_room;
	out.walk = walk;

	plh_enter_probe();
	PG_TRY();
	{
		result = walk_locks(waits, n_waits, &out);
	}
	PG_CATCH();
	{
		/* Not expected; but no partition may stay locked whatever happens. */
		LWLockReleaseAll();
		plh_keep_error(caller);
		result = PLH_ERROR;
	}
	PG_END_TRY();
	plh_leave_probe();

	walk->walk_ns = (uint32_t) Min(plh_monotonic_ns() - started, PG_UINT32_MAX);
	return result;
}

int32_t
plh_probe_conflicts(uint32_t *conflict, uint32_t room)
{
	LOCKTAG		tag;
	LockMethod	method;
	int			mode;

	/* Both lock methods share one table; any tag of the default one leads to it. */
	memset(&tag, 0, sizeof(tag));
	SET_LOCKTAG_RELATION(tag, 0, 0);
	method = GetLockTagsMethodTable(&tag);
	if (room < (uint32_t) method->numLockModes + 1)
		return PLH_TOO_SMALL;
	conflict[0] = 0;
	for (mode = 1; mode <= method->numLockModes; mode++)
		conflict[mode] = (uint32_t) method->conflictTab[mode];
	return PLH_OK;
}
