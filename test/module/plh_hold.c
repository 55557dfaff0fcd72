/*
 * plh_hold.c
 *		For tests: holds an LWLock, or a page, for some time.
 *
 * Everybody who needs what is held waits, and nothing can end that early. Not
 * for a server that is used.
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/relation.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/wait_event.h"

PG_MODULE_MAGIC;

#define OWN_TRANCHE "plh_hold"
#define OWN_LOCKS 3

static shmem_request_hook_type previous_request_hook = NULL;

static void
request_locks(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestNamedLWLockTranche(OWN_TRANCHE, OWN_LOCKS);
}

void		_PG_init(void);

void
_PG_init(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_locks;
}

static LWLockMode
mode_of(text *word)
{
	return strcmp(text_to_cstring(word), "shared") == 0 ? LW_SHARED : LW_EXCLUSIVE;
}

/* The event of those who wait for the content of a page, up to 18; from 19 on it is of the class below. */
#if PG_VERSION_NUM < 190000
#define CONTENT_TRANCHE LWTRANCHE_BUFFER_CONTENT
#else
#define CONTENT_TRANCHE 0
#endif

/* How many other processes wait for an LWLock of this tranche, or for a page. */
static int
count_waiters(uint16 tranche)
{
	int			n = 0;
	uint32		i;

	for (i = 0; i < ProcGlobal->allProcCount; i++)
	{
		uint32		event = ProcGlobal->allProcs[i].wait_event_info;

		/* 4: BufferPin, or Buffer. */
		if (event == (PG_WAIT_LWLOCK | tranche) || (event & 0xFF000000) == 0x04000000)
			n++;
	}
	return n;
}

/*
 * Tells by an empty file that it is held, and keeps it for so long after that so many
 * wait at once, whenever the machine lets them come; not more than a minute.  Others
 * wait for a lock of the same name now and then, but not in so many looks one after the other.
 */
static void
stay(text *mark, double seconds, int waiters, uint16 tranche)
{
	int			tries;
	int			looks = 0;

	close(open(text_to_cstring(mark), O_CREAT | O_WRONLY, 0600));
	for (tries = 0; looks < 50 && tries < 60000; tries++)
	{
		looks = count_waiters(tranche) >= waiters ? looks + 1 : 0;
		pg_usleep(1000);
	}
	pg_usleep((long) (seconds * 1000000));
}

/* The locks of the tranche; *n how many. */
static LWLockPadded *
locks_of(const char *name, int *n)
{
	int			i;

	*n = 1;
	for (i = 0; i < NUM_INDIVIDUAL_LWLOCKS; i++)
	{
		const char *its = GetLWLockIdentifier(PG_WAIT_LWLOCK, (uint16) i);

		/* From 17 on numbers out of use have no name. */
		if (its != NULL && strcmp(its, name) == 0)
			return &MainLWLockArray[i];
	}
	if (strcmp(name, "BufferMapping") == 0)
	{
		*n = NUM_BUFFER_PARTITIONS;
		return &MainLWLockArray[BUFFER_MAPPING_LWLOCK_OFFSET];
	}
	if (strcmp(name, "LockManager") == 0)
	{
		*n = NUM_LOCK_PARTITIONS;
		return &MainLWLockArray[LOCK_MANAGER_LWLOCK_OFFSET];
	}
	if (strcmp(name, "PredicateLockManager") == 0)
	{
		*n = NUM_PREDICATELOCK_PARTITIONS;
		return &MainLWLockArray[PREDICATELOCK_MANAGER_LWLOCK_OFFSET];
	}
	*n = OWN_LOCKS;
	return GetNamedLWLockTranche(name);
}

/* hold_lwlock(tranche, number, mode, seconds, mark, waiters): number -1 means all of them. */
PG_FUNCTION_INFO_V1(hold_lwlock);
Datum
hold_lwlock(PG_FUNCTION_ARGS)
{
	int			n;
	LWLockPadded *locks = locks_of(text_to_cstring(PG_GETARG_TEXT_PP(0)), &n);
	int			number = PG_GETARG_INT32(1);
	LWLockMode	mode = mode_of(PG_GETARG_TEXT_PP(2));
	int			i;

	for (i = 0; i < n; i++)
		if (number < 0 || i == number)
			LWLockAcquire(&locks[i].lock, mode);
	stay(PG_GETARG_TEXT_PP(4), PG_GETARG_FLOAT8(3), PG_GETARG_INT32(5), locks[0].lock.tranche);
	for (i = n - 1; i >= 0; i--)
		if (number < 0 || i == number)
			LWLockRelease(&locks[i].lock);
	PG_RETURN_VOID();
}

/* hold_fast_path(pid, seconds, mark, waiters) */
PG_FUNCTION_INFO_V1(hold_fast_path);
Datum
hold_fast_path(PG_FUNCTION_ARGS)
{
	PGPROC	   *proc = BackendPidGetProc(PG_GETARG_INT32(0));

	if (proc == NULL)
		elog(ERROR, "no such process");
	LWLockAcquire(&proc->fpInfoLock, LW_EXCLUSIVE);
	stay(PG_GETARG_TEXT_PP(2), PG_GETARG_FLOAT8(1), PG_GETARG_INT32(3), proc->fpInfoLock.tranche);
	LWLockRelease(&proc->fpInfoLock);
	PG_RETURN_VOID();
}

/* hold_page(relation, block, mode, seconds, mark, waiters) */
PG_FUNCTION_INFO_V1(hold_page);
Datum
hold_page(PG_FUNCTION_ARGS)
{
	Relation	relation = relation_open(PG_GETARG_OID(0), AccessShareLock);
	Buffer		buffer = ReadBuffer(relation, (BlockNumber) PG_GETARG_INT32(1));

	LockBuffer(buffer, mode_of(PG_GETARG_TEXT_PP(2)) == LW_SHARED ? BUFFER_LOCK_SHARE : BUFFER_LOCK_EXCLUSIVE);
	stay(PG_GETARG_TEXT_PP(4), PG_GETARG_FLOAT8(3), PG_GETARG_INT32(5), CONTENT_TRANCHE);
	UnlockReleaseBuffer(buffer);
	relation_close(relation, AccessShareLock);
	PG_RETURN_VOID();
}

/* pin_page(relation, block, seconds, mark, waiters): pinned and not locked */
PG_FUNCTION_INFO_V1(pin_page);
Datum
pin_page(PG_FUNCTION_ARGS)
{
	Relation	relation = relation_open(PG_GETARG_OID(0), AccessShareLock);
	Buffer		buffer = ReadBuffer(relation, (BlockNumber) PG_GETARG_INT32(1));

	stay(PG_GETARG_TEXT_PP(3), PG_GETARG_FLOAT8(2), PG_GETARG_INT32(4), CONTENT_TRANCHE);
	ReleaseBuffer(buffer);
	relation_close(relation, AccessShareLock);
	PG_RETURN_VOID();
}

/* lock_partition(relation): in which partition of the lock manager its lock is */
PG_FUNCTION_INFO_V1(lock_partition);
Datum
lock_partition(PG_FUNCTION_ARGS)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, PG_GETARG_OID(0));
	PG_RETURN_INT32((int32) LockHashPartition(LockTagHashCode(&tag)));
}
