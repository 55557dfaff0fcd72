/*
 * slots.c
 *		Which slots of the process array are worth a look.
 *
 * Most slots of a large max_connections never had a process.  A tick that reads
 * them all pays for each of them a cache line, and a page or two of address
 * translation, which a CPU that slept since the last tick does not have at hand:
 * a third of the worker's CPU with 1 200 slots and nobody there.  So the worker
 * leaves out those that nobody has been in, which is one range of them: the server hands
 * out the slots of client sessions in order.  On 15 the one that was given back last
 * is the next to be handed out, so a new one is touched only when all that were in use
 * before are in use again.  From 16 on it goes to the end of the queue: each
 * connection touches a new one, and what is saved is gone after about max_connections
 * of them.
 *
 * That is how the server does it now, no promise.  Nothing breaks without it: at
 * each sweep we look at the next MARGIN slots of the range, and at a part of
 * the others, in turn, all of them within LOOK_AT_ALL_NS.  What is found there takes
 * all slots up to it out of the range, for the life of the worker.  Overlooked for
 * as long can be a session that came after more than MARGIN others of which no
 * trace was left: gone before the next sweep, or from 17 on before they had a database.
 */
#include "plh.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "compat.h"

/* So many slots nobody is in lie between the last one that was used and those left out. */
#define MARGIN 32

/* Within this time all that are left out are looked at once; at each sweep, if these are rarer. */
#define LOOK_AT_ALL_NS INT64CONST(320000000)

PlhHole		plh_hole;

static uint32 turn;				/* the next of the others that is looked at */
static int64 last_look_ns;		/* monotonic time, 0: none yet */

/* Somebody is in the slot, or was. */
static inline bool
was_used(uint32 slot)
{
	const PGPROC *proc = &ProcGlobal->allProcs[slot];

	return *(const volatile int *) &proc->pid != 0 ||
		*(const volatile Oid *) &proc->databaseId != InvalidOid;
}

/* The slot is one to be looked at from now on, and so are all that come into use before it. */
void
plh_take_in(uint32 slot)
{
	if (slot < plh_hole.from || slot >= plh_hole.to)
		return;
	if (PLH_SLOTS_ARE_USED_DOWNWARDS)
		plh_hole.to = slot;
	else
		plh_hole.from = slot + 1;
}

uint32
plh_slots_watched(void)
{
	return PLH_MAX_PROCESSES() - (plh_hole.to - plh_hole.from);
}

/* Main code of the worker.  Slots of client sessions come first; those of all others are few. */
void
plh_prepare_slots(void)
{
	uint32		clients = Min((uint32) MaxConnections, PLH_MAX_PROCESSES());
	uint32		i;

	plh_hole.from = 0;
	plh_hole.to = clients;
	for (i = 0; i < clients; i++)
		if (was_used(i))
			plh_take_in(i);
	turn = 0;
	last_look_ns = 0;
}

/* So many of the others are to be looked at, when the last time was then. */
static uint32
part_of_others(int64 passed_ns)
{
	uint32		all = plh_hole.to - plh_hole.from;

	if (passed_ns < 0 || passed_ns >= LOOK_AT_ALL_NS)
		return all;
	return Min((uint32) ((int64) all * passed_ns / LOOK_AT_ALL_NS) + 1, all);
}

/* Before each sweep; at 10 ms touches MARGIN + max_connections / 32 slots. */
void
plh_choose_slots(int64 now_ns)
{
	uint32		part = part_of_others(last_look_ns == 0 ? 0 : now_ns - last_look_ns);
	uint32		seen = 0;		/* unused in a row, next to those that are looked at */
	uint32		i;

	while (seen < Min(MARGIN, plh_hole.to - plh_hole.from))
	{
		uint32		next = PLH_SLOTS_ARE_USED_DOWNWARDS ? plh_hole.to - 1 - seen : plh_hole.from + seen;

		seen++;
		if (was_used(next))
		{
			plh_take_in(next);
			seen = 0;
		}
	}
	for (i = 0; i < part && plh_hole.from < plh_hole.to; i++)
	{
		uint32		slot;

		if (turn < plh_hole.from || turn >= plh_hole.to)
			turn = plh_hole.from;
		slot = turn++;
		if (was_used(slot))
			plh_take_in(slot);
	}
	last_look_ns = now_ns;
	pg_atomic_write_u32(&plh_shared->slots_watched, plh_slots_watched());
}
