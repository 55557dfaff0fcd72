// Package statementtest compiles the part of the shim that remembers what
// open transactions did (extension/statements.c) for its table tests and its
// fuzz target; no library contains it.
//
// That memory is in C because it is written with each tick, on which Go does not
// run, and read only for sessions that block somebody. It knows no server
// header, so that it can be tested here: which statements stay, in a
// transaction of any length, and that no transaction is told of what another
// one did.
//
// The C files here are links into extension/: go build looks for changes in its
// own directory only.
package statementtest
