package object

import (
	"fmt"
	"strings"
	"testing"

	"pg_lock_history/gosrc/lockmgr"
)

func TestText(t *testing.T) {
	named := Names{Relation: "public.t", Database: "lab"}
	tests := []struct {
		name  string
		tag   lockmgr.Tag
		names Names
		want  string
	}{
		{"relation", lockmgr.Tag{Field1: 5, Field2: 16384, Type: lockmgr.Relation}, named, "public.t"},
		{"unresolved relation", lockmgr.Tag{Field1: 5, Field2: 16384, Type: lockmgr.Relation}, Names{}, "relation 16384"},
		{"extend", lockmgr.Tag{Field1: 5, Field2: 16384, Type: lockmgr.Extend}, named, "extension of public.t"},
		{"frozenid", lockmgr.Tag{Field1: 5, Type: lockmgr.FrozenID}, named, "frozen ids of database lab"},
		{"page", lockmgr.Tag{Field1: 5, Field2: 16384, Field3: 5, Type: lockmgr.Page}, named, "page 5 of public.t"},
		{"tuple", lockmgr.Tag{Field1: 5, Field2: 16384, Field4: 1, Type: lockmgr.Tuple}, named, "tuple (0,1) of public.t"},
		{"transactionid", lockmgr.Tag{Field1: 740, Type: lockmgr.TransactionID}, named, "transaction 740"},
		{"transactionid with its session", lockmgr.Tag{Field1: 740, Type: lockmgr.TransactionID}, Names{HolderPid: 4711}, "transaction 740 (pid 4711)"},
		{"transactionid with its row", lockmgr.Tag{Field1: 740, Type: lockmgr.TransactionID}, Names{Relation: "public.t", HolderGid: "p", Row: lockmgr.Tag{Field1: 5, Field2: 16384, Field4: 1, Type: lockmgr.Tuple}}, "transaction 740 (prepared as p), tuple (0,1) of public.t"},
		{"virtualxid with its session", lockmgr.Tag{Field1: 3, Field2: 12, Type: lockmgr.VirtualXID}, Names{HolderPid: 4711}, "virtual transaction 3/12 (pid 4711)"},
		{"spectoken with its session", lockmgr.Tag{Field1: 740, Field2: 2, Type: lockmgr.SpecToken}, Names{HolderPid: 4711}, "speculative token 2 of transaction 740 (pid 4711)"},
		{"relation has no holder", lockmgr.Tag{Field1: 5, Field2: 16384, Type: lockmgr.Relation}, Names{Relation: "public.t", HolderPid: 4711}, "public.t"},
		{"queue of NOTIFY", lockmgr.Tag{Field2: 1262, Type: lockmgr.Object}, Names{Class: "pg_database"}, "commit order of NOTIFY"},
		{"a database", lockmgr.Tag{Field2: 1262, Field3: 5, Type: lockmgr.Object}, Names{Object: "database lab"}, "database lab"},
		{"applytransaction by name", lockmgr.Tag{Field1: 5, Field2: 16400, Field3: 740, Field4: 1, Type: lockmgr.ApplyTransaction}, Names{Object: "subscription s"}, "remote transaction 740 of subscription s"},
		{"virtualxid", lockmgr.Tag{Field1: 3, Field2: 12, Type: lockmgr.VirtualXID}, named, "virtual transaction 3/12"},
		{"virtualxid of recovery", lockmgr.Tag{Field1: 0xFFFFFFFF, Field2: 740, Type: lockmgr.VirtualXID}, named, "virtual transaction -1/740"},
		{"spectoken", lockmgr.Tag{Field1: 740, Field2: 2, Type: lockmgr.SpecToken}, named, "speculative token 2 of transaction 740"},
		{"object described", lockmgr.Tag{Field1: 5, Field2: 2615, Field3: 16390, Type: lockmgr.Object}, Names{Object: "schema s9"}, "schema s9"},
		{"object by catalog", lockmgr.Tag{Field1: 5, Field2: 2615, Field3: 16390, Type: lockmgr.Object}, Names{Class: "pg_namespace"}, "pg_namespace 16390"},
		{"object unknown", lockmgr.Tag{Field1: 5, Field2: 2615, Field3: 16390, Type: lockmgr.Object}, Names{}, "object of class 2615 16390"},
		{"userlock", lockmgr.Tag{Field2: 1, Field3: 2, Field4: 3, Type: lockmgr.UserLock}, named, "user lock (1,2,3)"},
		{"advisory bigint", lockmgr.Tag{Field1: 5, Field2: 1, Field3: 2, Field4: 1, Type: lockmgr.Advisory}, named, "advisory 4294967298"},
		{"advisory bigint, negative", lockmgr.Tag{Field1: 5, Field2: 4294967295, Field3: 4294967291, Field4: 1, Type: lockmgr.Advisory}, named, "advisory -5"},
		{"advisory two integers", lockmgr.Tag{Field1: 5, Field2: 1, Field3: 2, Field4: 2, Type: lockmgr.Advisory}, named, "advisory (1,2)"},
		{"advisory two integers, negative", lockmgr.Tag{Field1: 5, Field2: 0xFFFFFFFF, Field3: 0xFFFFFFFE, Field4: 2, Type: lockmgr.Advisory}, named, "advisory (-1,-2)"},
		{"applytransaction", lockmgr.Tag{Field1: 5, Field2: 16400, Field3: 740, Field4: 1, Type: lockmgr.ApplyTransaction}, named, "remote transaction 740 of subscription 16400"},
		{"type of a later server", lockmgr.Tag{Field1: 1, Field2: 2, Field3: 3, Field4: 4, Type: 99}, named, "lock type 99 (1,2,3,4)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Text(tt.tag, tt.names); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestColumns(t *testing.T) {
	tag := lockmgr.Tag{Field1: 11, Field2: 22, Field3: 33, Field4: 44}
	tests := []struct {
		name    string
		typ     lockmgr.Type
		version int
		want    string
	}{
		{"relation", lockmgr.Relation, 150000, "database=11 relation=22"},
		{"extend", lockmgr.Extend, 150000, "database=11 relation=22"},
		{"frozenid", lockmgr.FrozenID, 150000, "database=11"},
		{"page", lockmgr.Page, 150000, "database=11 relation=22 page=33"},
		{"tuple", lockmgr.Tuple, 150000, "database=11 relation=22 page=33 tuple=44"},
		{"transactionid", lockmgr.TransactionID, 150000, "transactionid=11"},
		{"virtualxid", lockmgr.VirtualXID, 150000, "virtualxid=11/22"},
		{"spectoken before 16", lockmgr.SpecToken, 150000, "database=11 classid=22 objid=33 objsubid=44"},
		{"spectoken", lockmgr.SpecToken, 160000, "transactionid=11 objid=22"},
		{"object", lockmgr.Object, 150000, "database=11 classid=22 objid=33 objsubid=44"},
		{"userlock", lockmgr.UserLock, 150000, "database=11 classid=22 objid=33 objsubid=44"},
		{"advisory", lockmgr.Advisory, 150000, "database=11 classid=22 objid=33 objsubid=44"},
		{"applytransaction", lockmgr.ApplyTransaction, 160000, "database=11 transactionid=33 objid=22 objsubid=44"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tag.Type = tt.typ
			if got := show(ColumnsOf(tag, tt.version)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRowOfATransaction(t *testing.T) {
	xid := lockmgr.Tag{Field1: 740, Type: lockmgr.TransactionID}
	row := lockmgr.Tag{Field1: 11, Field2: 22, Field3: 33, Field4: 44, Type: lockmgr.Tuple}
	if got, want := show(ColumnsOf(xid, 150000).WithRow(row)), "database=11 relation=22 page=33 tuple=44 transactionid=740"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := show(ColumnsOf(xid, 150000).WithRow(lockmgr.Tag{})), "transactionid=740"; got != want {
		t.Errorf("not known: got %q, want %q", got, want)
	}
}

// show prints the columns that are not null.
func show(c Columns) string {
	var parts []string
	add := func(name string, value any, isNull bool) {
		if !isNull {
			parts = append(parts, fmt.Sprintf("%s=%v", name, value))
		}
	}
	add("database", deref(c.Database), c.Database == nil)
	add("relation", deref(c.Relation), c.Relation == nil)
	add("page", deref(c.Page), c.Page == nil)
	add("tuple", deref(c.Tuple), c.Tuple == nil)
	add("virtualxid", deref(c.VirtualXID), c.VirtualXID == nil)
	add("transactionid", deref(c.TransactionID), c.TransactionID == nil)
	add("classid", deref(c.ClassID), c.ClassID == nil)
	add("objid", deref(c.ObjID), c.ObjID == nil)
	add("objsubid", deref(c.ObjSubID), c.ObjSubID == nil)
	return strings.Join(parts, " ")
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
