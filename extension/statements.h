/*
 * statements.h
 *		The memory of what open transactions did: the last few statements that
 *		samples saw of each.
 *
 * No server header is included here or in statements.c: gosrc/statementtest
 * compiles both for its table tests.
 */
#ifndef PLH_STATEMENTS_H
#define PLH_STATEMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Statements of one transaction with different texts.  More would cost their
 * text for each slot, and readers who want to see the end of the list.
 */
#define PLH_STATEMENTS_KEPT 8

/* Bytes kept of each text: enough for the table's name in what an ORM writes. */
#define PLH_STATEMENT_TEXT 512

/* What one look saw of a session; all of it is true of one moment. */
typedef struct PlhStatementSample
{
	int64_t		at;
	int64_t		backend_start;
	int64_t		xact_start;
	int64_t		query_start;
	int64_t		query_id;		/* 0 = none */
	int32_t		pid;
	uint32_t	lxid;			/* local number of the transaction: another one, another number */
	uint32_t	xid;			/* 0 = it has written nothing yet */
	int32_t		state;			/* PlhState */
	uint32_t	wait_event_info;	/* 0 = it did not wait, or was idle */
	uint32_t	length;			/* of its text in bytes, also of what is not kept */
} PlhStatementSample;

typedef struct PlhKnownStatement
{
	int64_t		first_seen;
	int64_t		last_seen;
	int64_t		query_start;	/* of the latest run seen */
	int64_t		query_id;
	uint64_t	turn;			/* when it was last seen, as a number that no clock sets back */
	uint32_t	samples;
	int32_t		state;			/* when last seen */
	uint32_t	wait_event_info;	/* what it last waited for, 0 = was not seen to */
	uint32_t	length;			/* of the text, also of what is not kept */
} PlhKnownStatement;

/* The transaction that was last seen in one slot. */
typedef struct PlhKnownTransaction
{
	int64_t		backend_start;
	int64_t		xact_start;
	uint64_t	turn;			/* of the latest sample */
	int32_t		pid;
	uint32_t	lxid;			/* 0 = nothing is known */
	uint32_t	xid;
	uint32_t	n_statements;
	uint32_t	newest;			/* index of the statement seen last */
	uint32_t	writer;			/* and of the one at which xid was first seen, n_statements at most */
	uint32_t	left_out;		/* statements that had to make room */
	PlhKnownStatement statements[PLH_STATEMENTS_KEPT];	/* in no order */
	char		texts[PLH_STATEMENTS_KEPT][PLH_STATEMENT_TEXT];
} PlhKnownTransaction;

extern bool plh_is_of_transaction(const PlhKnownTransaction *known, const PlhStatementSample *sample);
extern bool plh_is_newest_statement(const PlhKnownTransaction *known, const PlhStatementSample *sample);
extern void plh_note_statement(PlhKnownTransaction *known, const PlhStatementSample *sample, const char *text);

#endif							/* PLH_STATEMENTS_H */
