/*
 * live.c
 *		The live area: the latest graph of waits and the waits that ended last,
 *		in shared memory of fixed size.  blocking_now, recent_waits() and
 *		status() read it, in any database; also when the worker is dead.
 *
 * The worker is the only writer.  It, and every reader, holds plh_shared->lock
 * for a copy only: the worker exclusively, and only when it is free, since a
 * reader that lost its CPU must not hold up the sampling; readers shared.  What
 * the bytes mean is for Go, which makes them, and live_read.c.
 *
 * There are two sections, each with its own fields in PlhLive and its own part
 * of data: the graph, replaced as a whole, and a ring of ended waits.
 */
#include "plh.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

typedef struct PlhLive
{
	/* Set once when shared memory is made. */
	uint32		graph_room;
	uint32		waits_room;

	/* Written by the worker, read by sessions; both hold plh_shared->lock. */
	PlhLiveFacts facts;

	/*
	 * Bytes ever written to the ring of waits: those from first to next are
	 * there, byte p at place p % waits_room.  Written and read as facts.
	 */
	uint64		first;
	uint64		next;

	/* graph_room bytes of the graph, then waits_room bytes of the ring. */
	char		data[FLEXIBLE_ARRAY_MEMBER];
} PlhLive;

/* Set in the postmaster, inherited by every process; never changed later. */
static PlhLive *live = NULL;

/* One half of the area. */
static uint32
section_room(void)
{
	return (uint32) plh_shared_memory * (1024 * 1024 / 2);
}

Size
plh_live_size(void)
{
	return add_size(offsetof(PlhLive, data), mul_size(section_room(), 2));
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
		live->graph_room = section_room();
		live->waits_room = section_room();
	}
}

void
plh_live_rooms(uint32_t *graph_room, uint32_t *waits_room)
{
	*graph_room = live->graph_room;
	*waits_room = live->waits_room;
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
			live->facts.graph_length = length;
			live->facts.graph_rows = rows;
			live->facts.left_out = left_out;
			live->facts.taken_at = taken_at;
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

/* Copies from the ring; n is at most waits_room.  Caller holds the lock. */
static void
copy_from_ring(char *to, uint64 position, uint32 n)
{
	const char *ring = live->data + live->graph_room;
	uint32		offset = (uint32) (position % live->waits_room);
	uint32		to_end = Min(n, live->waits_room - offset);

	memcpy(to, ring + offset, to_end);
	memcpy(to + to_end, ring, n - to_end);
}

/* The same to the ring. */
static void
copy_to_ring(uint64 position, const char *from, uint32 n)
{
	char	   *ring = live->data + live->graph_room;
	uint32		offset = (uint32) (position % live->waits_room);
	uint32		to_end = Min(n, live->waits_room - offset);

	memcpy(ring + offset, from, to_end);
	memcpy(ring, from + to_end, n - to_end);
}

/*
 * The first record of the ring; false when there is none.  A ring that is
 * damaged, or whose count is, is emptied.  Caller holds the lock exclusively.
 */
static bool
first_of_ring(PlhRecord *record)
{
	uint64		used = live->next - live->first;

	if (used >= sizeof(*record) && used <= live->waits_room && live->facts.waits > 0)
	{
		copy_from_ring((char *) record, live->first, sizeof(*record));
		if (record->length >= sizeof(*record) && record->length <= used)
			return true;
	}
	live->first = live->next;
	live->facts.overwritten += live->facts.waits;
	live->facts.waits = 0;
	return false;
}

static int32_t
add_waits(const char *records, uint32 length, uint32 skipped)
{
	int64		n = count_records(records, length);
	PlhRecord	oldest;

	if (n < 0 || length > live->waits_room)
		return PLH_TOO_SMALL;
	if (!LWLockConditionalAcquire(plh_shared->lock, LW_EXCLUSIVE))
		return PLH_BUSY;

	/* Each round frees a record at least, or all. */
	while (live->next - live->first + length > live->waits_room && first_of_ring(&oldest))
	{
		live->first += oldest.length;
		live->facts.waits--;
		live->facts.overwritten++;
	}
	if (length > 0)
		copy_to_ring(live->next, records, length);
	live->next += length;
	live->facts.waits += n;
	live->facts.overwritten += skipped;
	live->facts.oldest_end = first_of_ring(&oldest) ? oldest.at : 0;
	LWLockRelease(plh_shared->lock);
	return PLH_OK;
}

int32_t
plh_probe_live_waits(const char *records, uint32_t length, uint32_t skipped)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_OK;

	plh_enter_probe();
	PG_TRY();
	{
		result = add_waits(records, length, skipped);
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

void
plh_read_live_facts(PlhLiveFacts *facts)
{
	LWLockAcquire(plh_shared->lock, LW_SHARED);
	*facts = live->facts;
	LWLockRelease(plh_shared->lock);
}

/*
 * Copies the wanted sections as they are at one moment, into memory that was
 * allocated before the lock was taken: what grew meanwhile is tried again with
 * more.  A section has a fixed bound, so that ends.
 */
void
plh_copy_live(PlhLiveCopy *copy, bool graph, bool waits)
{
	size_t		graph_room = 0;
	size_t		waits_room = 0;

	for (;;)
	{
		size_t		graph_wants = 0;
		size_t		waits_wants = 0;
		bool		fits;

		copy->graph = graph ? MemoryContextAllocHuge(CurrentMemoryContext, graph_room + 1) : NULL;
		copy->waits = waits ? MemoryContextAllocHuge(CurrentMemoryContext, waits_room + 1) : NULL;

		LWLockAcquire(plh_shared->lock, LW_SHARED);
		if (graph)
			graph_wants = Min(live->facts.graph_length, live->graph_room);
		if (waits)
			waits_wants = Min(live->next - live->first, live->waits_room);
		fits = graph_wants <= graph_room && waits_wants <= waits_room;
		if (fits)
		{
			copy->facts = live->facts;
			memcpy(copy->node, plh_shared->status.node, sizeof(copy->node));
			if (graph)
				memcpy(copy->graph, live->data, graph_wants);
			if (waits)
				copy_from_ring(copy->waits, live->first, (uint32) waits_wants);
		}
		LWLockRelease(plh_shared->lock);

		if (fits)
		{
			copy->facts.graph_length = (uint32) graph_wants;
			copy->waits_length = waits_wants;
			copy->node[sizeof(copy->node) - 1] = '\0';
			return;
		}
		if (copy->graph)
			pfree(copy->graph);
		if (copy->waits)
			pfree(copy->waits);
		graph_room = Min(graph_wants + graph_wants / 4, live->graph_room);
		waits_room = Min(waits_wants + waits_wants / 4, live->waits_room);
		CHECK_FOR_INTERRUPTS();
	}
}
