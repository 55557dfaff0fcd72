/*
 * probe_buffers.c
 *		Which page a process waits for.
 *
 * A process that waits for the content of a buffer, or to be the only one who
 * has it pinned, tells no more than that.  As with LWLocks (up to 18 it is one) the
 * queues say the rest (probe_lwlocks.c), only that there are as many as buffers: 131 072
 * for each GB.  So pages that were waited for a moment ago are looked at first,
 * then those near the last one that was found, and what is left is searched for
 * only while somebody stands in a queue, in pieces, each tick going on where the
 * one before has stopped, until all are found or the budget (hot_page_budget) is
 * used up.  Who is not found, counts as such.  The remembered pages are not
 * charged: they are few, and their queues as long as there are waiters.
 *
 * Locking.  None: no content lock, no pin, no header spinlock.  Whoever waits
 * for a page has it pinned, so that the tag of its buffer stays the same as
 * long as the queue does; the queue is asked again after the tag was copied.
 * Of the page itself, which others may be changing, some aligned words of its
 * end are read, which say what kind of a btree page it is.  Buffers are never
 * unmapped, and nothing that is read is followed.
 */
#include "plh.h"

#include "access/nbtree.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "compat.h"

/* Pages remembered: as many cache lines are read at each tick with a waiter. */
#define HOT_PAGES 64

/* Buffers between two looks at the clock: 4 to 8 us. */
#define PIECE 512

/*
 * The longest search of one tick; the sweep of processes is late by that.  What
 * the budget has saved in one second may be used up by a few such ticks: then
 * even 8 GB are searched through within a fraction of a second.
 */
#define MAX_SEARCH_NS (500 * INT64CONST(1000))

typedef struct Search
{
	int			hot[HOT_PAGES]; /* buffers, the last found first */
	int			n_hot;
	int			next;			/* buffer to go on with */
	int			newest;			/* the last that was found by searching */
	double		credit_ns;		/* what the budget allows now */
	int64		credited_ns;	/* monotonic time up to which it was given, 0: never */
} Search;

/* The worker's own. */
static Search *search;

bool
plh_waits_for_page(uint32 event)
{
	return plh_waits_for_content(event) || plh_waits_for_pin(event);
}

void
plh_prepare_pages(void)
{
	search = MemoryContextAllocZero(TopMemoryContext, sizeof(Search));
}

/*
 * What the page says of itself: btree pages can be told from all others of the
 * server by the last 16 bytes.  A word may be of before a change, another one of
 * after it: then the answer may be that of either.
 */
static uint32
role_of(int buffer)
{
	const char *page = BufferBlocks + (Size) buffer * BLCKSZ;
	const volatile PageHeaderData *header = (const volatile PageHeaderData *) page;
	const volatile BTPageOpaqueData *end;
	uint16		flags;

	if (header->pd_special != BLCKSZ - MAXALIGN(sizeof(BTPageOpaqueData)))
		return PLH_ROLE_NONE;
	end = (const volatile BTPageOpaqueData *) (page + BLCKSZ - MAXALIGN(sizeof(BTPageOpaqueData)));
	if (end->btpo_cycleid > MAX_BT_CYCLE_ID)
		return PLH_ROLE_NONE;
	flags = end->btpo_flags;
	if (flags & BTP_META)
		return PLH_ROLE_META;
	if (flags & (BTP_DELETED | BTP_HALF_DEAD))
		return PLH_ROLE_NONE;
	if (flags & BTP_LEAF)
		return flags & BTP_ROOT ? PLH_ROLE_ONLY_LEAF :
			end->btpo_next == P_NONE ? PLH_ROLE_RIGHTMOST_LEAF : PLH_ROLE_LEAF;
	return flags & BTP_ROOT ? PLH_ROLE_ROOT : PLH_ROLE_INNER;
}

static void
copy_target(const BufferDesc *buffer, int number, PlhTarget *target)
{
	memset(target, 0, sizeof(*target));
	target->kind = PLH_TARGET_PAGE;
	target->number = role_of(number);
	plh_copy_page_tag(buffer, target);
}

static bool
is_process(int number)
{
	return number >= 0 && (uint32) number < PLH_MAX_PROCESSES();
}

static void
remember(int number)
{
	int			i;

	for (i = 0; i < search->n_hot && search->hot[i] != number; i++)
		;
	if (i == search->n_hot)
	{
		if (search->n_hot < HOT_PAGES)
			search->n_hot++;
		i = search->n_hot - 1;
	}
	memmove(&search->hot[1], &search->hot[0], sizeof(int) * i);
	search->hot[0] = number;
}

