/*
 * guc.c
 *		Settings of pg_lock_history: the one place that knows their names,
 *		units, ranges and defaults.  doc/settings.md is checked against it.
 *
 * The values are handed to Go as JSON (probe_settings.c); C itself looks at very
 * few of them.
 */
#include "plh.h"

#include <limits.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/guc.h"


/* Written by the server's settings machinery only. */
bool		plh_enable_query_id = true;
char	   *plh_database;
char	   *plh_conninfo;
int			plh_shared_memory = 4;
double		plh_hot_page_budget = 1.0;

static bool enabled = true;
static bool track_locks = true;
static bool track_load = true;
static bool track_lwlocks = true;
static bool track_pages = true;
static char *local_conninfo;
static char *node_name;
static char *incident;			/* read by the views, with current_setting() */
static int	sample_period = 10;
static int	flush_period = 1000;
static int	retention = 7 * 24 * 3600;
static int	rollup_retention = 90 * 24 * 3600;
static int	max_size = 1024;
static int	min_duration = 100;
static int	max_rows_per_second = 1000;
static int	query_text;
static int	query_length = 1024;
static double anomaly_band = 3.0;
static int	memory_limit = 64;
static bool allow_published = false;
static int	log_level = PLH_LOG_INFO;

enum
{
	QUERY_TEXT_FULL,
	QUERY_TEXT_NORMALIZED,
	QUERY_TEXT_OFF
};

static const struct config_enum_entry query_text_options[] = {
	{"full", QUERY_TEXT_FULL, false},
	{"normalized", QUERY_TEXT_NORMALIZED, false},
	{"off", QUERY_TEXT_OFF, false},
	{NULL, 0, false}
};

static const struct config_enum_entry log_level_options[] = {
	{"debug", PLH_LOG_DEBUG, false},
	{"info", PLH_LOG_INFO, false},
	{"warning", PLH_LOG_WARNING, false},
	{NULL, 0, false}
};

static bool
check_database(char **newval, void **extra, GucSource source)
{
	if (**newval == '\0' || strlen(*newval) >= NAMEDATALEN)
	{
		GUC_check_errdetail("pg_lock_history.database must name one database, with at most %d bytes.",
							NAMEDATALEN - 1);
		GUC_check_errhint("Leave it at \"postgres\", or name the database in which CREATE EXTENSION pg_lock_history was run.");
		return false;
	}
	return true;
}

/*
 * Only the form is checked: whether somebody answers is known when the writer
 * connects, and said then.  The value is not repeated, it may hold a password.
 */
static bool
check_conninfo(char **newval, void **extra, GucSource source)
{
	const char *value = *newval;

	if (*value == '\0' ||
		strncmp(value, "postgres://", 11) == 0 ||
		strncmp(value, "postgresql://", 13) == 0 ||
		strchr(value, '=') != NULL)
		return true;
	GUC_check_errdetail("The value must be empty, a list like \"host=... dbname=... user=...\", or a postgresql:// address.");
	GUC_check_errhint("Leave it empty to write to this server.");
	return false;
}

/* A band of less than one spread would be left every other minute. */
static bool
check_anomaly_band(double *newval, void **extra, GucSource source)
{
	if (*newval == 0.0 || *newval >= 1.0)
		return true;
	GUC_check_errdetail("pg_lock_history.anomaly_band must be 0, or from 1 to 100.");
	GUC_check_errhint("0 switches the detection off, 3 is the default, more reports less.");
	return false;
}

static bool
check_node_name(char **newval, void **extra, GucSource source)
{
	const unsigned char *c;

	if (strlen(*newval) > 128)
	{
		GUC_check_errdetail("pg_lock_history.node_name may have at most 128 bytes.");
		return false;
	}
	if (!pg_verify_mbstr(PG_UTF8, *newval, strlen(*newval), true))
	{
		GUC_check_errdetail("pg_lock_history.node_name must be valid UTF-8.");
		return false;
	}
	for (c = (const unsigned char *) *newval; *c; c++)
	{
		if (*c < ' ' || *c == 0x7f)
		{
			GUC_check_errdetail("pg_lock_history.node_name must not contain control characters.");
			return false;
		}
	}
	return true;
}

