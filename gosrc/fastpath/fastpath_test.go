package fastpath

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// t0 is the begin of a minute.
const t0 = snapshot.Micros(800_000_040_000_000)

var sixteen = history.Slots{Each: 16, MaxLocks: 64}

// use is a process with pid 100 + slot in database 5.
func use(slot int32, query int64, slots uint32, spilled int32, looks, full uint32) snapshot.SlotUse {
	return snapshot.SlotUse{Slot: slot, Pid: 100 + slot, Database: 5, Role: 10, QueryID: query, SlotsUsed: slots, Spilled: spilled, Looks: looks, LooksFull: full}
}

func TestSecond(t *testing.T) {
	elsewhere := use(3, 0, 9, history.NotLooked, 10, 0)
	elsewhere.Database = 4
	tests := []struct {
		name string
		rows []snapshot.SlotUse
		want []history.FastPath
	}{
		{"nobody", nil, nil},
		{"one below the end", []snapshot.SlotUse{use(1, 7, 15, -1, 10, 0)}, []history.FastPath{{Database: 5, Sessions: 1, SlotsMax: 15, Spilled: -1}}},
		{"one full, nobody looked what spilled", []snapshot.SlotUse{use(1, 7, 16, -1, 10, 4)}, []history.FastPath{{Database: 5, Sessions: 1, SlotsMax: 16, Full: 1, Spilled: -1}}},
		{"one full, nothing spilled", []snapshot.SlotUse{use(1, 7, 16, 0, 10, 4)}, []history.FastPath{{Database: 5, Sessions: 1, SlotsMax: 16, Full: 1}}},
		{"a process is counted once, whatever it ran", []snapshot.SlotUse{use(1, 0, 2, -1, 5, 0), use(1, 7, 16, 80, 3, 3), use(1, 8, 16, 86, 1, 1)},
			[]history.FastPath{{Database: 5, Sessions: 1, SlotsMax: 16, Full: 1, Spilled: 86}}},
		{"three processes, two full", []snapshot.SlotUse{use(1, 7, 16, -1, 10, 1), use(2, 0, 3, -1, 10, 0), use(3, 7, 16, 4, 10, 9)},
			[]history.FastPath{{Database: 5, Sessions: 3, SlotsMax: 16, Full: 2, Spilled: 4}}},
		{"each database for itself", []snapshot.SlotUse{use(1, 7, 16, 1, 10, 1), elsewhere},
			[]history.FastPath{{Database: 4, Sessions: 1, SlotsMax: 9, Spilled: -1}, {Database: 5, Sessions: 1, SlotsMax: 16, Full: 1, Spilled: 1}}},
		{"18: full with slots to spare", []snapshot.SlotUse{use(1, 7, 13, 2, 10, 1)}, []history.FastPath{{Database: 5, Sessions: 1, SlotsMax: 13, Full: 1, Spilled: 2}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := New()
			for range 2 { // nothing is left of the second before
				for i := range tt.rows {
					m.Add(&tt.rows[i], sixteen)
				}
				if got := m.Close(t0, true); !reflect.DeepEqual(got, tt.want) {
					t.Errorf("got %+v, want %+v", got, tt.want)
				}
			}
		})
	}
}

// What says the same as before is told once a minute, unless somebody works.
func TestRepeats(t *testing.T) {
	tests := []struct {
		name   string
		active bool
		rows   func(second int) []snapshot.SlotUse
		want   []int
	}{
		{"idle in transaction", false, func(int) []snapshot.SlotUse { return []snapshot.SlotUse{use(1, 7, 16, 6, 10, 10)} }, []int{0, 60, 120}},
		{"somebody works", true, func(s int) []snapshot.SlotUse {
			if s > 2 {
				return nil
			}
			return []snapshot.SlotUse{use(1, 7, 16, 6, 10, 10)}
		}, []int{0, 1, 2}},
		{"another comes", false, func(s int) []snapshot.SlotUse {
			if s < 5 {
				return []snapshot.SlotUse{use(1, 7, 16, 6, 10, 10)}
			}
			return []snapshot.SlotUse{use(1, 7, 16, 6, 10, 10), use(2, 0, 1, -1, 10, 0)}
		}, []int{0, 5, 65, 125}},
		{"it was over meanwhile", false, func(s int) []snapshot.SlotUse {
			if s == 3 {
				return nil
			}
			return []snapshot.SlotUse{use(1, 7, 16, 6, 10, 10)}
		}, []int{0, 4, 64, 124}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := New()
			var told []int
			for s := range 126 {
				for _, r := range tt.rows(s) {
					m.Add(&r, sixteen)
				}
				if m.Close(t0.Add(time.Duration(s)*time.Second), tt.active) != nil {
					told = append(told, s)
				}
			}
			if !reflect.DeepEqual(told, tt.want) {
				t.Errorf("told at %v, want %v", told, tt.want)
			}
		})
	}
}

