// Package historytest makes up histories: for the tests of what keeps them, and
// for make bench, which fills a ring with a day of them through the real store.
//
// # What is made up
//
// A Mix is seconds of a steadily loaded server: 50 active sessions, some 80
// combinations of wait event and statement each second, the statements drawn
// from a Zipf distribution, so that a few of them take most of the time, as is
// usual, and the rest comes and goes. The size of a day of load depends on exactly
// that: how many combinations a second has, and how many there are in all.
//
// A Day adds what else is told of such a server: incidents, each a session idle
// in a transaction, one that waits for it, and others that stand behind that
// one; waits too short to be kept alone; locks and pages that were fought over;
// health. Every wait has its own process and its own statement: the dictionary of
// sessions, which is the largest table of a real incident, gets no help from
// repetition.
//
// # What holds
//
// Everything follows from a seed: the same calls give the same facts. Times are
// the caller's; nothing here looks at a clock. What is handed out belongs to the
// receiver. A Mix and a Day are used by one goroutine.
//
// No package of the product may import this one; gosrc/imports_test.go holds that.
package historytest
