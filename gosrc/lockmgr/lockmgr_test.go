package lockmgr_test

import (
	"testing"

	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/lockmgr/lockmgrtest"
)

func TestModes(t *testing.T) {
	tests := []struct {
		mode lockmgr.Mode
		name string
		bit  uint32
	}{
		{1, "AccessShareLock", 0x002},
		{2, "RowShareLock", 0x004},
		{3, "RowExclusiveLock", 0x008},
		{4, "ShareUpdateExclusiveLock", 0x010},
		{5, "ShareLock", 0x020},
		{6, "ShareRowExclusiveLock", 0x040},
		{7, "ExclusiveLock", 0x080},
		{8, "AccessExclusiveLock", 0x100},
		{0, "mode 0", 0x001},
		{9, "mode 9", 0x200},
		{-1, "mode -1", 0},
	}
	for _, test := range tests {
		if got := test.mode.String(); got != test.name {
			t.Errorf("mode %d is %q, want %q", int32(test.mode), got, test.name)
		}
		if got := test.mode.Bit(); got != test.bit {
			t.Errorf("bit of mode %d is %#x, want %#x", int32(test.mode), got, test.bit)
		}
	}
}

func TestTag(t *testing.T) {
	const db, rel = 5, 16400
	tests := []struct {
		name     string
		tag      lockmgr.Tag
		typeName string
		database uint32
		relation uint32
	}{
		{"relation", lockmgr.Tag{Type: lockmgr.Relation, Field1: db, Field2: rel}, "relation", db, rel},
		{"shared relation", lockmgr.Tag{Type: lockmgr.Relation, Field2: 1262}, "relation", 0, 1262},
		{"extend", lockmgr.Tag{Type: lockmgr.Extend, Field1: db, Field2: rel}, "extend", db, rel},
		{"frozenid", lockmgr.Tag{Type: lockmgr.FrozenID, Field1: db}, "frozenid", db, 0},
		{"page", lockmgr.Tag{Type: lockmgr.Page, Field1: db, Field2: rel, Field3: 3}, "page", db, rel},
		{"tuple", lockmgr.Tag{Type: lockmgr.Tuple, Field1: db, Field2: rel, Field3: 3, Field4: 7}, "tuple", db, rel},
		{"transactionid", lockmgr.Tag{Type: lockmgr.TransactionID, Field1: 745}, "transactionid", 0, 0},
		{"virtualxid", lockmgr.Tag{Type: lockmgr.VirtualXID, Field1: 3, Field2: 12}, "virtualxid", 0, 0},
		{"spectoken", lockmgr.Tag{Type: lockmgr.SpecToken, Field1: 745, Field2: 1}, "spectoken", 0, 0},
		{"object", lockmgr.Tag{Type: lockmgr.Object, Field1: db, Field2: 2615, Field3: 2200}, "object", db, 0},
		{"userlock", lockmgr.Tag{Type: lockmgr.UserLock, Field1: db}, "userlock", db, 0},
		{"advisory", lockmgr.Tag{Type: lockmgr.Advisory, Field1: db, Field2: 0, Field3: 42, Field4: 1}, "advisory", db, 0},
		{"applytransaction", lockmgr.Tag{Type: lockmgr.ApplyTransaction, Field1: db, Field2: 16, Field3: 745}, "applytransaction", db, 0},
		{"of a later server", lockmgr.Tag{Type: 12, Field1: db, Field2: rel}, "lock type 12", 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.tag.Type.String(); got != test.typeName {
				t.Errorf("type is %q, want %q", got, test.typeName)
			}
			if got := test.tag.Database(); got != test.database {
				t.Errorf("database is %d, want %d", got, test.database)
			}
			if got := test.tag.RelationOID(); got != test.relation {
				t.Errorf("relation is %d, want %d", got, test.relation)
			}
		})
	}
}

// TestConflictFixture checks the table that other tests rely on: conflict is
// mutual, and the rows are those of the server's documentation.
func TestConflictFixture(t *testing.T) {
	c := lockmgrtest.Conflicts()
	want := lockmgr.Conflicts{0, 0x100, 0x180, 0x1e0, 0x1f0, 0x1d8, 0x1f8, 0x1fc, 0x1fe}
	if c != want {
		t.Errorf("got %#x, want %#x", c, want)
	}
	for a := lockmgr.Mode(1); a <= lockmgr.MaxMode; a++ {
		for b := lockmgr.Mode(1); b <= lockmgr.MaxMode; b++ {
			if (c[a]&b.Bit() != 0) != (c[b]&a.Bit() != 0) {
				t.Errorf("%v and %v do not conflict mutually", a, b)
			}
		}
	}
}
