/*
 * probe_rows.c
 *		Finds the row behind a wait for a transaction.
 *
 * Whoever waits for another's transaction because of a row has locked that
 * tuple before, and holds it until the wait is over: it stands first in the
 * queue on the row.  The lock it waits for says nothing about the row, so its
 * own locks are looked through.
 *
 * Locking.  The list of a process's locks in one partition is stable while that
 * partition's lock is held, shared.  One at a time is taken, when it is free,
 * and only where there is something to see: that is read without the lock, for
 * a process that sleeps takes no locks, and what others put into its lists
 * (relation locks out of its fast path) is none of a tuple.
 */
#include "plh.h"

#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"

#include "compat.h"

/*
 * Locks looked at in one partition: about one cache miss each while it is held.
 * A process with more of them there stays without its row.
 */
#define MAX_OWN_LOCKS 256

/* No lock needed: a process that waits for this lock since then is the one meant. */
static bool
still_waits(const PlhRow *row)
{
	const PGPROC *proc = &ProcGlobal->allProcs[row->slot];

	return (uint64_t) (uintptr_t) *(LOCK *const volatile *) &proc->waitLock == row->lock &&
		*(const volatile int *) &proc->pid == row->pid &&
		(row->wait_start == 0 ||	/* not published when it was looked at */
		 (int64_t) pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &proc->waitStart)) == row->wait_start);
}

/* Partition lock held.  True when the process holds a tuple there. */
static bool
copy_tuple(PGPROC *proc, int32 partition, PlhRow *row)
{
	PROCLOCK   *entry = NULL;
	uint32		steps = 0;

	while ((entry = plh_next_own_proclock(proc, partition, entry)) != NULL && steps++ < MAX_OWN_LOCKS)
	{
		const LOCKTAG *tag = &entry->tag.myLock->tag;

		if (tag->locktag_type != LOCKTAG_TUPLE || entry->holdMask == 0)
			continue;
		row->database = tag->locktag_field1;
		row->relation = tag->locktag_field2;
		row->page = tag->locktag_field3;
		row->tuple = tag->locktag_field4;
		return true;
	}
	return false;
}

static int32_t
find_row(PlhRow *row)
{
	PGPROC	   *proc = &ProcGlobal->allProcs[row->slot];
	int32		partition;
	bool		found = false;

	row->status = PLH_ROW_GONE;
	for (partition = 0; partition < NUM_LOCK_PARTITIONS && !found; partition++)
	{
		LWLock	   *lock = &MainLWLockArray[LOCK_MANAGER_LWLOCK_OFFSET + partition].lock;

		if (!plh_has_own_proclocks(proc, partition))
			continue;
		if (!LWLockConditionalAcquire(lock, LW_SHARED))
		{
			row->partitions_busy++;
			continue;
		}
		row->partitions_taken++;
		found = copy_tuple(proc, partition, row);
		LWLockRelease(lock);
	}

	/* All that was of the wait that was meant, if it still is that wait. */
	if (!still_waits(row))
		return PLH_OK;
	if (!found && row->partitions_busy > 0)
		return PLH_BUSY;
	row->status = found ? PLH_ROW_FOUND : PLH_ROW_NONE;
	return PLH_OK;
}

int32_t
plh_probe_row(PlhRow *row)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_OK;

	row->status = PLH_ROW_GONE;
	row->partitions_taken = row->partitions_busy = 0;
	if (row->slot < 0 || (uint32) row->slot >= PLH_MAX_PROCESSES() || !still_waits(row))
		return PLH_OK;

	plh_enter_probe();
	PG_TRY();
	{
		result = find_row(row);
		plh_count_partitions(row->partitions_taken);
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
	return result;
}
