// Package queue stands between the sampler and the store: batches go in on the
// worker's main thread, which must never wait, and come out on the store's
// goroutine, which may stand still for as long as a disk or a locked table
// makes it.
//
// So the queue is bounded, by bytes (estimated on entry, see size) and by age
// (from the newest batch back), and what does not fit is dropped at the old
// end: during an incident the newest facts are the ones still unknown. What
// was dropped is counted together with the time it covered, and handed out
// with the next Take, so that the history says where it is silent.
//
// Batches of earlier lives (Restore) stand ahead of all others. They count by
// bytes and not by age. A hand taken never mixes two runs.
//
// Batches that were taken count against the byte bound until Release: memory
// is memory, whoever holds it. They are never dropped.
package queue
