/*
 * probe_lwlocks.c
 *		Which LWLock a process waits for, and what stands ahead of it.
 *
 * A process tells the tranche and the mode that it waits with, not the lock.
 * But the locks know who waits: each has a queue of processes.  So the locks of
 * the awaited tranches are looked at, as far as their place is known, and
 * whoever is found in the queue of one waits for that.  Of a lock that is found,
 * one word tells whether it is held exclusively, or shared and how often; who
 * holds it is recorded nowhere.
 *
 * Not found are the locks of tranches whose place only their owners know (WAL
 * insertion, SLRU buffers, dynamic shared memory), and a process that has been
 * woken, is in no queue any more and does not run yet.
 *
 * Locking.  None, not even the spinlock of the queues: they are walked while
 * others change them.  Numbers of processes are checked before they are used,
 * a walk ends after as many steps as there are processes, and a step counts only
 * if the links agree in both directions and the lock still has the head that
 * the walk began with.  Only called when somebody waits.
 */
#include "plh.h"

#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "compat.h"

/*
 * Of the locks that an extension asked for under one name so many are looked
 * at: two bytes are read of each while somebody waits for one of them.
 */
#define MAX_MEMBERS 1024

/* A queue that changes while it is walked is walked so often: those behind are found, too. */
#define QUEUE_TRIES 3

/* Locks of one tranche that lie side by side. */
typedef struct Range
{
	uint32		event;			/* wait_event_info of those that wait for them */
	int32		kind;			/* PlhTargetKind */
	const LWLockPadded *first;
	uint32		n;
} Range;

/* Made when the worker starts and never changed: tranches get no further locks here. */
static Range *ranges = NULL;
static uint32 n_ranges;

static void
add_range(uint16 tranche, int32 kind, const LWLockPadded *first, uint32 n)
{
	Size		size = sizeof(Range) * (n_ranges + 1);
	Range	   *range;

	ranges = ranges == NULL ? MemoryContextAlloc(TopMemoryContext, size) : repalloc(ranges, size);
	range = &ranges[n_ranges++];
	range->event = PG_WAIT_LWLOCK | tranche;
	range->kind = kind;
	range->first = first;
	range->n = n;
}

/* Main code of the worker: may raise. */
void
plh_prepare_lwlocks(void)
{
	const LWLockPadded *first = &MainLWLockArray[NUM_FIXED_LWLOCKS];
	uint16		tranche = LWTRANCHE_FIRST_USER_DEFINED;

	add_range(LWTRANCHE_BUFFER_MAPPING, PLH_TARGET_PARTITION,
			  &MainLWLockArray[BUFFER_MAPPING_LWLOCK_OFFSET], NUM_BUFFER_PARTITIONS);
	add_range(LWTRANCHE_LOCK_MANAGER, PLH_TARGET_PARTITION,
			  &MainLWLockArray[LOCK_MANAGER_LWLOCK_OFFSET], NUM_LOCK_PARTITIONS);
	add_range(LWTRANCHE_PREDICATE_LOCK_MANAGER, PLH_TARGET_PARTITION,
			  &MainLWLockArray[PREDICATELOCK_MANAGER_LWLOCK_OFFSET], NUM_PREDICATELOCK_PARTITIONS);

	/* What extensions asked for, name by name. */
	while (plh_is_requested_lock(first, tranche))
	{
		uint32		n = 0;

		tranche = first->lock.tranche;
		while (plh_is_requested_lock(&first[n], tranche) && first[n].lock.tranche == tranche)
			n++;
		add_range(tranche, n == 1 ? PLH_TARGET_SINGLE : PLH_TARGET_MEMBER, first, Min(n, MAX_MEMBERS));
		first += n;
	}
}

static void
found(PlhWaiter *waiter, PlhHolders holders, const PlhTarget *target)
{
	waiter->target = *target;
	waiter->ahead_known = true;
	waiter->exclusive = holders.exclusive;
	waiter->shared = holders.shared;
}

/* True when a process with this wait event can stand in the queue. */
static bool
belongs_to(uint32 event, const PlhQueue *queue)
{
	return queue->event == PLH_CONTENT_EVENT ? plh_waits_for_content(event) : event == queue->event;
}

/*
 * Those who stand in the queue that begins with head wait for target; returns how
 * many were placed.  The walk ends when the head is another.
 */
