/*
 * live_read.c
 *		Turns copies of the live area into rows: the SQL functions behind
 *		blocking_now, recent_waits() and recent_load().
 *
 * No lock is held here.  The bytes were made by Go; nothing is taken for
 * granted about them: every read is checked against the end of its record, and
 * what does not fit is an error of this statement.
 *
 * Texts are masked here as pg_stat_activity and view lock_history.process do:
 * the area has no owner whose rights could stand between it and a reader.
 */
#include "plh.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "compat.h"

#define MASK "<insufficient privilege>"

/*
 * Columns of the row types that do not come from the record: the node; of waits
 * also when the graph was taken, and up to when it is known that they go on.
 */
enum
{
	COLUMN_NODE,
	COLUMN_TAKEN_AT,
	COLUMN_UNTIL,
	OWN_COLUMNS
};

PG_FUNCTION_INFO_V1(plh_live_rows);
PG_FUNCTION_INFO_V1(plh_live_load);
PG_FUNCTION_INFO_V1(plh_live_decode);

typedef struct Reader
{
	Tuplestorestate *store;
	TupleDesc	description;
	Datum	   *values;
	bool	   *nulls;
	MemoryContext row_context;	/* emptied after each row */
	int			own_columns;	/* the first ones, which are not in the record */

	/* The reader's rights, and the answer for the last role asked about. */
	bool		sees_all;
	Oid			last_role;
	bool		sees_last_role;
} Reader;

/* What is left of a record. */
typedef struct Rest
{
	const char *at;
	size_t		left;
} Rest;

PLH_NORETURN static void
damaged(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the live area of pg_lock_history cannot be read: %s", what),
			 errhint("It is written again as long as somebody waits. When this message stays, install library and extension from the same release, restart the server, and report it.")));
}

static const char *
take(Rest *rest, size_t n)
{
	const char *taken = rest->at;

	if (n > rest->left)
		damaged("a record ends in the middle of a field");
	rest->at += n;
	rest->left -= n;
	return taken;
}

static uint32
take_count(Rest *rest)
{
	uint32		n;

	memcpy(&n, take(rest, sizeof(n)), sizeof(n));
	return n;
}

static Datum
from_int(Oid type, int64 value)
{
	switch (type)
	{
		case BOOLOID:
			return BoolGetDatum(value != 0);
		case INT2OID:
			return Int16GetDatum((int16) value);
		case INT4OID:
			return Int32GetDatum((int32) value);
		case INT8OID:
			return Int64GetDatum(value);
		case OIDOID:
			return ObjectIdGetDatum((Oid) value);
		case XIDOID:
			return TransactionIdGetDatum((TransactionId) value);
		case TIMESTAMPTZOID:
			return TimestampTzGetDatum((TimestampTz) value);
		default:
			damaged("a number stands where the column holds none");
	}
}