void
plh_define_settings(void)
{
	DefineCustomBoolVariable("pg_lock_history.enabled",
							 "Samples lock waits.",
							 "When off, the worker stays but samples nothing; the time shows in lock_history.gaps.",
							 &enabled, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_lock_history.track_locks",
							 "Samples waits for heavyweight locks.",
							 NULL,
							 &track_locks, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_lock_history.track_load",
							 "Samples what sessions do, and which event they wait for.",
							 NULL,
							 &track_load, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_lock_history.track_lwlocks",
							 "Samples which LWLock sessions wait for, and what stands ahead of them.",
							 "With pg_lock_history.track_load only.",
							 &track_lwlocks, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_lock_history.track_pages",
							 "Finds out which page sessions wait for.",
							 "With pg_lock_history.track_load only.",
							 &track_pages, true, PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomStringVariable("pg_lock_history.database",
							   "Database of this server that holds the history.",
							   "CREATE EXTENSION pg_lock_history has to be run there.",
							   &plh_database, "postgres", PGC_SIGHUP, 0,
							   check_database, NULL, NULL);
	DefineCustomStringVariable("pg_lock_history.conninfo",
							   "Where to write the history; empty means this server.",
							   "Connection string in libpq's form. Use passfile=... rather than a password.",
							   &plh_conninfo, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_conninfo, NULL, NULL);
	DefineCustomStringVariable("pg_lock_history.local_conninfo",
							   "How to reach this server to look up names; empty means by its own socket.",
							   NULL,
							   &local_conninfo, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_conninfo, NULL, NULL);
	DefineCustomStringVariable("pg_lock_history.node_name",
							   "Name of this server in the history; empty means host name and port.",
							   NULL,
							   &node_name, "", PGC_SIGHUP, 0,
							   check_node_name, NULL, NULL);

	DefineCustomStringVariable("pg_lock_history.incident",
							   "Kept incident that the views and functions of this session read; empty means the ring.",
							   "One of SELECT name FROM lock_history.kept.",
							   &incident, "", PGC_USERSET, 0,
							   NULL, NULL, NULL);

	DefineCustomIntVariable("pg_lock_history.sample_period",
							"Time between two samples.",
							"A wait shorter than this may not be seen.",
							&sample_period, 10, 1, 60 * 1000, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lock_history.flush_period",
							"Time between two writes to the history.",
							"A crash loses at most what was seen since the last one.",
							&flush_period, 1000, 100, 60 * 1000, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lock_history.retention",
							"Age at which history is thrown away at the latest.",
							NULL,
							&retention, 7 * 24 * 3600, 14, INT_MAX / 2, PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lock_history.rollup_retention",
							"Age at which load by minute is thrown away at the latest.",
							"Load by second goes with pg_lock_history.retention.",
							&rollup_retention, 90 * 24 * 3600, 14, INT_MAX / 2, PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lock_history.max_size",
							"Disk space that the history may take.",
							NULL,
							&max_size, 1024, 8, INT_MAX / 2, PGC_SIGHUP, GUC_UNIT_MB,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lock_history.min_duration",
							"Waits shorter than this are kept as sums by second.",
							NULL,
							&min_duration, 100, 0, 60 * 1000, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lock_history.max_rows_per_second",
							"Waits over this number in one second are kept as sums.",
							NULL,
							&max_rows_per_second, 1000, 10, 1000 * 1000, PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	DefineCustomEnumVariable("pg_lock_history.query_text",
							 "What is kept of statements.",
							 "full, normalized (constants replaced by $n), or off.",
							 &query_text, QUERY_TEXT_FULL, query_text_options, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lock_history.query_length",
							"Bytes kept of a statement.",
							"The server itself keeps at most track_activity_query_size.",
							&query_length, 1024, 64, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_BYTE,
							NULL, NULL, NULL);
	DefineCustomRealVariable("pg_lock_history.hot_page_budget",
							 "Time that may be spent on the search for pages that sessions wait for, in percent of one core.",
							 "What the budget does not reach is shown as not found in lock_history.hot_pages.",
							 &plh_hot_page_budget, 1.0, 0.0, 100.0, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomRealVariable("pg_lock_history.anomaly_band",
							 "Width of the band of usual load, in spreads; 0 looks for no anomalies.",
							 "More waiting sessions than that, for 20 seconds, are an anomaly.",
							 &anomaly_band, 3.0, 0.0, 100.0, PGC_SIGHUP, 0,
							 check_anomaly_band, NULL, NULL);
	DefineCustomIntVariable("pg_lock_history.memory_limit",
							"Memory of the worker; half of it may hold facts that wait to be written.",
							NULL,
							&memory_limit, 64, 16, 16 * 1024, PGC_SIGHUP, GUC_UNIT_MB,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_lock_history.allow_published",
							 "Writes the history although a publication sends it to subscribers.",
							 "When off, CREATE EXTENSION refuses such a database, and the writer stops when such a publication is made later.",
							 &allow_published, false, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("pg_lock_history.log_level",
							 "Least important messages that go to the server log.",
							 NULL,
							 &log_level, PLH_LOG_INFO, log_level_options, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	/* The server refuses to define these later. */
	if (process_shared_preload_libraries_in_progress)
	{
		DefineCustomIntVariable("pg_lock_history.shared_memory",
								"Shared memory for the live views.",
								"Two fifths hold the latest graph of waits, two the waits that ended last, one the latest load.",
								&plh_shared_memory, 4, 1, 1024, PGC_POSTMASTER, GUC_UNIT_MB,
								NULL, NULL, NULL);
		DefineCustomBoolVariable("pg_lock_history.enable_query_id",
								 "Has the server compute query identifiers while compute_query_id is auto.",
								 NULL,
								 &plh_enable_query_id, true, PGC_POSTMASTER, 0,
								 NULL, NULL, NULL);
	}

	MarkGUCPrefixReserved("pg_lock_history");
}

bool
plh_log_level_allows(int32 level)
{
	return level >= log_level;
}

/*
 * The settings as the members of one JSON object, in the shape that
 * gosrc/config reads.  Units are part of the names.  May raise.
 */
void
plh_append_settings(StringInfo out)
{
	plh_json_bool(out, "enabled", enabled);
	plh_json_bool(out, "track_locks", track_locks);
	plh_json_bool(out, "track_load", track_load);
	plh_json_bool(out, "track_lwlocks", track_lwlocks);
	plh_json_bool(out, "track_pages", track_pages);
	plh_json_string(out, "database", plh_database);
	plh_json_string(out, "conninfo", plh_conninfo);
	plh_json_string(out, "local_conninfo", local_conninfo);
	plh_json_string(out, "node_name", node_name);
	plh_json_int(out, "sample_period_ms", sample_period);
	plh_json_int(out, "flush_period_ms", flush_period);
	plh_json_int(out, "retention_s", retention);
	plh_json_int(out, "rollup_retention_s", rollup_retention);
	plh_json_int(out, "max_size_mb", max_size);
	plh_json_int(out, "min_duration_ms", min_duration);
	plh_json_int(out, "max_rows_per_second", max_rows_per_second);
	plh_json_string(out, "query_text", query_text_options[query_text].name);
	plh_json_int(out, "query_length", query_length);
	plh_json_real(out, "hot_page_budget", plh_hot_page_budget);
	plh_json_real(out, "anomaly_band", anomaly_band);
	plh_json_int(out, "memory_limit_mb", memory_limit);
	plh_json_bool(out, "allow_published", allow_published);
	plh_json_string(out, "log_level", log_level_options[log_level].name);
}
