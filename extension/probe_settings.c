/*
 * probe_settings.c
 *		Settings and facts about the server for Go, as one JSON object in the
 *		shape that gosrc/config reads.
 *
 * Asked for at start and at each reload.  Runs in the worker, outside any lock.
 */
#include "plh.h"

#include <unistd.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/varlena.h"

#include "compat.h"

void
plh_json_string(StringInfo out, const char *key, const char *value)
{
	appendStringInfo(out, "%s\"%s\":", out->data[out->len - 1] == '{' ? "" : ",", key);
	escape_json(out, value);
}

void
plh_json_int(StringInfo out, const char *key, int64 value)
{
	appendStringInfo(out, "%s\"%s\":" INT64_FORMAT, out->data[out->len - 1] == '{' ? "" : ",", key, value);
}

/* value must be finite: JSON has no other numbers */
void
plh_json_real(StringInfo out, const char *key, double value)
{
	appendStringInfo(out, "%s\"%s\":%.17g", out->data[out->len - 1] == '{' ? "" : ",", key, value);
}

void
plh_json_bool(StringInfo out, const char *key, bool value)
{
	appendStringInfo(out, "%s\"%s\":%s", out->data[out->len - 1] == '{' ? "" : ",", key, value ? "true" : "false");
}

/* A setting of the server by its name, 0 where this version has none of it. */
static int64
server_int(const char *name)
{
	const char *value = GetConfigOption(name, true, false);

	return value ? strtol(value, NULL, 10) : 0;
}

static const char *
server_string(const char *name)
{
	const char *value = GetConfigOption(name, true, false);

	return value ? value : "";
}

static void
append_socket_directories(StringInfo out)
{
	char	   *raw = pstrdup(server_string("unix_socket_directories"));
	List	   *directories;
	ListCell   *cell;
	bool		first = true;

	appendStringInfoString(out, ",\"socket_directories\":[");
	if (SplitDirectoriesString(raw, ',', &directories))
	{
		foreach(cell, directories)
		{
			if (!first)
				appendStringInfoChar(out, ',');
			first = false;
			escape_json(out, (char *) lfirst(cell));
		}
		list_free_deep(directories);
	}
	appendStringInfoChar(out, ']');
	pfree(raw);
}

static void
append_server_facts(StringInfo out)
{
	char		hostname[256] = "";
	char		identifier[32];

	/* Empty when it fails; Go then falls back to the port alone. */
	if (gethostname(hostname, sizeof(hostname) - 1) != 0)
		hostname[0] = '\0';
	snprintf(identifier, sizeof(identifier), UINT64_FORMAT, GetSystemIdentifier());

	plh_json_int(out, "version_num", server_int("server_version_num"));
	plh_json_int(out, "port", PostPortNumber);
	append_socket_directories(out);
	plh_json_string(out, "listen_addresses", server_string("listen_addresses"));
	if (plh_bootstrap_role()[0] != '\0')
		plh_json_string(out, "bootstrap_role", plh_bootstrap_role());
	plh_json_int(out, "postmaster_start", PgStartTime);
	plh_json_int(out, "worker_start", (int64) pg_atomic_read_u64(&plh_shared->worker_start));
	plh_json_int(out, "previous_flush", plh_previous_flush());
	plh_json_string(out, "system_identifier", identifier);	/* too big for a number of JSON */
	plh_json_int(out, "max_connections", MaxConnections);
	plh_json_int(out, "superuser_reserved_connections", server_int("superuser_reserved_connections"));
	plh_json_int(out, "reserved_connections", server_int("reserved_connections"));
	plh_json_int(out, "max_processes", PLH_MAX_PROCESSES());
	plh_json_int(out, "max_prepared_transactions", server_int("max_prepared_transactions"));
	plh_json_string(out, "data_directory", DataDir);
	plh_json_string(out, "hostname", hostname);
	plh_json_string(out, "extension_version", PLH_VERSION);
}

int32_t
plh_probe_settings(char *json, uint32_t room, uint32_t *length)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_OK;

	*length = 0;
	plh_enter_probe();
	PG_TRY();
	{
		StringInfoData text;

		initStringInfo(&text);
		appendStringInfoString(&text, "{\"settings\":{");
		plh_append_settings(&text);
		appendStringInfoString(&text, "},\"server\":{");
		append_server_facts(&text);
		appendStringInfoString(&text, "}}");
		*length = (uint32_t) text.len;
		if (*length <= room)
			memcpy(json, text.data, *length);
		else
			result = PLH_TOO_SMALL;
		pfree(text.data);
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
