// Package object says in words, and in the columns of pg_locks, what a lock
// tag stands for. It is pure: names are handed in, and may be missing.
//
// Columns follows the server's own pg_lock_status() type by type, including
// its oddities: a shared object shows database 0, not null, and speculative
// tokens have columns of their own only from 16 on.
//
// Text is the readable form. Advisory keys are printed as the application
// wrote them: the two halves of a bigint put together again, two integers in
// parentheses, both signed. A transaction is told with the session that has it
// and, where known, the row that the wait is about: its number alone says
// nothing to anybody. What NOTIFY locks is no database, though its tag says so.
// Where a name is not known the number stands in its place, so the text is
// never empty. NamesOf gathers for one wait what the text is made of, so that
// the tables and the live area tell it in the same words.
package object
