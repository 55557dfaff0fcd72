/*
 * probe_slots.c
 *		Which slots of the process table need not be looked at: those that no
 *		process has ever been in.
 *
 * Each slot is a cache line, and nearly a page, to be fetched from memory at each
 * tick, and most servers are given many more connections than they ever use.
 * The slots of client sessions are the first MaxConnections ones, and the server
 * hands out those that are new in one order, each before it would hand out the one after it:
 * from the last down to the first up to 15, from the first on from 16 on.  So
 * the ones that are new are one range, which becomes shorter at either end.
 *
 * Nothing rests on the order alone.  At each tick LOOK_AHEAD slots at either end
 * are looked at, so that sessions which came and left between two ticks hide no
 * other, and some of those in between, which takes them all in about a second; after
 * a time without ticks, all.  Whoever is found brings in everything up to the
 * nearer end.  A worker that was not there from the start of the server on does
 * not know which slots are new, and leaves out none.
 *
 * No lock: words are read that others write meanwhile, each was true at some moment.
 */
#include "plh.h"

#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/memutils.h"

#include "compat.h"

/* More sessions than this one after the other, each gone within a tick, would hide those after them for a second. */
#define LOOK_AHEAD 16

/* Of those between the ends; 1 000 are round in 63 ticks. */
#define LOOK_BETWEEN 16

/* The worker's own; used on its main thread only. */
typedef struct Slots
{
	PlhUnused	unused;
	uint32		next;			/* slot at which the next look in between begins */
} Slots;

static Slots *slots;
const PlhUnused *plh_unused;

/* Main code of the worker, before Go runs: may raise.  is_first: no other worker was there since the server's start. */
void
plh_prepare_slots(bool is_first)
{
	slots = MemoryContextAllocZero(TopMemoryContext, sizeof(Slots));
	slots->unused.to = is_first ? Min((uint32) MaxConnections, PLH_MAX_PROCESSES()) : 0;
	plh_unused = &slots->unused;
	plh_follow_slots(true);
}

static bool
was_used(uint32 slot)
{
	const PGPROC *proc = &ProcGlobal->allProcs[slot];

	/* The one is set last when a process starts, the other stays when it ends, up to 16. */
	return *(const volatile int *) &proc->procLatch.owner_pid != 0 || *(const volatile int *) &proc->pid != 0;
}

/* Looks at one of those that are out, and brings it in with all up to the nearer end if it was used. */
static void
look_at(uint32 slot)
{
	PlhUnused  *unused = &slots->unused;

	if (!was_used(slot))
		return;
	if (slot - unused->from < unused->to - slot)
		unused->from = slot + 1;
	else
		unused->to = slot;
}

/* Called before each sweep; all of them are looked at when asked to. */
void
plh_follow_slots(bool all)
{
	const PlhUnused *unused = &slots->unused;
	uint32		ahead = all ? PLH_MAX_PROCESSES() : LOOK_AHEAD;
	uint32		i;

	for (i = unused->from; i < unused->to && i - unused->from < ahead; i++)
		look_at(i);
	for (i = unused->to; i > unused->from && unused->to - i < ahead; i--)
		look_at(i - 1);
	for (i = 0; i < LOOK_BETWEEN && unused->from < unused->to; i++)
	{
		if (slots->next < unused->from || slots->next >= unused->to)
			slots->next = unused->from;
		look_at(slots->next++);
	}
}
