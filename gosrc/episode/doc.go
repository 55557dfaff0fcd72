// Package episode turns what successive sweeps and walks saw into facts that
// are kept: one history.Episode for each wait, with its blockers as intervals,
// and sums over the waits that are too short, or too many, to be kept alone.
//
// # One wait
//
// An episode is named by (slot, pid, wait start, lock). The server publishes
// the wait start a moment after the wait has begun, and old minor releases
// leave the start of a failed wait behind until the next one overwrites it. So
// a start that is missing, or older than the last time we saw this process in
// its previous wait, or older than the process itself, is replaced by the time
// of the sweep until a better one is seen. Once an episode was handed out, its
// start and its WaitID stay.
//
// A wait ends between the last tick that saw it and the first that did not.
// The middle of the two is stored: it is wrong by at most half a period and
// not wrong on average, so that sums over many waits are right. After a pause
// in the sampling nothing is known about the time in between, and a wait that
// vanished there ends at the last tick that saw it. A wait that failed ended
// when its own process says (see below), between the same two ticks.
//
// # When the clock is set
//
// The server's clock may be set while somebody waits. The start is final and the
// length shall be true, so a wait keeps the time in which it began: skew says how
// far the clock has been set since, and what later sweeps and walks say is
// moved back by it. The end of such a wait is not what the clock said then.
//
// # How it ended
//
// A process that fails in a wait leaves a record of it (snapshot.Failure), in
// the error itself, before it does anything else. The records are read after
// each sweep. So a record decides; and a wait without one was granted, once its
// process was seen to wait again, to be gone, or to have the status OK. A
// process may be about to write its record when its status is ERROR already:
// such a wait is held back for decideAfter, or until somebody asks for all there
// is, and until then the history is complete only up to its end (Complete). Records are matched by the wait start. One that belongs to no wait we knew
// is a wait that no sweep saw: it counts among the short ones, without a lock; a
// deadlock's victim knows its lock and may be an episode.
//
// # Who was in the way
//
// A walk says who blocks whom at one moment. An edge lasts from the first walk
// that saw it to the first that did not; edges of the first walk are taken
// to last from the start of the wait, since the walk comes at most one tick
// later. A wait that the sweep saw but no walk did has no lock tag. It is not
// lost: it is counted among the short waits under the lock type that its wait
// event gives.
//
// InCycle is set when the same cycle, with equal wait starts, was in two
// successive walks: a walk over several partitions is not one moment. That is a
// deadlock in the making. One that happened is told by the record of its victim.
//
// # What may be wrong with the input
//
// Sweep and walk are copies of memory that others were writing, each taken at its
// own moment: a slot has another process by then, a lock structure another lock, a
// process asks for something else. A wait takes from a walk only what fits its
// process, its lock and its start; what does not fit is left out. FuzzTorn holds
// every blocker, root and circle that is handed out against all that walks said.
//
// # What is handed out
//
// Drain hands out deadlocks, episodes that ended, episodes that are open and new or
// changed, and the sums. Of a second, at most MaxRowsPerSecond ended episodes
// are kept alone; the others, and the short ones, are merged; nothing is
// dropped, the sums add up. What has been handed out as open is always handed
// out as ended on its own, else the reader would wait for its end for ever.
//
// # Bounds
//
// Memory is bounded by the number of processes (one open episode each, at most
// maxEdges edges), and between two Drains by MaxRowsPerSecond and
// MaxShortKeys. A tick with unchanged waiters allocates nothing. There is no
// clock: time comes in as arguments. A Tracker belongs to one goroutine; what
// Drain returns shares nothing with it but sessions, which never change.
package episode
