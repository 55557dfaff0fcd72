// Package sampler drives the watching. It decides when to sample and what to
// probe, feeds the answers to the analysis, and hands what became known to the
// queue once every flush period. It never waits for the store.
//
// # One turn of the loop
//
// The wait probe sleeps and sweeps in C and comes back when a waiter appeared,
// changed or went, or when the deadline given here has come. Only then Go runs:
//
//	sweep  -> tracker.Sweep           who waits, who stopped to
//	locks  -> waitgraph.Build         only when the waiters changed, or every 100 ms
//	sessions -> tracker.Walk          details of those who take part
//	statements -> sessions            and what those who block did before
//	live.Area -> the live area        after each walk, and when waits have ended
//	anomaly.Second            is the load of this second unusual
//	activity -> load.Meter            once a second
//	sessions -> textMeter             texts of statements seen for the first time
//	tracker.Drain -> queue.Push       once every flush period
//
// A quiet second costs one turn.
//
// # Threads
//
// Everything here runs on the worker's main thread, in Run. Other goroutines
// reach it through the queue, the report log and atomic values of the store.
//
// # Time
//
// Ticks are due on an absolute schedule that C keeps. Wall-clock times come
// from the server's clock with each sweep; deadlines are monotonic. There is no
// other clock, so tests run on virtual time (Probes is an interface). Where the two
// went on by different times the server's clock was set: the tracker is told, so
// that waits are as long as they were, and times that never were become a gap.
package sampler