func TestMinute(t *testing.T) {
	m := New()
	add := func(s int, rows ...snapshot.SlotUse) {
		for i := range rows {
			m.Add(&rows[i], sixteen)
		}
		m.Close(t0.Add(time.Duration(s)*time.Second), true)
	}
	add(10, use(1, 0, 7, -1, 10, 0)) // not worth a name
	add(11, use(1, 7, 16, -1, 4, 4), use(1, 8, 8, -1, 3, 0), use(2, 7, 16, 80, 5, 5))
	add(12, use(1, 7, 16, 86, 2, 2), use(3, 9, 16, 2, 1, 1))
	if h, ok := m.Minute(t0.Add(59*time.Second), false); ok {
		t.Errorf("the minute is not over: %+v", h)
	}
	want := history.LockHungry{At: t0.Add(10 * time.Second), Last: t0.Add(12 * time.Second), Slots: sixteen, Statements: []history.HungryStatement{
		{Database: 5, Role: 10, QueryID: 7, Locks: 102, SlotsMax: 16, Spilled: 86, Looks: 11, LooksFull: 11, Sessions: 2},
		{Database: 5, Role: 10, QueryID: 9, Locks: 18, SlotsMax: 16, Spilled: 2, Looks: 1, LooksFull: 1, Sessions: 1},
		{Database: 5, Role: 10, QueryID: 8, Locks: 8, SlotsMax: 8, Spilled: history.NotLooked, Looks: 3, Sessions: 1},
	}}
	if h, ok := m.Minute(t0.Add(time.Minute), false); !ok || !reflect.DeepEqual(h, want) {
		t.Errorf("got %+v, %v\nwant %+v", h, ok, want)
	}
	if h, ok := m.Minute(t0.Add(time.Hour), true); ok {
		t.Errorf("handed out twice: %+v", h)
	}
	add(70, use(1, 7, 9, -1, 10, 0))
	if h, ok := m.Minute(t0.Add(71*time.Second), true); !ok || h.At != t0.Add(70*time.Second) || len(h.Statements) != 1 || h.Statements[0].Locks != 9 {
		t.Errorf("somebody waits for the part of a minute: %+v, %v", h, ok)
	}
	add(80, use(1, 0, 1, -1, 10, 0))
	if h, ok := m.Minute(t0.Add(80*time.Second), true); ok {
		t.Errorf("a minute without such a statement: %+v", h)
	}
}

func TestMinuteIsBounded(t *testing.T) {
	m := New()
	for i := range int64(maxKeys + 100) {
		r := use(int32(i), i, 16, int32(i), 1, 1)
		m.Add(&r, sixteen)
	}
	m.Close(t0, true)
	if len(m.statements) != maxKeys {
		t.Errorf("%d statements are told apart", len(m.statements))
	}
	h, _ := m.Minute(t0, true)
	if len(h.Statements) != maxStatements || h.Statements[0].Locks != 16+maxKeys-1 || h.Statements[maxStatements-1].Locks != 16+maxKeys-maxStatements {
		t.Errorf("%d told, not the heaviest: %s", len(h.Statements), fmt.Sprint(h.Statements[0], h.Statements[len(h.Statements)-1]))
	}
}

func TestQuietSecondAllocatesNothing(t *testing.T) {
	m := New()
	if n := testing.AllocsPerRun(100, func() {
		m.Minute(t0, false)
		m.Close(t0, true)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
