package snapshot_test

import (
	"testing"
	"time"

	"pg_lock_history/gosrc/snapshot"
)

func TestMicros(t *testing.T) {
	tests := []struct {
		name string
		m    snapshot.Micros
		time time.Time
	}{
		{"not known", 0, time.Time{}},
		{"one microsecond into 2000", 1, time.Date(2000, 1, 1, 0, 0, 0, 1000, time.UTC)},
		{"before 2000", -1, time.Date(1999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)},
		{"the first day of 2026", 820_540_800_000_000, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.m.Time(); !got.Equal(test.time) {
				t.Errorf("time is %v, want %v", got, test.time)
			}
			if got := snapshot.FromTime(test.time); got != test.m {
				t.Errorf("back again it is %d, want %d", got, test.m)
			}
		})
	}
}

func TestMicrosArithmetic(t *testing.T) {
	const m = snapshot.Micros(5_000_000)
	if got := m.Add(-1500 * time.Millisecond); got != 3_500_000 {
		t.Errorf("Add: %d", got)
	}
	if got := m.Sub(3_500_000); got != 1500*time.Millisecond {
		t.Errorf("Sub: %v", got)
	}
}

func TestStates(t *testing.T) {
	want := map[snapshot.State]string{
		snapshot.StateUnknown:                  "",
		snapshot.StateIdle:                     "idle",
		snapshot.StateActive:                   "active",
		snapshot.StateIdleInTransaction:        "idle in transaction",
		snapshot.StateFastpath:                 "fastpath function call",
		snapshot.StateIdleInTransactionAborted: "idle in transaction (aborted)",
		snapshot.StateDisabled:                 "disabled",
		snapshot.StateStarting:                 "starting",
		99:                                     "",
	}
	for state, word := range want {
		if got := state.String(); got != word {
			t.Errorf("state %d is %q, want %q", state, got, word)
		}
	}
}

func TestLWLockModes(t *testing.T) {
	want := map[snapshot.LWLockMode]string{
		snapshot.NoLWLock:        "",
		snapshot.LWExclusive:     "exclusive",
		snapshot.LWShared:        "shared",
		snapshot.LWWaitUntilFree: "wait until free",
		snapshot.LWShareExcl:     "share exclusive",
		99:                       "",
	}
	for mode, word := range want {
		if got := mode.String(); got != word {
			t.Errorf("mode %d is %q, want %q", mode, got, word)
		}
	}
}
