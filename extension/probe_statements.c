/*
 * probe_statements.c
 *		Looks at sessions that are in a transaction, with each tick and whether
 *		anybody waits or not, and keeps the last few statements of each: once
 *		somebody waits for a session, what it did before can be asked for only
 *		of what has been seen before.
 *
 * The look takes no lock, and costs the same whatever the number of sessions:
 * each tick passes over SLOTS_A_LOOK slots and reads SESSIONS_A_LOOK status
 * entries at most, and the next one goes on where it stopped.  A transaction
 * is of interest when it has written, or was there at the look before: with
 * thousands of short reading transactions a second no entry is read.
 *
 * The memory is the worker's own.  It stays here rather than in Go, which need
 * not run for it, and what a session did is of no use to anybody unless it
 * blocks somebody.  A slot's memory is used when it is first needed, so that
 * memory that is never needed is never there.
 *
 * The number of the local transaction (lxid) is what tells transactions apart;
 * it is read before and after the entry.  The server sets the entry's
 * xact_start after lxid, and clears it after lxid is cleared: under an lxid it
 * is the transaction's own, or 0.
 */
#include "plh.h"

#include "access/twophase.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "statements.h"

/*
 * The work of one look: some 3 us at most for the entries, as much for the
 * slots.  At 100 ticks a second 16 open transactions are seen with each tick,
 * 160 ten times and 1 600 once a second.
 */
#define SESSIONS_A_LOOK 16

/* Dummies of prepared transactions asked for their xid in one look: 1 to 5 us. */
#define DUMMIES_A_LOOK 1024
#define SLOTS_A_LOOK 256

/*
 * A shorter sampling period does not make the looks more.  A little below 10
 * ms, so that of ticks at that pace none is left out.
 */
#define LOOK_NS (9 * INT64CONST(1000000))

#define TRIES 5

/* The worker's own; used on its main thread only. */
typedef struct PlhMemory
{
	uint32		n_slots;
	uint32		next;			/* slot at which the next look begins */
	int64		last_look_ns;
	uint32		dummies_left;	/* that this look may still ask */
	uint32	   *lxids;			/* by slot: transaction at the latest look, 0 = none */
	bool	   *used;			/* by slot: known is valid */
	PlhKnownTransaction *known; /* by slot */

	/* What prepared transactions did before; by number of the dummy process. */
	uint32		n_prepared;
	uint32	   *prepared_xids;	/* 0: prepared is not valid */
	PlhKnownTransaction *prepared;
} PlhMemory;

static PlhMemory *memory;

/* Main code of the worker, before Go runs: may raise. */
void
plh_prepare_statement_probe(void)
{
	memory = MemoryContextAllocZero(TopMemoryContext, sizeof(PlhMemory));
	memory->n_slots = PLH_MAX_PROCESSES();
	memory->lxids = MemoryContextAllocZero(TopMemoryContext, memory->n_slots * sizeof(uint32));
	memory->used = MemoryContextAllocZero(TopMemoryContext, memory->n_slots * sizeof(bool));
	/* Not zeroed: that would touch all of it. */
	memory->known = MemoryContextAllocHuge(TopMemoryContext, memory->n_slots * sizeof(PlhKnownTransaction));

	memory->n_prepared = (uint32) max_prepared_xacts;
	if (memory->n_prepared > 0)
	{
		memory->prepared_xids = MemoryContextAllocZero(TopMemoryContext, memory->n_prepared * sizeof(uint32));
		memory->prepared = MemoryContextAllocHuge(TopMemoryContext, memory->n_prepared * sizeof(PlhKnownTransaction));
	}
}

static uint32
xid_of(const PGPROC *proc)
{
	return *(const volatile TransactionId *) &proc->xid;
}

