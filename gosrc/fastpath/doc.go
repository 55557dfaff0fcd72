// Package fastpath adds up how near sessions were to the end of their fast path.
//
// A process keeps weak locks on relations in slots of its own: 16 of them up to
// version 17, from 18 on as many as max_locks_per_transaction, in groups of 16.
// What finds no slot goes to the shared lock table, where every transaction of
// every session meets in 16 partitions. That is the cliff: one more index, and
// throughput falls.
//
// Two things are told. By second and database: how many processes held relation
// locks, how many slots one had in use at most, how many had none left, and how
// many locks of one found none. By minute and statement: the most locks that it
// was seen with, so that the query with 101 indexes has a name. The statement is
// the one that ran when its transaction was first seen with so many; locks of
// earlier statements of the transaction are among them.
//
// Nothing is told of a second in which every process had over half of its slots
// free; C hands over nothing then. A process that does nothing within a
// transaction says the same each second: when nobody was active either, that is
// told once a minute.
//
// Processes are looked at some ten times a second, so all of this is of what was
// seen: a transaction of a millisecond is seen with a probability of a hundredth,
// but there are many of its kind.
//
// Pure: no clock, no server. A second of which there is nothing to tell allocates
// nothing.
package fastpath
