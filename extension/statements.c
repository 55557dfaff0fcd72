/*
 * statements.c
 *		Notes samples of one session's statements in the memory of its
 *		transaction.  Pure: the arguments are all it reads.
 *
 * A statement is told by its text.  What is run again (a loop, the ping of a
 * connection pool) stays one entry, so that it does not push others out.  When
 * there is no room, the one not seen for longest makes it, but never the one
 * at which the transaction was first seen to have written: that may be what
 * holds the lock, however many follow.
 *
 * Statements of one transaction never stand beside those of another: the first
 * sample of another one begins anew.
 */
#include "statements.h"

#include <string.h>

#define NO_STATEMENT PLH_STATEMENTS_KEPT

bool
plh_is_of_transaction(const PlhKnownTransaction *known, const PlhStatementSample *sample)
{
	return known->lxid == sample->lxid && known->pid == sample->pid &&
		known->backend_start == sample->backend_start && known->xact_start == sample->xact_start;
}

/* True when the sample needs no text: it is of the run that was seen last. */
bool
plh_is_newest_statement(const PlhKnownTransaction *known, const PlhStatementSample *sample)
{
	return plh_is_of_transaction(known, sample) && known->n_statements > 0 &&
		known->statements[known->newest].query_start == sample->query_start;
}

static void
begin_transaction(PlhKnownTransaction *known, const PlhStatementSample *sample)
{
	/* The texts stay: they cost memory that was never touched. */
	memset(known, 0, offsetof(PlhKnownTransaction, texts));
	known->pid = sample->pid;
	known->lxid = sample->lxid;
	known->backend_start = sample->backend_start;
	known->xact_start = sample->xact_start;
	known->writer = NO_STATEMENT;
}

/* A text longer than what is kept is told by its beginning and its length. */
static uint32_t
kept_length(uint32_t length)
{
	return length < PLH_STATEMENT_TEXT ? length : PLH_STATEMENT_TEXT;
}

static uint32_t
find_text(const PlhKnownTransaction *known, const char *text, uint32_t length)
{
	uint32_t	i;

	for (i = 0; i < known->n_statements; i++)
		if (known->statements[i].length == length &&
			memcmp(known->texts[i], text, kept_length(length)) == 0)
			return i;
	return NO_STATEMENT;
}

static uint32_t
make_room(PlhKnownTransaction *known)
{
	uint32_t	oldest = NO_STATEMENT;
	uint32_t	i;

	if (known->n_statements < PLH_STATEMENTS_KEPT)
		return known->n_statements++;
	for (i = 0; i < PLH_STATEMENTS_KEPT; i++)
		if (i != known->writer &&
			(oldest == NO_STATEMENT || known->statements[i].turn < known->statements[oldest].turn))
			oldest = i;
	known->left_out++;
	return oldest;
}

/*
 * Takes in one sample.  text is not looked at when plh_is_newest_statement();
 * otherwise it has kept_length(sample->length) bytes.
 */
void
plh_note_statement(PlhKnownTransaction *known, const PlhStatementSample *sample, const char *text)
{
	PlhKnownStatement *statement;

	if (!plh_is_newest_statement(known, sample))
	{
		uint32_t	at;

		if (!plh_is_of_transaction(known, sample))
			begin_transaction(known, sample);
		at = find_text(known, text, sample->length);
		if (at == NO_STATEMENT)
		{
			at = make_room(known);
			memset(&known->statements[at], 0, sizeof(known->statements[at]));
			known->statements[at].first_seen = sample->at;
			known->statements[at].length = sample->length;
			memcpy(known->texts[at], text, kept_length(sample->length));
		}
		known->newest = at;
		known->statements[at].query_start = sample->query_start;
	}
	if (sample->xid != 0 && known->xid == 0)
	{
		known->xid = sample->xid;
		known->writer = known->newest;
	}
	statement = &known->statements[known->newest];
	statement->turn = ++known->turn;
	statement->last_seen = sample->at;
	statement->samples++;
	statement->state = sample->state;
	if (sample->query_id != 0)
		statement->query_id = sample->query_id;	/* not yet computed when it begins */
	if (sample->wait_event_info != 0)
		statement->wait_event_info = sample->wait_event_info;
}