static Datum
from_ints(Oid type, const char *raw, uint32 n)
{
	Datum	   *elements;
	uint32		i;

	if (type != INT4ARRAYOID)
		damaged("a list stands where the column holds none");
	elements = palloc_extended(n * sizeof(Datum) + 1, MCXT_ALLOC_HUGE);
	for (i = 0; i < n; i++)
	{
		int32		value;

		memcpy(&value, raw + i * sizeof(value), sizeof(value));
		elements[i] = Int32GetDatum(value);
	}
	return PointerGetDatum(construct_array(elements, (int) n, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

static Datum
from_text(Oid type, const char *raw, uint32 length)
{
	char	   *text = plh_fit_encoding(pnstrdup(raw, length));

	switch (type)
	{
		case TEXTOID:
			return CStringGetTextDatum(text);
		case INETOID:
			return DirectFunctionCall1(inet_in, CStringGetDatum(text));
		default:
			damaged("a text stands where the column holds none");
	}
}

/* A private field of somebody else's: a text says so, all else is null. */
static void
mask(Reader *reader, int i)
{
	reader->nulls[i] = TupleDescAttr(reader->description, i)->atttypid != TEXTOID;
	reader->values[i] = reader->nulls[i] ? (Datum) 0 : CStringGetTextDatum(MASK);
}

static void
put_field(Reader *reader, int i, Rest *rest, bool may_see)
{
	Oid			type = TupleDescAttr(reader->description, i)->atttypid;
	uint8		kind = (uint8) *take(rest, 1);
	bool		is_private = (kind & PLH_FIELD_PRIVATE) != 0;
	int64		number;
	uint32		n;
	const char *raw;

	reader->nulls[i] = false;
	switch (kind & ~PLH_FIELD_PRIVATE)
	{
		case PLH_FIELD_NULL:
			reader->nulls[i] = true;
			reader->values[i] = (Datum) 0;
			break;
		case PLH_FIELD_INT:
			memcpy(&number, take(rest, sizeof(number)), sizeof(number));
			reader->values[i] = from_int(type, number);
			break;
		case PLH_FIELD_INTS:
			n = take_count(rest);
			raw = take(rest, (size_t) n * sizeof(int32));
			reader->values[i] = from_ints(type, raw, n);
			break;
		case PLH_FIELD_TEXT:
			n = take_count(rest);
			raw = take(rest, n);
			if (!is_private || may_see)
				reader->values[i] = from_text(type, raw, n);
			break;
		default:
			damaged("a field is of no known kind");
	}
	if (is_private && !may_see)
		mask(reader, i);
}

static bool
may_see_role(Reader *reader, Oid role)
{
	if (reader->sees_all)
		return true;
	if (!OidIsValid(role))
		return false;
	if (role != reader->last_role)
	{
		reader->last_role = role;
		reader->sees_last_role = has_privs_of_role(GetUserId(), role);
	}
	return reader->sees_last_role;
}

static void
put_record(Reader *reader, const PlhRecord *record, Rest fields)
{
	bool		may_see = may_see_role(reader, record->role);
	int			i;

	if (record->n_fields != (uint32) (reader->description->natts - reader->own_columns))
		damaged("the records have another number of fields than the row type has");
	for (i = reader->own_columns; i < reader->description->natts; i++)
		put_field(reader, i, &fields, may_see);
	if (fields.left != 0)
		damaged("a record goes on after its last field");
	tuplestore_putvalues(reader->store, reader->description, reader->values, reader->nulls);
}

/* All records of a buffer. */
static void
put_records(Reader *reader, const char *buffer, size_t length)
{
	Rest		rest = {buffer, length};

	while (rest.left > 0)
	{
		MemoryContext before;
		PlhRecord	record;
		Rest		fields;

		CHECK_FOR_INTERRUPTS();
		memcpy(&record, take(&rest, sizeof(record)), sizeof(record));
		if (record.length < sizeof(record))
			damaged("a record is shorter than its prefix");
		fields.left = record.length - sizeof(record);
		fields.at = take(&rest, fields.left);

		before = MemoryContextSwitchTo(reader->row_context);
		put_record(reader, &record, fields);
		MemoryContextSwitchTo(before);
		MemoryContextReset(reader->row_context);
	}
}

static void
begin_rows(Reader *reader, int own_columns, FunctionCallInfo fcinfo)
{
	ReturnSetInfo *result;
	int			i;

	InitMaterializedSRF(fcinfo, 0);
	result = (ReturnSetInfo *) fcinfo->resultinfo;
	reader->store = result->setResult;
	reader->description = result->setDesc;
	reader->own_columns = own_columns;
	if (reader->description->natts <= own_columns)
		damaged("the row type has too few columns");

	reader->values = palloc0(reader->description->natts * sizeof(Datum));
	reader->nulls = palloc0(reader->description->natts * sizeof(bool));
	for (i = 0; i < own_columns; i++)
		reader->nulls[i] = true;
	reader->row_context = AllocSetContextCreate(CurrentMemoryContext, "pg_lock_history row", ALLOCSET_DEFAULT_SIZES);
	reader->sees_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	reader->last_role = InvalidOid;
}

/*
 * True when the graph is kept up to date: the worker lives, and has published
 * it in this life.
 */
static bool
graph_is_alive(const PlhGraphFacts *graph)
{
	return pg_atomic_read_u32(&plh_shared->worker_pid) != 0 &&
		graph->taken_at >= (TimestampTz) pg_atomic_read_u64(&plh_shared->worker_start);
}

/* Copies sections for a reader, whose first column is the node. */
static void
copy_for(Reader *reader, PlhLiveCopy *copy, uint32 sections)
{
	if (plh_shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_lock_history is not loaded by the server, there is nothing to show"),
				 errhint(PLH_PRELOAD_HINT)));
	plh_copy_live(copy, sections);
	if (copy->node[0] != '\0')
	{
		reader->values[COLUMN_NODE] = CStringGetTextDatum(plh_fit_encoding(copy->node));
		reader->nulls[COLUMN_NODE] = false;
	}
}

/* live_rows(graph, waits): the sections asked for, as they were at one moment. */
Datum
plh_live_rows(PG_FUNCTION_ARGS)
{
	Reader		reader;
	PlhLiveCopy copy;
	uint32		sections = 0;

	if (PG_GETARG_BOOL(0))
		sections |= 1 << PLH_SECTION_GRAPH;
	if (PG_GETARG_BOOL(1))
		sections |= 1 << PLH_SECTION_WAITS;
	begin_rows(&reader, OWN_COLUMNS, fcinfo);
	copy_for(&reader, &copy, sections);

	if (copy.data[PLH_SECTION_WAITS])
		put_records(&reader, copy.data[PLH_SECTION_WAITS], copy.length[PLH_SECTION_WAITS]);
	if (copy.data[PLH_SECTION_GRAPH])
	{
		const PlhGraphFacts *graph = &copy.facts.graph;

		reader.values[COLUMN_TAKEN_AT] = TimestampTzGetDatum(graph->taken_at);
		reader.values[COLUMN_UNTIL] = TimestampTzGetDatum(
			graph_is_alive(graph) ?
			Max(graph->taken_at, (TimestampTz) pg_atomic_read_u64(&plh_shared->last_tick)) : graph->taken_at);
		reader.nulls[COLUMN_TAKEN_AT] = reader.nulls[COLUMN_UNTIL] = false;
		put_records(&reader, copy.data[PLH_SECTION_GRAPH], copy.length[PLH_SECTION_GRAPH]);
	}
	return (Datum) 0;
}

/* live_load(): load by second. */
Datum
plh_live_load(PG_FUNCTION_ARGS)
{
	Reader		reader;
	PlhLiveCopy copy;

	begin_rows(&reader, COLUMN_NODE + 1, fcinfo);
	copy_for(&reader, &copy, 1 << PLH_SECTION_LOAD);
	put_records(&reader, copy.data[PLH_SECTION_LOAD], copy.length[PLH_SECTION_LOAD]);
	return (Datum) 0;
}

/*
 * The same for bytes at hand.  No SQL function of the extension leads here: a
 * test makes one to see what becomes of damaged records (test/sql/live.sql).
 */
Datum
plh_live_decode(PG_FUNCTION_ARGS)
{
	Reader		reader;
	bytea	   *records = PG_GETARG_BYTEA_PP(0);

	begin_rows(&reader, OWN_COLUMNS, fcinfo);
	put_records(&reader, VARDATA_ANY(records), VARSIZE_ANY_EXHDR(records));
	return (Datum) 0;
}
