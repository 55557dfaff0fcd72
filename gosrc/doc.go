// Package gosrc holds no code: the packages below it are the Go side of
// pg_lock_history, and its test keeps their imports pointing one way. See
// doc/design.md for the map.
package gosrc
