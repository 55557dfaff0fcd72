// Package querytext makes statement texts fit to be kept: as much of them as
// the DBA wants to see stored, and always valid text.
//
// Three modes. Full keeps the statement. Off keeps nothing. Normalized keeps
// its shape: every literal becomes a parameter $n, numbered after the highest
// parameter that the text already has, so that the two cannot be confused.
//
// The lexer is our own and knows only what it takes to find the ends of
// literals: strings in all the forms PostgreSQL reads (plain, E, U&, B, X, N,
// dollar quotes), numbers, quoted identifiers, nested comments. It reads
// backslashes in plain strings as the default standard_conforming_strings = on
// does; a session that switched that off is read wrongly. Comments are dropped,
// since applications put values into them. The keywords true, false and null
// stay: they are not secrets and say much about a plan. A literal that the
// server cut off at track_activity_query_size is replaced up to the end of the
// text; nothing behind an opening quote is ever kept.
//
// Texts come as the bytes of the session's own database, whose encoding may
// not be that of the history. Bytes that are not UTF-8 are shown as \xNN.
package querytext