/* Places those who wait for the buffer; returns how many. */
static uint32
look_at_buffer(PlhWaiters *waiters, int number, bool pins)
{
	const BufferDesc *buffer = GetBufferDescriptor(number);
	const PlhQueue queue = {PLH_CONTENT_EVENT, plh_content_queue(buffer), buffer, plh_content_holders};
	int			head = plh_queue_head(queue.waiters);
	uint32		placed = 0;
	PlhTarget	target;

	if (is_process(head))
	{
		copy_target(buffer, number, &target);
		pg_read_barrier();
		placed += plh_place_queue(waiters, &queue, head, &target);
	}
	if (pins)
	{
		bool		has_waiter = plh_has_pin_waiter(buffer);
		int			waiting = *(const volatile int *) &buffer->wait_backend_pgprocno;

		if (has_waiter && is_process(waiting) && waiters->place[waiting] != 0)
		{
			PlhWaiter  *waiter = &waiters->all[waiters->place[waiting] - 1];

			copy_target(buffer, number, &target);
			pg_read_barrier();
			if (plh_has_pin_waiter(buffer) && waiter->target.kind == PLH_TARGET_UNKNOWN &&
				plh_waits_for_pin(waiter->event) &&
				*(const volatile int *) &buffer->wait_backend_pgprocno == waiting)
			{
				waiter->target = target;
				placed++;
			}
		}
	}
	return placed;
}

/* Gives what the time since the last call brings, at most that of a second. */
static void
give_credit(int64 now_ns)
{
	double		share = plh_hot_page_budget / 100.0;
	int64		passed = search->credited_ns == 0 ? INT64CONST(1000000000) : now_ns - search->credited_ns;

	search->credit_ns = Min(search->credit_ns + share * passed, share * 1e9);
	search->credited_ns = now_ns;
}

/* Looks through one piece; returns how many of left are still to be found. */
static uint32
look_through(PlhWaiters *waiters, int from, uint32 left, bool pins)
{
	int			end = Min(from + PIECE, NBuffers);
	int			number;

	for (number = from; number < end && left > 0; number++)
	{
		uint32		placed = look_at_buffer(waiters, number, pins);

		if (placed > 0)
		{
			remember(number);
			search->newest = number;
			left -= Min(placed, left);
		}
	}
	return left;
}

/*
 * A hot spot that moves, such as the end of an index, goes to a page that was
 * just read or made; buffers are given out in ascending order, so that it is
 * behind the one that was found last.  Then all the others, in turn.
 */
static void
search_on(PlhWaiters *waiters, uint32 left, bool pins)
{
	int64		began = plh_monotonic_ns();
	int64		spent = 0;
	int			pieces = 0;

	give_credit(began);
	if (search->credit_ns > 0)
	{
		left = look_through(waiters, search->newest, left, pins);
		spent = plh_monotonic_ns() - began;
	}
	while (left > 0 && pieces++ <= NBuffers / PIECE && spent < MAX_SEARCH_NS && spent < search->credit_ns)
	{
		left = look_through(waiters, search->next, left, pins);
		search->next += PIECE;
		if (search->next >= NBuffers)
			search->next = 0;
		spent = plh_monotonic_ns() - began;
	}
	/* Time in which we had no CPU is nobody's cost. */
	search->credit_ns -= Min(spent, 2 * MAX_SEARCH_NS);
}

void
plh_find_pages(PlhWaiters *waiters)
{
	uint32		left = 0;
	bool		pins = false;
	int			hot[HOT_PAGES];
	int			n_hot = search->n_hot;
	uint32		i;
	int			k;

	for (i = 0; i < waiters->n; i++)
	{
		const PlhWaiter *waiter = &waiters->all[i];

		if (!(waiter->flags & PLH_RUN_PAGE))
			continue;
		if (plh_waits_for_pin(waiter->event))
		{
			pins = true;
			left++;
		}
		/* Who has been woken stands in no queue any more. */
		else if (*(const volatile uint8 *) &ProcGlobal->allProcs[waiter->slot].lwWaiting == 1)
			left++;
	}
	if (left == 0)
		return;
	memcpy(hot, search->hot, sizeof(hot));	/* remember() moves them */
	for (k = 0; k < n_hot && left > 0; k++)
	{
		uint32		placed = look_at_buffer(waiters, hot[k], pins);

		if (placed > 0)
		{
			remember(hot[k]);
			left -= Min(placed, left);
		}
	}
	if (left > 0)
		search_on(waiters, left, pins);
}
