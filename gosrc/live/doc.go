// Package live makes the records of the live area: the shared memory in which
// sessions of any database see who waits now, and which waits ended last,
// without tables and without the writer.
//
// # Two sections
//
// The graph is made anew after each walk and replaces the one before. A member
// is a waiter, or somebody in the way who does not wait; parents are members.
// A blocker is named by the leader of its lock group, and when another process
// of that group is what waits, the chain goes on there, as in
// blocking_tree_at(). Ended waits are made once, when they have ended, and
// appended to a ring in which the newest are kept.
//
// Both have the same fields, those of the row type lock_history.live_row, in
// its order: a wait that goes on is told in the words of view waits from either.
// C only carries the bytes; the session that reads takes them apart
// (extension/probe.h has the layout). Which texts a reader may see is decided
// there, field by field: here they are only marked as private.
//
// # What does not fit
//
// The graph is of fixed size. First texts are cut, to two bounds one after the
// other; then waiters that block nobody are left out, and counted. Which bound
// was needed is remembered, since to make a graph of a thousand waiters twice
// costs a millisecond; what was cut is counted, so that it is known when the
// whole would fit again. Ended waits that cannot be handed over push out each
// other, oldest first, and are counted.
//
// # Names and texts
//
// Names come from whoever looks them up, as far as they are known by now: the
// graph is made again 100 ms later, an ended wait keeps what was known at its
// end. Statements are cut and normalized once for each value of session
// details, which never change. Both caches forget what the latest graph did
// not use.
//
// An Area belongs to one goroutine; in steady state it allocates nothing.
package live
