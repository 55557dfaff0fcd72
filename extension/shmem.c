/*
 * shmem.c
 *		The small area in which the worker and the sessions meet: the
 *		worker's status, and the tickets of flush().
 *
 * It is made by the postmaster at start and again after a crash.  Locking is
 * told field by field at PlhShared in plh.h.
 */
#include "plh.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "compat.h"

#define TRANCHE_NAME "pg_lock_history"

/* Set in the postmaster, inherited by every process; never changed later. */
PlhShared  *plh_shared = NULL;

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void
request_shmem(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(PlhShared)));
	RequestAddinShmemSpace(MAXALIGN(plh_live_size()));
	RequestAddinShmemSpace(MAXALIGN(plh_failures_size()));
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

static void
start_shmem(void)
{
	bool		found;

	if (previous_startup_hook)
		previous_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	plh_shared = ShmemInitStruct("pg_lock_history", sizeof(PlhShared), &found);
	if (!found)
	{
		memset(plh_shared, 0, sizeof(PlhShared));
		plh_shared->lock = &(GetNamedLWLockTranche(TRANCHE_NAME))->lock;
		pg_atomic_init_u32(&plh_shared->worker_slot, PLH_NO_SLOT);
		pg_atomic_init_u32(&plh_shared->worker_pid, 0);
		pg_atomic_init_u64(&plh_shared->worker_start, 0);
		pg_atomic_init_u64(&plh_shared->last_tick, 0);
		pg_atomic_init_u32(&plh_shared->slots_watched, 0);
		pg_atomic_init_u64(&plh_shared->flush_requested, 0);
		pg_atomic_init_u64(&plh_shared->flush_done, 0);
		pg_atomic_init_u32(&plh_shared->poked, 0);
		pg_atomic_init_u32(&plh_shared->short_lives, 0);
		ConditionVariableInit(&plh_shared->flushed);
	}
	plh_init_live();
	plh_start_failures();
	LWLockRelease(AddinShmemInitLock);
}

void
plh_register_shmem(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = start_shmem;
}

/*
 * Makes the worker look at its flags.  PGPROC memory is permanent, so the
 * latch may be set even when the worker is just leaving: it is then without
 * an owner, or another process wakes up once for nothing.
 */
void
plh_wake_worker(void)
{
	uint32		slot = pg_atomic_read_u32(&plh_shared->worker_slot);

	if (slot != PLH_NO_SLOT)
		SetLatch(&ProcGlobal->allProcs[slot].procLatch);
}
