// Package load adds up what processes were seen doing, second by second.
//
// The measure is average active sessions: session time divided by real time.
// Each sample stands for the real time since the one before, so late or missed
// ticks do not distort it. Not active, and not counted, are processes that wait
// for work: clients between two statements, and the server's own processes in
// their main loops (wait events of type Activity).
//
// Everything that is stored of load hangs on what is told apart: wait event,
// LWLock mode, database, role, kind of process and statement. Of a second at
// most maxLoads combinations are kept; beyond them the smallest lose their
// statement and are added up, and if that is not enough, role and database.
// The sum is never changed.
//
// Waits for LWLocks are told in more detail: which lock of a tranche, and what
// stood ahead; so are waits for pages, which page. They come from the same runs,
// so that the sums of a second are those of its load.
//
// How long waits were is told by minute, as a histogram: a run that ended was as
// long as the samples that saw it. So a wait is told one sampling period too long
// or too short, and what no sample saw is missing.
//
// Pure: no clock, no server. Names are the caller's (see Namer), each asked for
// once. A second in which nobody was active allocates nothing.
package load