/* One try; false when the entry changed meanwhile, or is another process's.  text may be NULL. */
static bool
copy_statement(PgBackendStatus *entry, PlhStatementSample *sample, char *text)
{
	volatile PgBackendStatus *source = entry;
	bool		is_its = false;
	int			before;
	int			after;

	pgstat_begin_read_activity(source, before);

	is_its = source->st_procpid == sample->pid;
	sample->backend_start = source->st_proc_start_timestamp;
	sample->xact_start = source->st_xact_start_timestamp;
	sample->query_start = source->st_activity_start_timestamp;
	sample->query_id = (int64_t) source->st_query_id;
	sample->state = plh_translate_state(source->st_state);
	if (text != NULL)
	{
		/* The text area always ends with a zero byte. */
		sample->length = (uint32) strnlen(source->st_activity_raw, pgstat_track_activity_query_size - 1);
		memcpy(text, source->st_activity_raw, Min(sample->length, PLH_STATEMENT_TEXT));
	}

	pgstat_end_read_activity(source, after);
	return pgstat_read_activity_complete(before, after) && is_its;
}

static bool
read_statement(PgBackendStatus *entry, PlhStatementSample *sample, char *text)
{
	int			tries;

	for (tries = 0; tries < TRIES; tries++)
		if (copy_statement(entry, sample, text))
			return true;
	return false;
}

/*
 * The slot's memory is about to be of another transaction.  If the one it is of
 * was prepared, what it did goes with its dummy process.  The server gives these
 * out from the last one on, and a bounded number is looked at: where more are
 * prepared at one time, some will be told without what they did.
 */
static void
keep_prepared(const PlhKnownTransaction *known)
{
	uint32		i;

	if (known->xid == 0)
		return;
	for (i = memory->n_prepared; i-- > 0 && memory->dummies_left > 0; memory->dummies_left--)
	{
		if (xid_of(&ProcGlobal->allProcs[memory->n_slots + i]) != known->xid)
			continue;
		memory->prepared[i] = *known;
		memory->prepared_xids[i] = known->xid;
		return;
	}
}

/* Notes what the process in slot runs in transaction lxid. */
static void
look_at(uint32 slot, uint32 lxid, int64 at)
{
	PGPROC	   *proc = &ProcGlobal->allProcs[slot];
	PlhKnownTransaction *known = &memory->known[slot];
	PlhStatementSample sample;
	PgBackendStatus *entry;
	char		text[PLH_STATEMENT_TEXT];

	memset(&sample, 0, sizeof(sample));
	sample.at = at;
	sample.lxid = lxid;
	sample.xid = xid_of(proc);
	sample.pid = *(const volatile int *) &proc->pid;
	entry = plh_status_entry(proc, sample.pid);
	if (entry == NULL || !read_statement(entry, &sample, NULL))
		return;
	if (!memory->used[slot])
	{
		memory->used[slot] = true;
		memset(known, 0, offsetof(PlhKnownTransaction, texts));
	}
	/* With the text all is read again: it may be of the next statement by now. */
	if (!plh_is_newest_statement(known, &sample) && !read_statement(entry, &sample, text))
		return;
	if (sample.state == PLH_STATE_ACTIVE || sample.state == PLH_STATE_FASTPATH)
		sample.wait_event_info = *(const volatile uint32 *) &proc->wait_event_info;

	pg_read_barrier();
	if (plh_lxid(proc) != lxid || sample.xact_start == 0)
		return;
	if (plh_is_newest_statement(known, &sample))
		plh_note_statement(known, &sample, NULL);
	else if (sample.length > 0)
	{
		if (!plh_is_of_transaction(known, &sample))
			keep_prepared(known);
		plh_note_statement(known, &sample, text);
	}
}

/* One look, with the tick at hand; part of the wait probe.  Raises nothing. */
void
plh_look_at_statements(int64 at, int64 now_ns)
{
	uint32		slots = Min(plh_slots_watched(), SLOTS_A_LOOK);
	uint32		looked = 0;

	if (now_ns - memory->last_look_ns < LOOK_NS)
		return;
	memory->last_look_ns = now_ns;
	memory->dummies_left = DUMMIES_A_LOOK;

	for (; slots > 0 && looked < SESSIONS_A_LOOK; slots--)
	{
		uint32		slot = plh_slot(memory->next) < memory->n_slots ? plh_slot(memory->next) : plh_slot(0);
		const PGPROC *proc = &ProcGlobal->allProcs[slot];
		uint32		lxid = plh_lxid(proc);
		bool		is_old = lxid == memory->lxids[slot];

		memory->next = slot + 1;
		memory->lxids[slot] = lxid;
		if (lxid == 0 || (!is_old && xid_of(proc) == 0))
			continue;
		look_at(slot, lxid, at);
		looked++;
	}
}

