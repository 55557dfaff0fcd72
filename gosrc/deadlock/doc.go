// Package deadlock reads the detail of the server's deadlock error, which
// names everybody in the circle:
//
//	Process 100 waits for ShareLock on transaction 755; blocked by process 200.
//	Process 200 waits for ShareLock on transaction 754; blocked by process 100.
//
// The session that was ended knows it the moment it fails, so this tells of
// deadlocks that no sample has seen. The text is in the language of that
// session (lc_messages). What does not depend on the language: a line begins with the
// process and ends with its blocker, the name of the lock mode is not
// translated, and the lines close the circle. A text is believed only when all of
// that holds; the lock itself is read from English text alone.
package deadlock
