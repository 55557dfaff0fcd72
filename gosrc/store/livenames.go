package store

import (
	"pg_lock_history/gosrc/snapshot"
)

// What is known by now, for those who show facts without waiting for names;
// asked for by WantTag and WantSession. "" and 0 are not known.

// Database returns the name of a database.
func (n *Names) Database(oid uint32) string { return n.get(databaseKey(oid)) }

// Role returns the name of a role.
func (n *Names) Role(oid uint32) string { return n.get(roleKey(oid)) }

// Gid returns the name of a prepared transaction.
func (n *Names) Gid(xid uint32) string { return n.get(gidKey(xid)) }

// PreparedAt returns when it was prepared.
func (n *Names) PreparedAt(xid uint32) snapshot.Micros { return n.preparedAt(xid) }
