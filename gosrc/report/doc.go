// Package report collects messages for the server log from any goroutine and
// hands them to the main thread, which alone may speak to the server.
//
// A message with a key stands for a condition: it is passed on when the
// condition begins, then only counted, told again with the count once an hour,
// and once more when the condition is over. Messages are bounded in number; what does
// not fit is counted as well.
package report
