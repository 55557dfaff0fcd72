package object

import (
	"fmt"
	"strconv"

	"pg_lock_history/gosrc/lockmgr"
)

// Columns are the identifying columns of pg_locks; nil is null.
type Columns struct {
	Database      *uint32
	Relation      *uint32
	Page          *int32
	Tuple         *int16
	VirtualXID    *string
	TransactionID *uint32
	ClassID       *uint32
	ObjID         *uint32
	ObjSubID      *int16
}

// ColumnsOf fills the columns as a server of the given version does.
func ColumnsOf(tag lockmgr.Tag, version int) Columns {
	f1, f2, f3, f4 := &tag.Field1, &tag.Field2, &tag.Field3, int16(tag.Field4)
	switch {
	case tag.Type == lockmgr.Relation, tag.Type == lockmgr.Extend:
		return Columns{Database: f1, Relation: f2}
	case tag.Type == lockmgr.FrozenID:
		return Columns{Database: f1}
	case tag.Type == lockmgr.Page:
		page := int32(tag.Field3)
		return Columns{Database: f1, Relation: f2, Page: &page}
	case tag.Type == lockmgr.Tuple:
		page := int32(tag.Field3)
		return Columns{Database: f1, Relation: f2, Page: &page, Tuple: &f4}
	case tag.Type == lockmgr.TransactionID:
		return Columns{TransactionID: f1}
	case tag.Type == lockmgr.VirtualXID:
		vxid := virtualXID(tag)
		return Columns{VirtualXID: &vxid}
	case tag.Type == lockmgr.SpecToken && version >= 160000:
		return Columns{TransactionID: f1, ObjID: f2}
	case tag.Type == lockmgr.ApplyTransaction && version >= 160000:
		return Columns{Database: f1, ObjID: f2, TransactionID: f3, ObjSubID: &f4}
	default:
		return Columns{Database: f1, ClassID: f2, ObjID: f3, ObjSubID: &f4}
	}
}

// WithRow adds the row that a wait for a transaction is about, as far as known.
func (c Columns) WithRow(row lockmgr.Tag) Columns {
	if row.Type == lockmgr.Tuple {
		r := ColumnsOf(row, 0)
		c.Database, c.Relation, c.Page, c.Tuple = r.Database, r.Relation, r.Page, r.Tuple
	}
	return c
}

// Names are what could be found out about a tag; empty is not known.
type Names struct {
	Relation string // schema.table of the tag's relation, or the row's
	Database string // of the tag's database, or the row's
	Object   string // the server's description of an object lock's object
	Class    string // name of the catalog that the object is in

	// Who has the transaction that is waited for: a process, or a prepared one.
	HolderPid int32
	HolderGid string

	Row lockmgr.Tag // that a wait for a transaction is about; zero = none, or not known
}

// Catalogs with an object that is locked under a meaning of its own.
const (
	SubscriptionClass = 6100 // pg_subscription
	databaseClass     = 1262 // pg_database
)

// Text describes the locked object.
func Text(tag lockmgr.Tag, n Names) string {
	switch tag.Type {
	case lockmgr.Relation:
		return relation(tag, n)
	case lockmgr.Extend:
		return "extension of " + relation(tag, n)
	case lockmgr.FrozenID:
		return "frozen ids of " + database(tag, n)
	case lockmgr.Page:
		return fmt.Sprintf("page %d of %s", tag.Field3, relation(tag, n))
	case lockmgr.Tuple:
		return fmt.Sprintf("tuple (%d,%d) of %s", tag.Field3, tag.Field4, relation(tag, n))
	case lockmgr.TransactionID:
		text := "transaction " + number(tag.Field1) + holder(n)
		if n.Row.Type == lockmgr.Tuple {
			text += ", " + Text(n.Row, Names{Relation: n.Relation})
		}
		return text
	case lockmgr.VirtualXID:
		return "virtual transaction " + virtualXID(tag) + holder(n)
	case lockmgr.SpecToken:
		return fmt.Sprintf("speculative token %d of transaction %d", tag.Field2, tag.Field1) + holder(n)
	case lockmgr.Object:
		if tag.Field1 == 0 && tag.Field2 == databaseClass && tag.Field3 == 0 {
			return notifyOrder
		}
		if n.Object != "" {
			return n.Object
		}
		class := n.Class
		if class == "" {
			class = "object of class " + number(tag.Field2)
		}
		return class + " " + number(tag.Field3)
	case lockmgr.UserLock:
		return fmt.Sprintf("user lock (%d,%d,%d)", tag.Field2, tag.Field3, tag.Field4)
	case lockmgr.Advisory:
		return advisory(tag)
	case lockmgr.ApplyTransaction:
		if n.Object != "" {
			return fmt.Sprintf("remote transaction %d of %s", tag.Field3, n.Object)
		}
		return fmt.Sprintf("remote transaction %d of subscription %d", tag.Field3, tag.Field2)
	default:
		return fmt.Sprintf("%v (%d,%d,%d,%d)", tag.Type, tag.Field1, tag.Field2, tag.Field3, tag.Field4)
	}
}

// notifyOrder is what a transaction that has notified locks at its COMMIT: not
// a database, but its place in the queue that all databases share (async.c).
const notifyOrder = "commit order of NOTIFY"

func holder(n Names) string {
	switch {
	case n.HolderPid != 0:
		return fmt.Sprintf(" (pid %d)", n.HolderPid)
	case n.HolderGid != "":
		return " (prepared as " + n.HolderGid + ")"
	default:
		return ""
	}
}

func relation(tag lockmgr.Tag, n Names) string {
	if n.Relation != "" {
		return n.Relation
	}
	return "relation " + number(tag.Field2)
}

func database(tag lockmgr.Tag, n Names) string {
	if n.Database != "" {
		return "database " + n.Database
	}
	return "database " + number(tag.Field1)
}

// advisory prints the key as pg_advisory_lock() was given it; Field4 tells the
// two forms apart (SET_LOCKTAG_INT64 and SET_LOCKTAG_INT32).
func advisory(tag lockmgr.Tag) string {
	switch tag.Field4 {
	case 1:
		return "advisory " + strconv.FormatInt(int64(uint64(tag.Field2)<<32|uint64(tag.Field3)), 10)
	case 2:
		return fmt.Sprintf("advisory (%d,%d)", int32(tag.Field2), int32(tag.Field3))
	default:
		return fmt.Sprintf("advisory (%d,%d,%d)", tag.Field2, tag.Field3, tag.Field4)
	}
}

// virtualXID prints the process part signed and the counter unsigned, as the
// server does.
func virtualXID(tag lockmgr.Tag) string {
	return fmt.Sprintf("%d/%d", int32(tag.Field1), tag.Field2)
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