uint32
plh_place_queue(PlhWaiters *waiters, const PlhQueue *queue, int head, const PlhTarget *target)
{
	int			current = head;
	int			previous = -1;
	uint32		steps = 0;
	uint32		placed = 0;

	/* Neither end of a list is a number of a process, whatever the version marks it by. */
	while (current >= 0 && (uint32) current < PLH_MAX_PROCESSES() && steps++ < PLH_MAX_PROCESSES())
	{
		const PGPROC *proc = &ProcGlobal->allProcs[current];
		int			next = *(const volatile int *) &proc->lwWaitLink.next;
		int			back;
		uint32		place = waiters->place[current];

		/* next was read while the process stood here, if it still does. */
		pg_read_barrier();
		back = *(const volatile int *) &proc->lwWaitLink.prev;
		if (plh_queue_head(queue->waiters) != head || (previous >= 0 && back != previous) ||
			*(const volatile uint8 *) &proc->lwWaiting == 0)
			break;
		if (place != 0)
		{
			PlhWaiter  *waiter = &waiters->all[place - 1];

			/* It may have come here after it was looked at, from another lock. */
			if (belongs_to(waiter->event, queue) && waiter->target.kind == PLH_TARGET_UNKNOWN &&
				waiter->raw_mode == *(const volatile uint8 *) &proc->lwWaitMode)
			{
				found(waiter, queue->holders(queue->lock), target);
				placed++;
			}
		}
		previous = current;
		current = next;
	}
	return placed;
}

/* The same, from whatever it begins with, and again when it changed meanwhile. */
static uint32
place(PlhWaiters *waiters, const LWLock *lock, uint32 event, const PlhTarget *target)
{
	const PlhQueue queue = {event, &lock->waiters, lock, plh_lwlock_holders};
	uint32		placed = 0;
	int			tries;

	for (tries = 0; tries < QUEUE_TRIES; tries++)
	{
		int			head = plh_queue_head(&lock->waiters);

		if (head < 0 || (uint32) head >= PLH_MAX_PROCESSES())
			break;
		placed += plh_place_queue(waiters, &queue, head, target);
		if (plh_queue_head(&lock->waiters) == head)
			break;
	}
	return placed;
}

static uint32
waiters_for(const PlhWaiters *waiters, uint32 event)
{
	uint32		n = 0;
	uint32		i;

	for (i = 0; i < waiters->n; i++)
		if (waiters->all[i].event == event)
			n++;
	return n;
}

static void
look_into(PlhWaiters *waiters, const Range *range)
{
	uint32		left = waiters_for(waiters, range->event);
	uint32		i;

	for (i = 0; left > 0 && i < range->n; i++)
	{
		PlhTarget	target = {0};

		target.kind = range->kind;
		if (range->kind != PLH_TARGET_SINGLE)
			target.number = i;
		left -= place(waiters, &range->first[i].lock, range->event, &target);
	}
}

/* Each process has a lock for the locks in its fast path. */
static void
look_into_fast_paths(PlhWaiters *waiters)
{
	uint32		event = PG_WAIT_LWLOCK | LWTRANCHE_LOCK_FASTPATH;
	uint32		left = waiters_for(waiters, event);
	uint32		i;

	for (i = plh_slot(0); left > 0 && i < PLH_MAX_PROCESSES(); i = plh_slot(i + 1))
	{
		const PGPROC *proc = &ProcGlobal->allProcs[i];
		PlhTarget	target = {0};

		target.kind = PLH_TARGET_PROCESS;
		target.number = (uint32) *(const volatile int *) &proc->pid;
		left -= place(waiters, &proc->fpInfoLock, event, &target);
	}
}

void
plh_find_lwlocks(PlhWaiters *waiters)
{
	uint32		i;

	/* Locks with a name of their own: their tranche is their place. */
	for (i = 0; i < waiters->n; i++)
	{
		PlhWaiter  *waiter = &waiters->all[i];
		uint32		tranche = waiter->event & 0xFFFF;
		PlhTarget	target = {0};

		if ((waiter->event & 0xFF000000) != PG_WAIT_LWLOCK || tranche >= NUM_INDIVIDUAL_LWLOCKS)
			continue;
		target.kind = PLH_TARGET_SINGLE;
		found(waiter, plh_lwlock_holders(&MainLWLockArray[tranche].lock), &target);
	}
	for (i = 0; i < n_ranges; i++)
		look_into(waiters, &ranges[i]);
	look_into_fast_paths(waiters);
}
