/*
 * probe_server.c
 *		What Go tells others: the server log, the status that sessions see,
 *		the answers to flush(); the text of a caught error; and whether the
 *		server has a client slot to spare.
 *
 * Messages of Go come here because ereport must not be called from Go: its
 * long jump would unwind Go frames.
 */
#include "plh.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "compat.h"

/* The worker's own: text of the last caught error, main thread only. */
static char last_error[1024];

/*
 * Called inside PG_CATCH: keeps the text and clears the server's error state.
 * Copying the error needs memory; when there is none, that must not raise
 * again, for the next handler is on the far side of Go frames.
 */
void
plh_keep_error(MemoryContext context)
{
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		ErrorData  *error = CopyErrorData();

		strlcpy(last_error, error->message ? error->message : "unknown error", sizeof(last_error));
		FreeErrorData(error);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		strlcpy(last_error, "out of memory", sizeof(last_error));
	}
	PG_END_TRY();
	FlushErrorState();
}

int32_t
plh_probe_last_error(char *text, uint32_t room)
{
	return (int32_t) strlcpy(text, last_error, room);
}

static int
server_level(int32_t level)
{
	/* What gets here at debug was asked for by our own setting; the server's would hide it. */
	return level == PLH_LOG_WARNING ? WARNING : LOG;
}

int32_t
plh_probe_log(int32_t level, const char *message, uint32_t message_length,
			  const char *detail, uint32_t detail_length,
			  const char *hint, uint32_t hint_length)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_OK;

	if (!plh_log_level_allows(level))
		return PLH_OK;
	plh_enter_probe();
	PG_TRY();
	{
		ereport(server_level(level),
				(errmsg_internal("pg_lock_history: %.*s", (int) message_length, message),
				 detail_length > 0 ? errdetail_internal("%.*s", (int) detail_length, detail) : 0,
				 hint_length > 0 ? errhint("%.*s", (int) hint_length, hint) : 0));
	}
	PG_CATCH();
	{
		plh_keep_error(caller);
		result = PLH_ERROR;
	}
	PG_END_TRY();
	plh_leave_probe();
	return result;
}

/* A reader that lost its CPU while holding the lock must not hold us up: BUSY, and try again. */
int32_t
plh_probe_publish(const PlhStatus *status)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_OK;

	plh_enter_probe();
	PG_TRY();
	{
		if (LWLockConditionalAcquire(plh_shared->lock, LW_EXCLUSIVE))
		{
			PlhStatus  *to = &plh_shared->status;

			/* Readers take the texts for strings, whatever comes from Go. */
			*to = *status;
			to->node[sizeof(to->node) - 1] = '\0';
			to->target[sizeof(to->target) - 1] = '\0';
			to->state[sizeof(to->state) - 1] = '\0';
			to->last_error[sizeof(to->last_error) - 1] = '\0';
			to->hint[sizeof(to->hint) - 1] = '\0';
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

int32_t
plh_probe_flushed(uint64_t ticket)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_OK;

	plh_enter_probe();
	PG_TRY();
	{
		if (ticket > pg_atomic_read_u64(&plh_shared->flush_done))
		{
			pg_atomic_write_u64(&plh_shared->flush_done, ticket);
			ConditionVariableBroadcast(&plh_shared->flushed);
		}
	}
	PG_CATCH();
	{
		plh_keep_error(caller);
		result = PLH_ERROR;
	}
	PG_END_TRY();
	plh_leave_probe();
	return result;
}

/* Cannot raise: nothing but a spinlock is taken. */
int32_t
plh_probe_spare_slot(int32_t *spare)
{
	plh_enter_probe();
	*spare = plh_slot_is_spare() ? 1 : 0;
	plh_leave_probe();
	return PLH_OK;
}
