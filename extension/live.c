/*
 * live.c
 *		The live area: the latest graph of waits, the waits that ended last and
 *		the latest load, in shared memory of fixed size.  blocking_now,
 *		recent_waits(), recent_load() and status() read it, in any database; also
 *		when the worker is dead.
 *
 * The worker is the only writer.  It, and every reader, holds plh_shared->lock
 * for a copy only: the worker exclusively, and only when it is free, since a
 * reader that lost its CPU must not hold up the sampling (at the begin of its life,
 * with nothing sampled yet, it waits); readers shared.  What
 * the bytes mean is for Go, which makes them, and live_read.c.
 *
 * There are three sections, each with its own part of data: the graph, replaced
 * as a whole, and two rings, of ended waits and of load.
 */
#include "plh.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

typedef struct PlhRing
{
	/* Set once when shared memory is made. */
	uint32		offset;			/* of its part of data */
	uint32		room;

	/*
	 * Bytes ever written: those from first to next are there, byte p at place p %
	 * room.  Written by the worker, read by sessions; both hold plh_shared->lock.
	 */
	uint64		first;
	uint64		next;

	PlhRingFacts facts;			/* written and read as first and next */
} PlhRing;

typedef struct PlhLive
{
	/* Set once when shared memory is made. */
	uint32		graph_room;

	/* Written by the worker, read by sessions; both hold plh_shared->lock. */
	PlhGraphFacts graph;

	PlhRing		rings[PLH_RINGS];

	/* graph_room bytes of the graph, then those of the rings. */
	char		data[FLEXIBLE_ARRAY_MEMBER];
} PlhLive;

/* Set in the postmaster, inherited by every process; never changed later. */
static PlhLive *live = NULL;

/* A fifth of the area, in whole words. */
static uint32
fifth(void)
{
	return (uint32) ((uint64) plh_shared_memory * (1024 * 1024) / 5) & ~(uint32) 7;
}

Size
plh_live_size(void)
{
	return add_size(offsetof(PlhLive, data), mul_size(fifth(), 5));
}

/* Called with AddinShmemInitLock held. */
void
plh_init_live(void)
{
	bool		found;

	live = ShmemInitStruct("pg_lock_history live area", plh_live_size(), &found);
	if (!found)
	{
		memset(live, 0, offsetof(PlhLive, data));
		live->graph_room = 2 * fifth();
		live->rings[PLH_RING_WAITS].offset = 2 * fifth();
		live->rings[PLH_RING_WAITS].room = 2 * fifth();
		live->rings[PLH_RING_LOAD].offset = 4 * fifth();
		live->rings[PLH_RING_LOAD].room = fifth();
	}
}

void
plh_live_rooms(uint32_t *graph_room, uint32_t *waits_room, uint32_t *load_room)
{
	*graph_room = live->graph_room;
	*waits_room = live->rings[PLH_RING_WAITS].room;
	*load_room = live->rings[PLH_RING_LOAD].room;
}

/* ---- the worker's side ---- */

int32_t
plh_probe_live_graph(const char *records, uint32_t length, uint32_t rows,
					 uint32_t left_out, int64_t taken_at)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_OK;

	if (length > live->graph_room)
		return PLH_TOO_SMALL;
	plh_enter_probe();
	PG_TRY();
	{
		if (LWLockConditionalAcquire(plh_shared->lock, LW_EXCLUSIVE))
		{
			if (length > 0)
				memcpy(live->data, records, length);
			live->graph.length = length;
			live->graph.rows = rows;
			live->graph.left_out = left_out;
			live->graph.taken_at = taken_at;
			LWLockRelease(plh_shared->lock);
		}
		else
			result = PLH_BUSY;
	}
	PG_CATCH();
	{
		LWLockReleaseAll();
		plh_keep_error(caller);
		result = PLH_ERROR;
	}
	PG_END_TRY();
	plh_leave_probe();
	return result;
}

/* Number of records in a buffer, -1 when it does not consist of records.  Bounded: each has a prefix. */
static int64
count_records(const char *records, uint32 length)
{
	uint32		at = 0;
	int64		n = 0;

	while (at < length)
	{
		PlhRecord	record;

		if (length - at < sizeof(record))
			return -1;
		memcpy(&record, records + at, sizeof(record));
		if (record.length < sizeof(record) || record.length > length - at)
			return -1;
		at += record.length;
		n++;
	}
	return n;
}

/* Copies from the ring; n is at most its room.  Caller holds the lock. */
static void
copy_from_ring(char *to, const PlhRing *ring, uint64 position, uint32 n)
{
	const char *data = live->data + ring->offset;
	uint32		offset = (uint32) (position % ring->room);
	uint32		to_end = Min(n, ring->room - offset);

	memcpy(to, data + offset, to_end);
	memcpy(to + to_end, data, n - to_end);
}

/* The same to the ring. */
static void
copy_to_ring(const PlhRing *ring, uint64 position, const char *from, uint32 n)
{
	char	   *data = live->data + ring->offset;
	uint32		offset = (uint32) (position % ring->room);
	uint32		to_end = Min(n, ring->room - offset);

	memcpy(data + offset, from, to_end);
	memcpy(data, from + to_end, n - to_end);
}

/*
 * The first record of the ring; false when there is none.  A ring that is
 * damaged, or whose count is, is emptied.  Caller holds the lock exclusively.
 */
