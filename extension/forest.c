/*
 * forest.c
 *		Turns "who is blocked by whom" into rows of an indented tree: SQL
 *		function forest().  Pure: its arguments are all it reads, no lock is
 *		taken.
 *
 * In C because a tree has to be there at once also when a thousand wait.
 * Nothing recurses, and all but the paths, which are output, is linear in
 * members and edges.
 */
#include "plh.h"

#include <limits.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/tuplestore.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(plh_forest);

/*
 * Far more than there can be processes; a bound on memory (about 100 bytes
 * for each member, 24 for each edge), for whoever calls this by hand.
 */
#define MAX_MEMBERS 1000000
#define MAX_EDGES 10000000

/* Columns of a row of forest(). */
#define FOREST_COLUMNS 8

/*
 * Members are 0 .. n_members - 1 here and 1 .. n in SQL.  The blockers of
 * member m are parents[first_up[m] .. first_up[m + 1] - 1], whom it blocks
 * children[first_down[m] .. first_down[m + 1] - 1], each in the order in
 * which the edges came.
 */
typedef struct Graph
{
	int			n_members;
	const int32 *pids;
	const bool *unknown;		/* pids that are null: nobody described the process; NULL: none */
	int		   *first_up;
	int		   *parents;
	int		   *first_down;
	int		   *children;
	bool	   *in_cycle;
} Graph;

/* A row still to be shown. */
typedef struct Todo
{
	int			member;			/* -1: a row that stands for several */
	int			level;
	int			collapsed;
	bool		expand;
} Todo;

/* The elements of an array argument; nulls only where the caller asks for them. */
static const int32 *
int_array(FunctionCallInfo fcinfo, int argument, const char *name, int bound, int *length, const bool **nulls)
{
	ArrayType  *array;
	Datum	   *elements;
	bool	   *element_nulls;
	int32	   *values;

	*length = 0;
	if (PG_ARGISNULL(argument))
		return NULL;
	array = PG_GETARG_ARRAYTYPE_P(argument);
	if (ARR_NDIM(array) == 0)
		return NULL;
	if (ARR_NDIM(array) != 1 || (nulls == NULL && array_contains_nulls(array)))
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s must be a one-dimensional array%s", name, nulls == NULL ? " without nulls" : "")));
	*length = ARR_DIMS(array)[0];
	if (*length > bound)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s has %d elements, more than %d", name, *length, bound)));
	if (!array_contains_nulls(array))
		return (const int32 *) ARR_DATA_PTR(array);

	deconstruct_array(array, INT4OID, sizeof(int32), true, TYPALIGN_INT, &elements, &element_nulls, length);
	values = palloc0(*length * sizeof(int32));
	for (int i = 0; i < *length; i++)
		if (!element_nulls[i])
			values[i] = DatumGetInt32(elements[i]);
	*nulls = element_nulls;
	return values;
}

/* Checks the edges and brings them into both directions (counting sort). */
static void
build_graph(Graph *graph, const int32 *children, const int32 *parents, int n_edges)
{
	int			n = graph->n_members;
	int		   *fill;

	graph->first_up = palloc0((n + 1) * sizeof(int));
	graph->first_down = palloc0((n + 1) * sizeof(int));
	graph->parents = palloc((n_edges + 1) * sizeof(int));
	graph->children = palloc((n_edges + 1) * sizeof(int));
	graph->in_cycle = palloc0(n * sizeof(bool));
	for (int i = 0; i < n_edges; i++)
	{
		if (children[i] < 1 || children[i] > n || parents[i] < 1 || parents[i] > n)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("edge %d leads from member %d to member %d", i + 1, children[i], parents[i]),
					 errdetail("There are %d members, numbered from 1.", n)));
		if (i > 0 && children[i] < children[i - 1])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("edges must be sorted by child"),
					 errdetail("Edge %d is of member %d, the one before of member %d.", i + 1, children[i], children[i - 1])));
		graph->first_up[children[i]]++;
		graph->first_down[parents[i]]++;
		graph->parents[i] = parents[i] - 1;
	}
	for (int m = 0; m < n; m++)
	{
		graph->first_up[m + 1] += graph->first_up[m];
		graph->first_down[m + 1] += graph->first_down[m];
	}
	fill = palloc((n + 1) * sizeof(int));
	memcpy(fill, graph->first_down, (n + 1) * sizeof(int));
	for (int i = 0; i < n_edges; i++)
		graph->children[fill[parents[i] - 1]++] = children[i] - 1;
	pfree(fill);
}

