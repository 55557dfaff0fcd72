/*
 * probe_failures.c
 *		Reads the records of failed waits that sessions leave (errhook.c).
 *
 * Lock-free: the count of a slot is raised after each record, so a record is
 * good when the count, read again after copying, shows that its place has not
 * been given to a later one.  What was overwritten before we came is counted.
 */
#include "plh.h"

#include "storage/proc.h"
#include "utils/memutils.h"

#include "compat.h"

/* A record may be written over while the count still names it. */
#define VOUCHED_FOR (PLH_FAILURES_KEPT - 1)

/* The worker's own: what it has read of each slot, and of the news. */
static uint64 *seen;
static uint64 seen_news;

/* Main code of the worker: records of before are not about waits that this life knows. */
void
plh_prepare_failure_probe(void)
{
	uint32		i;

	seen_news = pg_atomic_read_u64(&plh_failures->news);
	pg_read_barrier();
	seen = MemoryContextAllocZero(TopMemoryContext, PLH_MAX_PROCESSES() * sizeof(uint64));
	for (i = 0; i < PLH_MAX_PROCESSES(); i++)
		seen[i] = pg_atomic_read_u64(&plh_failures->slots[i].written);
}

bool
plh_failures_are_news(void)
{
	return pg_atomic_read_u64(&plh_failures->news) != seen_news;
}

/* Copies the text of a deadlock; nothing when it was overwritten. */
static void
copy_text(uint64 number, PlhFailure *failure, char *text, uint32 room)
{
	PlhDeadlockText *place = &plh_failures->texts[number % PLH_DEADLOCK_TEXTS];
	uint32		before = pg_atomic_read_u32(&place->turn);
	uint32		length;
	bool		is_cut;

	pg_read_barrier();
	length = *(const volatile uint32 *) &place->length; /* once: it is bounded below */
	is_cut = place->is_cut;
	if ((before & 1) != 0 || place->number != number || length > sizeof(place->text) || length > room)
		return;
	memcpy(text, place->text, length);
	pg_read_barrier();
	if (pg_atomic_read_u32(&place->turn) != before)
		return;
	failure->text_length = length;
	failure->text_cut = is_cut;
}

/* Appends the new records of one slot; false when there is no room for them. */
static bool
read_slot(uint32 index, PlhFailure *failures, uint32 room, uint32 *n,
		  char *text, uint32 text_room, uint32 *text_used)
{
	PlhSlotFailures *slot = &plh_failures->slots[index];
	PlhFailureRecord copy[PLH_FAILURES_KEPT];
	uint64		written = pg_atomic_read_u64(&slot->written);
	uint64		first;
	uint64		lost = 0;
	uint64		i;

	if (written == seen[index])
		return true;
	if (*n + PLH_FAILURES_KEPT > room)
		return false;
	pg_read_barrier();
	memcpy(copy, slot->ring, sizeof(copy));
	pg_read_barrier();
	first = pg_atomic_read_u64(&slot->written);
	first = first > VOUCHED_FOR ? first - VOUCHED_FOR : 0;
	if (first > seen[index])
		lost = first - seen[index];
	first = Max(first, seen[index]);
	if (first >= written)		/* all of it went by while we looked */
	{
		lost = written - seen[index];
		first = written;
	}

	for (i = first; i < written; i++)
	{
		const PlhFailureRecord *record = &copy[i % PLH_FAILURES_KEPT];
		PlhFailure *to = &failures[(*n)++];

		memset(to, 0, sizeof(*to));
		to->slot = (int32) index;
		to->pid = record->pid;
		to->backend_start = record->backend_start;
		to->wait_start = record->wait_start;
		to->failed_at = record->failed_at;
		to->mode = record->mode;
		to->reason = record->reason;
		to->lost = (uint32) lost;
		lost = 0;
		to->text_offset = *text_used;
		if (record->text != 0)
			copy_text(record->text, to, text + *text_used, text_room - *text_used);
		*text_used += to->text_length;
	}
	if (lost > 0)
	{
		PlhFailure *to = &failures[(*n)++];

		memset(to, 0, sizeof(*to));
		to->slot = (int32) index;
		to->lost = (uint32) lost;	/* pid 0: no record, they are all gone */
	}
	seen[index] = written;
	return true;
}

int32_t
plh_probe_failures(PlhFailure *failures, uint32_t room, char *text, uint32_t text_room, uint32_t *n_failures)
{
	int32_t		result = PLH_OK;
	uint32		n = 0;
	uint32		text_used = 0;
	uint64		news;

	/* Nothing here can raise an error; still a probe like the others. */
	plh_enter_probe();

	/* After the sweep that the caller has at hand: what was recorded before a wait it saw is seen here. */
	pg_memory_barrier();
	news = pg_atomic_read_u64(&plh_failures->news);
	if (news != seen_news)
	{
		uint32		i;

		for (i = 0; i < PLH_MAX_PROCESSES(); i++)
		{
			if (!read_slot(i, failures, room, &n, text, text_room, &text_used))
			{
				result = PLH_TOO_SMALL;
				break;
			}
		}
		if (result == PLH_OK)
			seen_news = news;
	}
	*n_failures = n;
	plh_leave_probe();
	return result;
}
