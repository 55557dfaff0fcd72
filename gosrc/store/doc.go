// Package store carries facts from the queue to the ring tables, in its own
// time and in its own session.
//
// # Why a client session
//
// The writer is an ordinary session of the server, reached over its socket, on
// a goroutine of its own. A stalled disk, a locked history table or a slow COPY
// stops that goroutine only; the sampler goes on, since those are the moments
// when the samples matter. While the writer stands still the queue fills up to
// its bound, and what it had to drop becomes a gap with a reason.
//
// # Two goroutines
//
// Run owns both and has ended both when it returns. The writer (store.go,
// session.go, write.go, turn.go) owns the connection to the history and all
// state about it. The namer (names.go) owns short connections to this server
// and turns OIDs into names. What other goroutines may touch is: Status and
// RewriteOpen (atomics), Configure, Poke and Stopping (signals), Names.Want*.
// Each goroutine recovers its panics, reports them and starts over with a
// fresh session; nothing here can end the process.
//
// # The way in
//
// dial.go makes every keyword explicit, so that no default of pgx remains.
// Whoever connects to this server goes through the door (door.go): one at a
// time, and only while more client slots are free than are reserved, which
// the sampler's thread alone can see and is asked for.
//
// # Publications
//
// Every change of a table goes through session.transact (published.go), which
// looks for a publication of our tables as its last statement and rolls back
// when there is one.
//
// # One batch, one transaction, once
//
// Each transaction first raises the batch number in the run row, on the
// condition that it still is what we read; only then are rows copied. Whoever
// lost the connection during COMMIT finds out from the number whether it went
// through. A commit that is still under way on the old session holds the row
// lock, so the condition cannot be passed by two. Several queued batches go
// into one transaction; those that turn out to be in already are left out.
//
// # Earlier lives
//
// What a life of the worker could not write stands at the head of the queue of
// the next one (package spill carries it over). Such a batch says its run, is
// written under it by the same rule, and never in one transaction with those of
// another. The run rows of lives that could not write at all are made before
// ours, so that each has the gap before it. Restored is called when nothing is
// left of them, so whoever keeps a copy can let go of it, and not before.
//
// At the end, Leave takes everything back: the hand, whose commit may be in
// doubt, the gaps that were still to be told, the rest of the queue (leave.go).
// Gaps of our own never go with a batch that may be in the tables already.
//
// Nothing to write means no transaction at all: an idle server's checkpoints
// and WAL archiving stay idle. The heartbeat is then written every 15 minutes
// (or each seventh of the retention, when that is less).
//
// # Actors
//
// A participant of a wait is stored once for each segment, under a hash of all
// it says; episodes name it by that hash. Which hashes are in is remembered in
// a bounded set, and asked of the index for those that are not in the set, so
// a forgotten set costs a look-up and never a double row.
//
// # The ring
//
// Package ring decides, turn.go acts: the next segment is emptied ahead of
// need with NOWAIT in a transaction of its own; at a change of segment the
// sampler is asked (RewriteOpen) to hand out all open waits again, so that none
// is truncated away while it lasts. The ring table is read in each transaction,
// for several nodes may write to one history.
//
// # Dictionary
//
// Seconds of load are arrays of numbers; what they mean is in the dictionary of
// the segment (dims.go), which the writer remembers as long as it is the current
// one and reads when it comes to it anew. Texts of statements are rows of it, once
// for each segment, statement, role and database. The sampler brings them when a
// statement is first seen, and again after RewriteOpen.
//
// # Minutes
//
// Between batches the writer rolls up closed segments (rollup.go): the work is
// done by SQL, lock_history.roll_up(), one short transaction after the other. The
// ring of minutes goes by package ring, too, with a clock of its own: the time of
// what is rolled up. No segment is emptied before its minutes are made, unless
// there is no room left.
//
// # What others do to the tables
//
// Somebody may empty, drop, detach or alter a table by hand. That tables are
// there and attached is asked along with their sizes, and when a session begins.
// TRUNCATE shows in the file of a leaf, which is read with the ring: then what
// we know to be in it (actors, the dictionary, open waits) is forgotten. Other
// changes show as the server's refusal of our rows. All locks are taken before
// the first row is copied, so a try that meets a lock leaves nothing on the disk.
//
// # The extension may be absent
//
// Each transaction asks for the extension's row. Not there: state "waiting for
// CREATE EXTENSION", facts are let go silently, no connection is kept; a short
// one looks every 30 seconds, and at once when the shim says that CREATE
// EXTENSION has committed. There again under another OID: everything known
// about the old tables is thrown away.
//
// # Written elsewhere
//
// When the settings lead to other tables and back, those lack the time between.
// Up to when they are complete is remembered for each place (server, database,
// extension, node), since the heartbeat in them may be a quarter of an hour
// old. The gap is made by the session that comes back and is its own until it
// is written, so it cannot get into other tables; a session that ends before
// leaves it to the next one to find.
//
// # Errors
//
// A failure is classified by SQLSTATE (failure.go) into a message that names
// the setting and the way out. Each kind is reported once until the next
// success and counted after that; the writer tries again after 100 ms,
// doubling to 5 s.
package store
