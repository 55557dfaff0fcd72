/*
 * pg_lock_history.c
 *		Entry point of the shim: wires the set-up calls, nothing else.
 *
 * Runs in the postmaster while preloading, and in a session that calls one of
 * our functions without preload.  Go is never loaded here: its threads would
 * not survive fork (see goload.c).
 */
#include "plh.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "compat.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	/* First: a value of conninfo that the file holds and that is refused is logged while settings are defined. */
	if (process_shared_preload_libraries_in_progress)
		plh_register_log_hook();
	plh_define_settings();		/* restart-only ones only while preloading */

	/*
	 * Without preload only the SQL functions exist; they report why.  Under
	 * pg_upgrade a preloaded worker would start as well: register nothing.
	 */
	if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade)
		return;

	if (plh_enable_query_id)
		EnableQueryId();
	plh_register_shmem();
	plh_register_error_hooks();
	plh_register_worker();
}