static bool
first_of_ring(PlhRing *ring, PlhRecord *record)
{
	uint64		used = ring->next - ring->first;

	if (used >= sizeof(*record) && used <= ring->room && ring->facts.records > 0)
	{
		copy_from_ring((char *) record, ring, ring->first, sizeof(*record));
		if (record->length >= sizeof(*record) && record->length <= used)
			return true;
	}
	ring->first = ring->next;
	ring->facts.overwritten += ring->facts.records;
	ring->facts.records = 0;
	return false;
}

static int32_t
add_records(PlhRing *ring, const char *records, uint32 length, uint32 skipped)
{
	int64		n = count_records(records, length);
	PlhRecord	oldest;

	if (n < 0 || length > ring->room)
		return PLH_TOO_SMALL;
	if (!LWLockConditionalAcquire(plh_shared->lock, LW_EXCLUSIVE))
		return PLH_BUSY;

	/* Each round frees a record at least, or all. */
	while (ring->next - ring->first + length > ring->room && first_of_ring(ring, &oldest))
	{
		ring->first += oldest.length;
		ring->facts.records--;
		ring->facts.overwritten++;
	}
	if (length > 0)
		copy_to_ring(ring, ring->next, records, length);
	ring->next += length;
	ring->facts.records += n;
	ring->facts.overwritten += skipped;
	ring->facts.oldest = first_of_ring(ring, &oldest) ? oldest.at : 0;
	LWLockRelease(plh_shared->lock);
	return PLH_OK;
}

int32_t
plh_probe_live_ring(uint32_t ring, const char *records, uint32_t length, uint32_t skipped)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_TOO_SMALL;

	if (ring >= PLH_RINGS)
		return PLH_TOO_SMALL;
	plh_enter_probe();
	PG_TRY();
	{
		result = add_records(&live->rings[ring], records, length, skipped);
	}
	PG_CATCH();
	{
		LWLockReleaseAll();
		plh_keep_error(caller);
		result = PLH_ERROR;
	}
	PG_END_TRY();
	plh_leave_probe();
	return result;
}

/* ---- the sessions' side ---- */

/* Caller holds the lock. */
static void
copy_facts(PlhLiveFacts *facts)
{
	facts->graph = live->graph;
	facts->waits = live->rings[PLH_RING_WAITS].facts;
	facts->load = live->rings[PLH_RING_LOAD].facts;
}

void
plh_read_live_facts(PlhLiveFacts *facts)
{
	LWLockAcquire(plh_shared->lock, LW_SHARED);
	copy_facts(facts);
	LWLockRelease(plh_shared->lock);
}

/* Bytes in a section; they never are more than its room.  Caller holds the lock. */
static size_t
section_length(PlhSection section)
{
	const PlhRing *ring;

	if (section == PLH_SECTION_GRAPH)
		return Min(live->graph.length, live->graph_room);
	ring = &live->rings[section - PLH_SECTION_WAITS];
	return Min(ring->next - ring->first, ring->room);
}

static size_t
section_room(PlhSection section)
{
	return section == PLH_SECTION_GRAPH ? live->graph_room : live->rings[section - PLH_SECTION_WAITS].room;
}

static void
copy_section(char *to, PlhSection section, size_t length)
{
	const PlhRing *ring;

	if (section == PLH_SECTION_GRAPH)
	{
		memcpy(to, live->data, length);
		return;
	}
	ring = &live->rings[section - PLH_SECTION_WAITS];
	copy_from_ring(to, ring, ring->first, (uint32) length);
}

/*
 * Copies the sections (bits 1 << PlhSection) as they are at one moment, into
 * memory that was allocated before the lock was taken: what grew meanwhile is
 * tried again with more.  A section has a fixed bound, so that ends.
 */
void
plh_copy_live(PlhLiveCopy *copy, uint32 sections)
{
	size_t		room[PLH_SECTIONS] = {0};

	for (;;)
	{
		bool		fits = true;
		int			i;

		for (i = 0; i < PLH_SECTIONS; i++)
			copy->data[i] = sections & (1 << i) ? MemoryContextAllocHuge(CurrentMemoryContext, room[i] + 1) : NULL;

		LWLockAcquire(plh_shared->lock, LW_SHARED);
		for (i = 0; i < PLH_SECTIONS; i++)
		{
			copy->length[i] = sections & (1 << i) ? section_length((PlhSection) i) : 0;
			fits = fits && copy->length[i] <= room[i];
		}
		if (fits)
		{
			copy_facts(&copy->facts);
			memcpy(copy->node, plh_shared->status.node, sizeof(copy->node));
			for (i = 0; i < PLH_SECTIONS; i++)
				if (copy->length[i] > 0)
					copy_section(copy->data[i], (PlhSection) i, copy->length[i]);
		}
		LWLockRelease(plh_shared->lock);

		if (fits)
		{
			copy->node[sizeof(copy->node) - 1] = '\0';
			return;
		}
		for (i = 0; i < PLH_SECTIONS; i++)
		{
			if (copy->data[i])
				pfree(copy->data[i]);
			room[i] = Min(copy->length[i] + copy->length[i] / 4, section_room((PlhSection) i));
		}
		CHECK_FOR_INTERRUPTS();
	}
}
