// Package spill carries over a restart of the worker what had not been written
// to the history when it stopped, and up to when the history is complete.
//
// # Why
//
// At a fast shutdown the server ends the writer's session at the same moment
// as the worker: what lies in the queue then has no other way. And an idle
// server writes a heartbeat every 15 minutes only: without CompleteTo a restart
// would show as an outage of up to a quarter of an hour.
//
// # The file
//
// It lies in the data directory. Its name begins with pgsql_tmp, so that base
// backups and pg_rewind leave it out; a copy of the data directory made in
// another way is told apart by system identifier and node name. That a node has a new
// name (its port, its host's name) is told from a copy by the file's own inode,
// which is written into it: a copy has another one, a rename keeps it. Mode 0600: it
// holds statements (as far as query_text keeps them: Options.Text). It is
// written beside its place and renamed when whole. It is not synced: a clean
// shutdown of the machine syncs it, and what a power failure leaves of it is
// found out by the checksum.
//
//	magic 8 | format 4 | length of the body 8 | body | CRC-32C of all before 4
//
// The body is identity, texts, sessions, runs, batches. A text or a session
// stands once, however often it is referred to: twenty waiters behind one
// blocker are one statement. Numbers are varints; times are differences to the
// end of their batch, most of them two to four bytes.
//
// The frame is the same in all formats, so damage is told from another format.
// The body is that of one format; the version of the extension stands in it
// for messages only.
//
// # Writing
//
// Oldest first, since what follows may build on it. When time or room run out
// the rest becomes a gap that says how many rows were lost, from when to when.
// It stands in the file under the number of the last batch that it is for.
//
// # Reading
//
// The whole file is verified before anything in it is used. Any bytes can be
// read: each count is held against the bytes that are left, so memory is bounded
// by the size of the file, which the caller bounds. What cannot be used is a
// *Refusal, and is moved aside, so that it is told once and can be looked at.
//
// Reading a file does not remove it: that is for whoever knows that all of it
// is in the history (Remove). Loading it twice does no harm, the store knows
// batches by run and number.
package spill
