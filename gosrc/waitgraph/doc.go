// Package waitgraph answers, for every process in a wait queue: who is in its
// way, where does the chain end, and is it part of a deadlock.
//
// The answer to the first question is that of pg_blocking_pids(). A hard
// blocker holds a mode that conflicts with the one asked for; a soft blocker
// only stands ahead in the same queue with a conflicting request. Members of
// one lock group never block each other, and a group is reported as its
// leader, once; hard wins over soft. A root is a group, or a prepared
// transaction, that is reached by following blockers and does not wait itself.
// A deadlock with no way out has none.
//
// # Why no pairs
//
// A thousand waiters of one lock are half a million pairs, and a thousand
// holders under two thousand waiters two million. So the graph that is
// searched has extra nodes: one for "everybody who holds what mode m of lock l
// conflicts with", and one for "everybody in the queue of l up to here who
// asks for mode m", which points to its predecessor. A waiter then has at most
// nine edges. The extra nodes may lead a group back to itself, which adds
// loops of one group and nothing else; hence a component with a single group
// is no cycle. Strongly connected components are found without recursion
// (a queue may be long, stacks are limited) and come out with the blockers
// before the blocked, which is the order in which root sets are united.
//
// # What may be wrong with the input
//
// It is a copy of memory that others were writing. Build takes nothing for
// granted: ranges are cut to what is there, all ranges together never count
// more entries than were copied, an unknown mode conflicts with nothing, slots
// are names and never indexes. FuzzBuild compares with the obvious quadratic
// program.
//
// A Builder belongs to one goroutine, and what Build returns is valid until
// its next call. In steady state nothing is allocated.
package waitgraph
