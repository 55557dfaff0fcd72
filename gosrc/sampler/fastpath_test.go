package sampler

import (
	"fmt"
	"testing"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

// secondOf is the n-th second of a test as C hands it over, with what was seen
// of the fast path in it.
func secondOf(n int, uses ...snapshot.SlotUse) moment {
	return moment{at: time.Duration(n+1) * time.Second, reasons: WokeActivity, do: func(s *server) {
		at := start.Add(time.Duration(n) * time.Second)
		s.seconds = append(s.seconds, snapshot.Second{Second: at, SampledUs: 1_000_000, ClientsUs: 2_000_000, Samples: 100})
		for _, u := range uses {
			u.Second = at
			s.slotUse = append(s.slotUse, u)
		}
	}}
}

func full(pid int32) snapshot.SlotUse {
	return snapshot.SlotUse{Slot: pid, Pid: pid, Database: 5, Role: 10, QueryID: 77, SlotsUsed: 16, Spilled: 86, Looks: 10, LooksFull: 10}
}

func loadConfig() config.Config {
	c := testConfig()
	c.TrackLoad = true
	return c
}

func TestFastPathOfSeconds(t *testing.T) {
	told := func(sink *recorder) (seconds, hungry []string) {
		for _, b := range sink.batches {
			for _, s := range b.Seconds {
				text := fmt.Sprintf("%d:", s.At.Sub(start)/time.Second)
				for _, f := range s.FastPath {
					text += fmt.Sprintf(" db %d %d/%d sessions %d slots of %d %d spilled", f.Database, f.Full, f.Sessions, f.SlotsMax, s.Slots.Each, f.Spilled)
				}
				seconds = append(seconds, text)
			}
			for _, h := range b.Hungry {
				hungry = append(hungry, fmt.Sprintf("%d: %d statements, %d with %d of %d locks", h.At.Sub(start)/time.Second, len(h.Statements), h.Statements[0].QueryID, h.Statements[0].Locks, h.Slots.Each))
			}
		}
		return seconds, hungry
	}
	const one = ": db 5 1/1 sessions 16 slots of 16 86 spilled"
	tests := []struct {
		name    string
		script  []moment
		seconds []string // the first one tells how many sessions there are
		hungry  []string
	}{
		{"nothing to tell", []moment{secondOf(1), secondOf(2)}, []string{"1:"}, nil},
		{"idle in transaction is told once", []moment{secondOf(1), secondOf(2, full(100)), secondOf(3, full(100)), secondOf(4)},
			[]string{"1:", "2" + one}, []string{"2: 1 statements, 77 with 102 of 16 locks"}},
		{"another comes", []moment{secondOf(1, full(100)), secondOf(2, full(100), full(101))},
			[]string{"1" + one, "2: db 5 2/2 sessions 16 slots of 16 86 spilled"}, []string{"1: 1 statements, 77 with 102 of 16 locks"}},
		{"our own session does not count", []moment{secondOf(1), secondOf(2, full(ourPid)), secondOf(3, full(ourPid), full(100))},
			[]string{"1:", "3" + one}, []string{"3: 1 statements, 77 with 102 of 16 locks"}},
		{"a flush has the minute so far", []moment{secondOf(1, full(100)), {at: 2500 * time.Millisecond, reasons: WokeFlush, ticket: 1}, secondOf(2, full(101))},
			[]string{"1" + one}, []string{"1: 1 statements, 77 with 102 of 16 locks", "2: 1 statements, 77 with 102 of 16 locks"}},
		// The test begins 20 s into a minute.
		{"a minute is over", []moment{secondOf(39, full(100)), secondOf(40, full(100))},
			[]string{"39" + one}, []string{"39: 1 statements, 77 with 102 of 16 locks", "40: 1 statements, 77 with 102 of 16 locks"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv, sink := &server{script: tt.script}, &recorder{}
			play(t, srv, sink, loadConfig(), 45*time.Second)
			seconds, hungry := told(sink)
			if fmt.Sprint(seconds) != fmt.Sprint(tt.seconds) || fmt.Sprint(hungry) != fmt.Sprint(tt.hungry) {
				t.Errorf("seconds %q\n want %q\nhungry %q\n want %q", seconds, tt.seconds, hungry, tt.hungry)
			}
		})
	}
}

// Both looks into sessions' own locks keep to one budget, and are counted.
func TestPartitionBudgetIsShared(t *testing.T) {
	srv := &server{script: []moment{{at: time.Second, do: rowsWait(15)},
		// when the rows are about to be looked for
		{at: 1090 * time.Millisecond, reasons: WokeNotify, do: func(s *server) { s.partitions = 100 }},
		{at: 4 * time.Second, do: nobodyWaits}},
		row: func(_ snapshot.Wait, row *Row) error {
			*row = Row{Status: RowFound, Tuple: lockmgr.Tag{Field1: 5, Field2: 16384, Type: lockmgr.Tuple, Method: 1}, PartitionsTaken: rowMost}
			return nil
		}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 5*time.Second)
	first := 0
	for _, at := range srv.rowsAt {
		if at < 2090*time.Millisecond {
			first++
		}
	}
	if want := (rowBudget - 100) / rowMost; first != want || len(srv.rowsAt) != 15 {
		t.Errorf("%d rows looked for in the first second and %d in all, want %d and 15", first, len(srv.rowsAt), want)
	}
	walks := int64(srv.walks)
	if got := partitions(sink); got != 100+15*rowMost+walks {
		t.Errorf("health counts %d partitions, want 100, 15 times %d, and %d of the walks", got, rowMost, walks)
	}
}