/*
 * Marks what waits, over others, for itself: strongly connected components of
 * several members (Tarjan).
 */
static void
find_cycles(Graph *graph)
{
	int			n = graph->n_members;
	int		   *index = palloc0(n * sizeof(int));	/* 0: not visited */
	int		   *low = palloc(n * sizeof(int));
	bool	   *on_stack = palloc0(n * sizeof(bool));
	int		   *stack = palloc(n * sizeof(int));
	int		   *call = palloc(n * sizeof(int));
	int		   *call_edge = palloc(n * sizeof(int));
	int			counter = 0;
	int			n_stack = 0;

	for (int start = 0; start < n; start++)
	{
		int			top = 0;

		if (index[start] != 0)
			continue;
		call[0] = start;
		call_edge[0] = -1;		/* not entered yet */
		while (top >= 0)
		{
			int			m = call[top];
			int			p;

			if (call_edge[top] < 0)
			{
				index[m] = low[m] = ++counter;
				stack[n_stack++] = m;
				on_stack[m] = true;
				call_edge[top] = graph->first_up[m];
			}
			if (call_edge[top] < graph->first_up[m + 1])
			{
				p = graph->parents[call_edge[top]++];
				if (index[p] == 0)
				{
					call[++top] = p;
					call_edge[top] = -1;
				}
				else if (on_stack[p])
					low[m] = Min(low[m], index[p]);
				continue;
			}
			if (--top >= 0)
				low[call[top]] = Min(low[call[top]], low[m]);
			if (low[m] == index[m])
			{
				bool		several = stack[n_stack - 1] != m;

				do
				{
					p = stack[--n_stack];
					on_stack[p] = false;
					graph->in_cycle[p] = several;
				} while (p != m);
			}
		}
	}
	pfree(index);
	pfree(low);
	pfree(on_stack);
	pfree(stack);
	pfree(call);
	pfree(call_edge);
}

static inline bool
pid_unknown(const Graph *graph, int member)
{
	return graph->unknown != NULL && graph->unknown[member];
}

/*
 * Where to begin: members that nobody blocks; then of each cycle that first
 * blockers form the member with the smallest pid.
 */
static int
find_starts(const Graph *graph, int *starts)
{
	int			n = graph->n_members;
	int		   *mark = palloc0(n * sizeof(int));	/* walk that came by */
	int			n_starts = 0;

	for (int m = 0; m < n; m++)
		if (graph->first_up[m] == graph->first_up[m + 1])
			starts[n_starts++] = m;
	for (int m = 0; m < n; m++)
	{
		int			c = m;

		while (mark[c] == 0 && graph->first_up[c] < graph->first_up[c + 1])
		{
			mark[c] = m + 1;
			c = graph->parents[graph->first_up[c]];
		}
		if (mark[c] == m + 1)
		{
			int			smallest = c;

			for (int p = graph->parents[graph->first_up[c]]; p != c; p = graph->parents[graph->first_up[p]])
				if (!pid_unknown(graph, p) &&
					(pid_unknown(graph, smallest) || graph->pids[p] < graph->pids[smallest]))
					smallest = p;
			starts[n_starts++] = smallest;
		}
	}
	pfree(mark);
	return n_starts;
}

/* Members as an array of their pids. */
static ArrayType *
path_array(const Graph *graph, const int *path, int length)
{
	ArrayType  *array;
	Size		size;
	int32	   *pids;

	if (length == 0)
		return construct_empty_array(INT4OID);
	if (graph->unknown != NULL)
	{
		Datum	   *elements = palloc(length * sizeof(Datum));
		bool	   *nulls = palloc(length * sizeof(bool));
		int			one = 1;

		for (int i = 0; i < length; i++)
		{
			elements[i] = Int32GetDatum(graph->pids[path[i]]);
			nulls[i] = graph->unknown[path[i]];
		}
		array = construct_md_array(elements, nulls, 1, &length, &one, INT4OID, sizeof(int32), true, TYPALIGN_INT);
		pfree(elements);
		pfree(nulls);
		return array;
	}
	size = ARR_OVERHEAD_NONULLS(1) + sizeof(int32) * length;
	array = palloc(size);
	SET_VARSIZE(array, size);
	array->ndim = 1;
	array->dataoffset = 0;
	array->elemtype = INT4OID;
	ARR_DIMS(array)[0] = length;
	ARR_LBOUND(array)[0] = 1;
	pids = (int32 *) ARR_DATA_PTR(array);
	for (int i = 0; i < length; i++)
		pids[i] = graph->pids[path[i]];
	return array;
}

