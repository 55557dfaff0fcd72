// Package livetest holds tests that compare the history with what a real
// server says: a randomized comparison on the server that PLH_TEST_DSN names,
// and a soak on one of its own, to which anything may be done (make test provides
// both). It has no code of its own.
//
// # The randomized comparison
//
// TestSameAsServer drives random sessions (rows, relation locks of all modes,
// advisory locks of transactions and sessions, savepoints, NOWAIT, SKIP LOCKED,
// prepared transactions, parallel queries, failures that an EXCEPTION block
// catches) for PLH_RANDOM_SECONDS, in two kinds of rounds. In a still round one
// thing happens at a time, and deadlocks stay. In a storm all sessions run at
// once, and are cancelled, terminated, time out and deadlock at random. A seed
// (PLH_SEED) repeats what a still round does, and of a storm what each session
// asks for.
//
// # Who blocks whom: exact
//
// At still moments blocking_all(), blocking_now and blocking_tree_at() are
// compared with pg_blocking_pids() of every waiter, and, hard blockers by
// themselves, with what follows from pg_locks and the table of conflicts. The
// server is asked before the history is read and again after. When both answers
// are the same to the last lock and wait start, then so it was in between: a
// wait that ended and began anew would have another start, a blocker that came
// and went would have had to be granted what somebody waits for. Then any
// difference is a fault, at once; when they differ, all of it is done again.
// The history is read when it must know: the live area once it says that it
// was made after the first answer, the tables after a flush() later than that.
// There is no other window.
//
// A parallel query is one session: pg_blocking_pids() gives one answer for all
// its processes, so theirs are united. A prepared transaction has no pid; it is
// compared by its gid.
//
// # How waits ended: exact, but for marked ones
//
// The independent list is made by a session that reads pg_locks every few
// milliseconds: a wait is a process and its wait start, which history must
// give to the microsecond. How it ended is what the client of its statement was
// told. That is exact in these cases:
//
//   - the statement succeeded: all its waits were granted
//   - it failed, and the process began another wait after this one: granted
//   - it failed as the victim of a deadlock: the error names the process and the
//     lock
//   - it failed otherwise, and nobody else gave a lock back between the last look
//     that saw the wait and the client's answer: then it cannot have been granted
//     in that time, and failed with the statement
//
// What gives locks back is known: a transaction or a part of it ends, or fails;
// an advisory lock is let go; of a tuple, the statement goes on. Each of these is a
// span of time on the clients' side, or in the list. Where such a span of another
// session meets the last moment of a failed wait, it may have been granted just
// then, and its session have failed a moment later. These waits are counted as "either":
// history may say granted or what the client was told, and nothing else. In a
// still round they are rare; their number is reported, and the number of those
// that history says were granted is bounded. Not seen are only the rearrangement
// of a queue by the deadlock check of a third session, and autovacuum, which is
// off for these tables.
//
// Where an EXCEPTION block may have caught a failure before the one that the client
// was told of, the wait may have ended by any of those that it catches.
//
// Lengths have a window. A wait in the list lasted at least until the last look
// that saw it, at most until the first that did not; history must keep alone
// what was longer than min_duration for sure, and not keep what was shorter for
// sure. Its end may be off by the distance of two ticks, which is what late
// allows for.
//
// And the other way round: each wait that history has of these sessions must
// lie in one of their statements and have an outcome that fits it. "unknown" fits
// none; "failed" only a leader that waited beside its workers, when one of them was
// a deadlock's victim or was ended. Of a failed parallel query it is not known
// which worker came first: what the others were told is one of two things.
//
// Numbers are compared, too: deadlocks with pg_stat_database, for each that
// clients were told of; failures, kept or summed up, with the lock timeouts and
// deadlocks that clients were told of; and short_waits with the list. The last two
// are bounds, since others may wait on the server.
//
// # The soak
//
// TestSoak has a mixed load work on a server of its own for PLH_SOAK_DURATION while
// one fault after the other befalls it, and asks of every wait of a list that it
// makes itself: is it in waits, is it counted in short_waits, or does the history say
// why not? The load never stops, so waits begin before a fault and end after it.
//
// The load (soak_load_test.go): scenes, in which one session holds a lock and others
// ask for it until it goes, or they are timed out, cancelled, ended, or fail in a deadlock; the
// random sessions of the comparison above; a row that is fought over by statements of
// some kB, which fills the ring; tables that are made and dropped; transactions that stay
// open; guests under ever new names. A fault (soak_faults_test.go) is a condition
// that lasts, such as a disk that is full, or a strike, such as a kill -9; a
// round has one of each, the strike in the midst of the condition where a server can
// stand that. Each is dealt out once before any comes again. A seed (PLH_SEED) repeats
// the order of faults and what each session does; when things meet it cannot repeat.
//
// The list (soak_list_test.go): the client of a scene's statement notes what it asked
// for, when, and how it was told that ended. What the server says of it, that and since
// when it waits, is added by looks at pg_locks, every 20 ms. So are all other waits of
// the server, of which nobody knows how they should have ended. After each round, when the
// conditions are over, flush() must return true within a bound, and what had ended by then
// is judged (soak_judge_test.go):
//
//   - in waits it is there once, with its lock, its mode, an end between the last look
//     that saw it and the first that did not, and the outcome that its client was told. No
//     process waits twice at the same time.
//   - if it is not in waits, one that short_waits counts is assigned to it, of the
//     same kind and in a second in which it may have ended, to each wait another one. It must
//     be shorter than min_duration then, unless max_rows_per_second was low. And for
//     the advisory locks of scenes short_waits counts no more than there were statements.
//   - else a gap must say why: facts were dropped when it ended, with their number; or
//     nobody was watching then, and it had not been going on for long enough to be in the tables
//     as open. An outcome "unknown" must lie in such a gap, too.
//   - or it was so short that it fell between two samples, or health says that
//     so many were missed in that minute; or the ring has gone round since.
//   - how it ended is the same in all later rounds.
//   - what came between a judgement and a TRUNCATE by hand is not looked for.
//
// What the history may be wrong about a moment is bounded by what health admits to have
// missed in that minute, up to the second from which on it must be a gap.
//
// Once a second the memory of the worker and the files of the ring are held against
// their bounds. In the server log (soak_server_test.go) there must be no PANIC, no FATAL but of
// sessions that were ended, no error and no unexpected message of ours, no process
// that died other than by our hand, and no more ends of the server or of the worker than were
// ordered.
package livetest
