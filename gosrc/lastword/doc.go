// Package lastword carries one fact over a restart of the server: up to when
// the history was complete when the worker stopped in good order.
//
// The writer's session is ended by the same shutdown, and an idle server writes
// a heartbeat every 15 minutes only: without this, a restart of an idle server
// would show as an outage of up to a quarter of an hour.
//
// The file lies in the data directory. Its name begins with pgsql_tmp, so that
// base backups and pg_rewind leave it out; a copy of the data directory made in
// another way is told apart by system identifier and node name. It is removed
// as it is read: after a crash there is none, and the last heartbeat counts.
package lastword