Datum
plh_forest(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result;
	Graph		graph = {0};
	const int32 *children;
	const int32 *parents;
	int			n_children,
				n_parents,
				n_starts,
				max_siblings,
				ordinal = 0;
	int		   *starts;
	int		   *path;			/* members from the root down */
	bool	   *seen;
	Todo	   *todo;

	InitMaterializedSRF(fcinfo, 0);
	result = (ReturnSetInfo *) fcinfo->resultinfo;
	if (result->setDesc->natts != FOREST_COLUMNS)
		elog(ERROR, "forest() has %d columns, expected %d", result->setDesc->natts, FOREST_COLUMNS);

	graph.pids = int_array(fcinfo, 0, "pids", MAX_MEMBERS, &graph.n_members, &graph.unknown);
	children = int_array(fcinfo, 1, "children", MAX_EDGES, &n_children, NULL);
	parents = int_array(fcinfo, 2, "parents", MAX_EDGES, &n_parents, NULL);
	if (n_children != n_parents)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there are %d children and %d parents", n_children, n_parents)));
	max_siblings = PG_ARGISNULL(3) ? INT_MAX : PG_GETARG_INT32(3);
	if (max_siblings < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_siblings must not be negative, but is %d", max_siblings)));
	build_graph(&graph, children, parents, n_children);
	if (graph.n_members == 0)
		return (Datum) 0;

	find_cycles(&graph);
	starts = palloc(graph.n_members * sizeof(int));
	n_starts = find_starts(&graph, starts);

	seen = palloc0(graph.n_members * sizeof(bool));
	/* A plain row stands one below the longest chain: a cycle of all members closes there. */
	path = palloc((graph.n_members + 1) * sizeof(int));
	/* Each member is expanded once, and puts its children here, and one row. */
	todo = palloc_extended((graph.n_members + n_children + 1) * sizeof(Todo), MCXT_ALLOC_HUGE);

	for (int tree = 0; tree < n_starts; tree++)
	{
		int			root = starts[tree];
		int			top = 0;

		todo[top++] = (Todo) {.member = root,.expand = true};
		while (top > 0)
		{
			Todo		row = todo[--top];
			int			m = row.member;
			int			first = top;
			int			leaves = 0,
						left_out = 0;
			ArrayType  *array;
			Datum		values[FOREST_COLUMNS];
			bool		nulls[FOREST_COLUMNS] = {false};

			CHECK_FOR_INTERRUPTS();
			if (m >= 0)
				path[row.level] = m;
			array = path_array(&graph, path, m >= 0 ? row.level + 1 : row.level);
			values[0] = Int32GetDatum(++ordinal);
			values[1] = Int32GetDatum(tree + 1);
			values[2] = Int32GetDatum(row.level);
			values[3] = PointerGetDatum(array);
			values[4] = Int32GetDatum(m + 1);
			nulls[4] = m < 0;
			values[5] = Int32GetDatum(root + 1);
			values[6] = BoolGetDatum(m >= 0 && graph.in_cycle[m]);
			values[7] = Int32GetDatum(row.collapsed);
			nulls[7] = row.collapsed == 0;
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
			pfree(array);
			/* An edge that was given twice had it put here twice. */
			if (!row.expand || seen[m])
				continue;

			seen[m] = true;
			for (int i = graph.first_down[m]; i < graph.first_down[m + 1]; i++)
			{
				int			c = graph.children[i];

				/* Expanded below its first blocker only, a plain row below others. */
				bool		expand = graph.parents[graph.first_up[c]] == m && !seen[c];

				if (!expand || graph.first_down[c] == graph.first_down[c + 1])
				{
					if (leaves >= max_siblings)
					{
						left_out++;
						continue;
					}
					leaves++;
				}
				todo[top++] = (Todo) {.member = c,.level = row.level + 1,.expand = expand};
			}
			if (left_out > 0)
				todo[top++] = (Todo) {.member = -1,.level = row.level + 1,.collapsed = left_out};
			/* The next one to be shown has to be on top. */
			for (int i = first, k = top - 1; i < k; i++, k--)
			{
				Todo		swap = todo[i];

				todo[i] = todo[k];
				todo[k] = swap;
			}
		}
	}
	return (Datum) 0;
}