/* NULL when nothing is known. */
static const PlhKnownTransaction *
known_of_prepared(uint32 xid)
{
	uint32		i;

	for (i = 0; i < memory->n_prepared; i++)
		if (memory->prepared_xids[i] == xid)
			return &memory->prepared[i];
	/* The session has not been seen in another transaction since. */
	for (i = 0; i < memory->n_slots; i++)
		if (memory->used[i] && memory->known[i].xid == xid)
			return &memory->known[i];
	return NULL;
}

static const PlhKnownTransaction *
known_of_process(int32 slot, int32 pid)
{
	uint32		lxid;

	if (slot < 0 || (uint32) slot >= memory->n_slots)
		return NULL;
	lxid = plh_lxid(&ProcGlobal->allProcs[slot]);
	if (lxid == 0)
		return NULL;
	look_at(slot, lxid, GetCurrentTimestamp());
	if (!memory->used[slot] || memory->known[slot].lxid != lxid || memory->known[slot].pid != pid)
		return NULL;
	return &memory->known[slot];
}

/* A text that was cut does not end in the middle of a character, if it is UTF-8. */
static uint32
text_to_show(const PlhKnownStatement *statement, const char *text)
{
	uint32		length = statement->length;

	if (length <= PLH_STATEMENT_TEXT)
		return length;
	length = PLH_STATEMENT_TEXT;
	while (length > 0 && (text[length - 1] & 0xC0) == 0x80)
		length--;
	if (length > 0 && (text[length - 1] & 0x80) != 0)
		length--;
	return length;
}

static uint32_t
hand_over(const PlhKnownTransaction *known, PlhStatement *statements, uint32_t room,
		  char *text, uint32_t text_room)
{
	uint32_t	used = 0;
	uint32_t	i;

	for (i = 0; i < known->n_statements && i < room; i++)
	{
		const PlhKnownStatement *from = &known->statements[i];
		PlhStatement *to = &statements[i];
		const char *name;

		memset(to, 0, sizeof(*to));
		to->first_seen = from->first_seen;
		to->last_seen = from->last_seen;
		to->query_start = from->query_start;
		to->query_id = from->query_id;
		to->samples = from->samples;
		to->state = from->state;
		name = pgstat_get_wait_event_type(from->wait_event_info);
		if (name != NULL)
			strlcpy(to->wait_event_type, name, sizeof(to->wait_event_type));
		name = pgstat_get_wait_event(from->wait_event_info);
		if (name != NULL)
			strlcpy(to->wait_event, name, sizeof(to->wait_event));
		to->text_offset = used;
		to->text_length = Min(text_to_show(from, known->texts[i]), text_room - used);
		memcpy(text + used, known->texts[i], to->text_length);
		used += to->text_length;
	}
	return i;
}

int32_t
plh_probe_statements(PlhTransaction *transaction, PlhStatement *statements, uint32_t room,
					 char *text, uint32_t text_room)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_OK;

	transaction->n_statements = transaction->left_out = 0;
	transaction->backend_start = transaction->xact_start = 0;
	plh_enter_probe();
	PG_TRY();
	{
		const PlhKnownTransaction *known = transaction->xid != 0 ?
			known_of_prepared(transaction->xid) :
			known_of_process(transaction->slot, transaction->pid);

		if (known != NULL)
		{
			transaction->backend_start = known->backend_start;
			transaction->xact_start = known->xact_start;
			transaction->left_out = known->left_out;
			transaction->n_statements = hand_over(known, statements, room, text, text_room);
		}
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
