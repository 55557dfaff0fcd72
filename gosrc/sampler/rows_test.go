package sampler

import (
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/snapshot"
)

var testTuple = lockmgr.Tag{Field1: 5, Field2: 16384, Field3: 7, Field4: 3, Type: lockmgr.Tuple, Method: 1}

// rowsWait returns a script step after which n processes wait, each for
// another transaction.
func rowsWait(n int32) func(*server) {
	return func(s *server) {
		nobodyWaits(s)
		for i := range n {
			slot, lock := i+1, uint64(i+1)
			s.waits = append(s.waits, snapshot.Wait{Lock: lock, WaitStart: s.wall(), Slot: slot, Pid: 100 + slot, WaitEvent: 0x03000005})
			s.locks = append(s.locks, snapshot.Lock{Lock: lock, Field1: 740 + uint32(i), Type: uint8(lockmgr.TransactionID), Method: 1,
				FirstHolder: uint32(i), NHolders: 1, FirstQueued: uint32(i), NQueued: 1})
			s.holders = append(s.holders, snapshot.Holder{Slot: 0, Pid: 100, LeaderSlot: 0, LeaderPid: 100, HoldMask: 1 << 7})
			s.queue = append(s.queue, snapshot.Queued{WaitStart: s.wall(), Slot: slot, Pid: 100 + slot, LeaderSlot: slot, LeaderPid: 100 + slot, Mode: 5})
		}
	}
}

func found(_ snapshot.Wait, row *Row) error {
	*row = Row{Status: RowFound, Tuple: testTuple, PartitionsTaken: 2}
	return nil
}

func TestRowBehindTransaction(t *testing.T) {
	busyTimes := func(n int) func(snapshot.Wait, *Row) error {
		return func(w snapshot.Wait, row *Row) error {
			if n > 0 {
				n--
				*row = Row{PartitionsTaken: 1, PartitionsBusy: 1}
				return ErrBusy
			}
			return found(w, row)
		}
	}
	tests := []struct {
		name  string
		waits func(*server)
		row   func(snapshot.Wait, *Row) error
		lasts time.Duration
		asked int
		want  lockmgr.Tag
	}{
		{"found", rowsWait(1), found, time.Second, 1, testTuple},
		{"not found", rowsWait(1), nil, time.Second, 1, lockmgr.Tag{}},
		{"found when the partition is free again", rowsWait(1), busyTimes(2), time.Second, 3, testTuple},
		{"given up", rowsWait(1), busyTimes(100), time.Second, rowTries, lockmgr.Tag{}},
		{"just long enough to be kept", rowsWait(1), found, 130 * time.Millisecond, 1, testTuple},
		{"too short to be kept", rowsWait(1), found, 80 * time.Millisecond, 0, lockmgr.Tag{}},
		{"no transaction", alterWaits, found, time.Second, 0, lockmgr.Tag{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := &server{row: tt.row, script: []moment{{at: time.Second, do: tt.waits}, {at: time.Second + tt.lasts, do: nobodyWaits}}}
			sink := &recorder{}
			play(t, srv, sink, testConfig(), 4*time.Second)
			if len(srv.rowsAt) != tt.asked {
				t.Fatalf("asked %d times (%v), want %d", len(srv.rowsAt), srv.rowsAt, tt.asked)
			}
			if tt.asked > 0 && (srv.rowsAt[0] < 1100*time.Millisecond || srv.rowsAt[0] > 1120*time.Millisecond) {
				t.Errorf("asked first at %v, want when the wait is 100 ms old", srv.rowsAt[0])
			}
			for _, e := range sink.closedEpisodes() {
				if e.Row != tt.want {
					t.Errorf("row %+v, want %+v", e.Row, tt.want)
				}
			}
			named := false
			for _, tag := range sink.tags {
				named = named || tag == testTuple
			}
			if named != (tt.want == testTuple) {
				t.Errorf("name of the row's table asked for: %v", named)
			}
			if got := partitions(sink); tt.name == "found" && got < 2 {
				t.Errorf("health counts %d partitions", got)
			}
		})
	}
}

func partitions(sink *recorder) (n int64) {
	for _, b := range sink.batches {
		for _, h := range b.Health {
			n += h.PartitionsTaken
		}
	}
	return n
}

// A search that finds a process with locks everywhere takes 16 partitions: of
// 15 such waits 12 have their turn in the first second, the others in the next.
func TestRowsHaveABudget(t *testing.T) {
	srv := &server{script: []moment{{at: time.Second, do: rowsWait(15)}, {at: 4 * time.Second, do: nobodyWaits}},
		row: func(_ snapshot.Wait, row *Row) error {
			*row = Row{Status: RowFound, Tuple: testTuple, PartitionsTaken: rowMost}
			return nil
		}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 5*time.Second)
	first := 0
	for _, at := range srv.rowsAt {
		if at < 2*time.Second {
			first++
		}
	}
	if first != rowBudget/rowMost || len(srv.rowsAt) != 15 {
		t.Errorf("%d asked in the first second and %d in all, want %d and 15", first, len(srv.rowsAt), rowBudget/rowMost)
	}
	with := 0
	for _, e := range sink.closedEpisodes() {
		if e.Outcome == history.Granted && e.Row == testTuple {
			with++
		}
	}
	if with != 15 {
		t.Errorf("%d of 15 waits know their row", with)
	}
}
