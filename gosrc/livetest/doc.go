// Package livetest holds tests that compare the history with what a real
// server says, on the server that PLH_TEST_DSN names (make test provides one).
// It has no code of its own.
package livetest
