package deadlock

import (
	"slices"
	"testing"

	"pg_lock_history/gosrc/lockmgr"
)

func TestParse(t *testing.T) {
	share, exclusive := lockmgr.Mode(5), lockmgr.Mode(7)
	xid := func(n uint32) lockmgr.Tag {
		return lockmgr.Tag{Type: lockmgr.TransactionID, Method: 1, Field1: n}
	}
	const two = "Process 100 waits for ShareLock on transaction 755; blocked by process 200.\n" +
		"Process 200 waits for ShareLock on transaction 754; blocked by process 100."
	circle := []Line{
		{Pid: 100, Blocker: 200, Mode: share, Tag: xid(755), HasTag: true},
		{Pid: 200, Blocker: 100, Mode: share, Tag: xid(754), HasTag: true},
	}
	tests := []struct {
		name string
		text string
		cut  bool
		want []Line
	}{
		{"two", two, false, circle},
		{"three, of several kinds", "Process 1 waits for ExclusiveLock on tuple (0,2) of relation 16385 of database 5; blocked by process 2.\n" +
			"Process 2 waits for ExclusiveLock on advisory lock [5,1,2,1]; blocked by process 3.\n" +
			"Process 3 waits for ExclusiveLock on relation 16385 of database 5; blocked by process 1.", false, []Line{
			{1, 2, exclusive, lockmgr.Tag{Type: lockmgr.Tuple, Method: 1, Field1: 5, Field2: 16385, Field3: 0, Field4: 2}, true},
			{2, 3, exclusive, lockmgr.Tag{Type: lockmgr.Advisory, Method: 2, Field1: 5, Field2: 1, Field3: 2, Field4: 1}, true},
			{3, 1, exclusive, lockmgr.Tag{Type: lockmgr.Relation, Method: 1, Field1: 5, Field2: 16385}, true},
		}},
		{"one with itself through its lock group", "Process 1 waits for ShareLock on transaction 7; blocked by process 1.", false,
			[]Line{{1, 1, share, xid(7), true}}},
		{"another language: no lock", "Prozess 100 wartet auf ShareLock-Sperre auf Transaktion 755; blockiert von Prozess 200.\n" +
			"Prozess 200 wartet auf ShareLock-Sperre auf Transaktion 754; blockiert von Prozess 100.", false,
			[]Line{{Pid: 100, Blocker: 200, Mode: share}, {Pid: 200, Blocker: 100, Mode: share}}},
		{"no space around", "プロセス100は755をShareLockで待機していましたが、プロセス200でブロックされました\nプロセス200は754をShareLockで待機していましたが、プロセス100でブロックされました", false,
			[]Line{{Pid: 100, Blocker: 200, Mode: share}, {Pid: 200, Blocker: 100, Mode: share}}},
		{"cut in the second line", two[:100], true, circle[:1]},
		{"cut in the first line", two[:50], true, []Line{}},
		{"does not close", two[:len(two)-len("100.")] + "300.", false, nil},
		{"does not follow", "Process 100 waits for ShareLock on transaction 755; blocked by process 200.\n" +
			"Process 201 waits for ShareLock on transaction 754; blocked by process 100.", false, nil},
		{"no lock mode", "Process 100 waits for WishLock on transaction 7; blocked by process 100.", false, nil},
		{"unknown kind of lock", "Process 1 waits for ShareLock on chair 7; blocked by process 1.", false, []Line{{Pid: 1, Blocker: 1, Mode: share}}},
		{"a number too large", "Process 99999999999 waits for ShareLock on transaction 7; blocked by process 99999999999.", false, nil},
		{"nothing", "", false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Parse(tt.text, tt.cut)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("Process 100 waits for ShareLock on transaction 755; blocked by process 100.", false)
	f.Add("Process 1 waits for ExclusiveLock on tuple (0,2) of relation 16385 of database 5; blocked by process 2.\nx", true)
	f.Fuzz(func(t *testing.T, text string, cut bool) {
		lines := Parse(text, cut)
		for i := range lines {
			if lines[i].Pid <= 0 || lines[i].Mode < 1 || lines[i].Mode > lockmgr.MaxMode {
				t.Fatalf("line %d: %+v", i, lines[i])
			}
			if i > 0 && lines[i-1].Blocker != lines[i].Pid {
				t.Fatalf("line %d does not follow: %+v", i, lines)
			}
		}
	})
}
