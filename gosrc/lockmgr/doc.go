// Package lockmgr holds the words of PostgreSQL's lock manager: lock tags,
// lock modes and which modes conflict. It has no state and imports nothing of
// ours; the conflict table itself comes from the server, see Conflicts.
package lockmgr
