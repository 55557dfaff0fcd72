/*
 * loghook.c
 *		Keeps passwords in conninfo and local_conninfo out of the server log, and
 *		shows errhook.c what goes there.
 *
 * On a reload the postmaster logs each setting that has another value, and each
 * value that was refused, as it stands in postgresql.conf.  Of these two
 * settings it logs the name alone.  Nothing else passes here but a compare.
 *
 * Set in the postmaster, inherited by every process: one that reloads says the
 * same at level DEBUG2.
 */
#include "plh.h"

#include "utils/elog.h"

static emit_log_hook_type previous_hook = NULL;

/* Our setting whose value the message shows; NULL for any other message. */
static const char *
shown_setting(const ErrorData *error)
{
	static const char *const settings[] = {
		"pg_lock_history.conninfo",
		"pg_lock_history.local_conninfo"
	};
	int			i;

	/* The identifiers are the texts before translation. */
	if (error->message_id == NULL || error->message == NULL ||
		(strcmp(error->message_id, "parameter \"%s\" changed to \"%s\"") != 0 &&
		 strcmp(error->message_id, "invalid value for parameter \"%s\": \"%s\"") != 0))
		return NULL;
	for (i = 0; i < (int) lengthof(settings); i++)
		if (strcasestr(error->message, settings[i]) != NULL)
			return settings[i];
	return NULL;
}

/*
 * The message itself may not be changed here, but kept from the log; what
 * replaces it comes by here too, and has another identifier.  An error of a
 * session goes to its client as it is: who typed the value sees it.
 */
static void
on_log(ErrorData *error)
{
	const char *setting = error->output_to_server ? shown_setting(error) : NULL;

	if (setting != NULL)
	{
		bool		is_refused = error->sqlerrcode == ERRCODE_INVALID_PARAMETER_VALUE;

		error->output_to_server = false;
		ereport(error->elevel >= LOG ? LOG : error->elevel,
				(errmsg(is_refused ? "invalid value for parameter \"%s\"" : "parameter \"%s\" changed", setting),
				 error->detail != NULL ? errdetail_internal("%s", error->detail) : 0,
				 errhint("Its value is not logged, it may hold a password."),
				 errhidestmt(true)));
	}
	plh_see_logged(error);
	if (previous_hook && setting == NULL)
		previous_hook(error);
}

void
plh_register_log_hook(void)
{
	previous_hook = emit_log_hook;
	emit_log_hook = on_log;
}
