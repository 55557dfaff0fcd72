package load

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// numbered makes names of the numbers.
type numbered struct{}

func (numbered) Name(kind snapshot.NameKind, number uint32) (string, error) {
	return fmt.Sprintf("%d.%x", kind, number), nil
}

const (
	manager = 0x0100003d // LWLock, some tranche
	insert  = 0x01000037
)

func lwlockRun(event uint32, mode snapshot.LWLockMode, kind snapshot.TargetKind, number uint32, ms int64) snapshot.Run {
	return snapshot.Run{WaitEvent: event, LWLockMode: mode, Flags: snapshot.RunLWLock, TimeUs: ms * 1000, WaitersMax: 1,
		Target: snapshot.Target{Kind: kind, Number: number}}
}

func closed(t *testing.T, m *Meter) history.Second {
	t.Helper()
	s, ok := m.Close(&snapshot.Second{SampledUs: 1_000_000, Samples: 100})
	if !ok {
		t.Fatal("there was something to tell")
	}
	return s
}

func TestLWLocksAreTold(t *testing.T) {
	ended := lwlockRun(manager, snapshot.LWExclusive, snapshot.TargetPartition, 3, 20)
	ended.EndedUs, ended.WaitersMax = 40_000, 5
	ended.AheadUs, ended.ExclusiveUs, ended.SharedUs = 10_000, 5_000, 30_000
	for _, c := range []struct {
		name string
		runs []snapshot.Run
		want []history.LWLock
	}{
		{"partitions apart", []snapshot.Run{
			lwlockRun(manager, snapshot.LWExclusive, snapshot.TargetPartition, 3, 20), lwlockRun(manager, snapshot.LWExclusive, snapshot.TargetPartition, 0, 30)},
			[]history.LWLock{
				{Tranche: "4.100003d", Instance: "partition 0", Contention: history.Contention{Time: 30 * time.Millisecond, WaitersMax: 1}},
				{Tranche: "4.100003d", Instance: "partition 3", Contention: history.Contention{Time: 20 * time.Millisecond, WaitersMax: 1}}}},
		{"modes apart", []snapshot.Run{
			lwlockRun(insert, snapshot.LWExclusive, snapshot.TargetUnknown, 0, 20), lwlockRun(insert, snapshot.LWWaitUntilFree, snapshot.TargetUnknown, 0, 30)},
			[]history.LWLock{
				{Tranche: "4.1000037", Mode: snapshot.LWWaitUntilFree, Contention: history.Contention{Time: 30 * time.Millisecond, WaitersMax: 1}},
				{Tranche: "4.1000037", Contention: history.Contention{Time: 20 * time.Millisecond, WaitersMax: 1}}}},
		{"added up, whoever waited", []snapshot.Run{ended, ended, lwlockRun(manager, snapshot.LWExclusive, snapshot.TargetPartition, 3, 20)},
			[]history.LWLock{{Tranche: "4.100003d", Instance: "partition 3", Contention: history.Contention{Time: 60 * time.Millisecond, Waits: 2, WaitersMax: 5,
				Ahead: 20 * time.Millisecond, Exclusive: 10 * time.Millisecond, Shared: 60 * time.Millisecond}}}},
		{"pages are told elsewhere", []snapshot.Run{
			lwlockRun(insert, snapshot.LWShared, snapshot.TargetUnknown, 0, 1),
			{WaitEvent: insert, LWLockMode: snapshot.LWShared, Flags: snapshot.RunLWLock, TimeUs: 1000, Target: snapshot.Target{Kind: snapshot.TargetPage, Block: 7}}},
			[]history.LWLock{{Tranche: "4.1000037", Mode: snapshot.LWShared, Contention: history.Contention{Time: 2 * time.Millisecond, WaitersMax: 1}}}},
		{"words", []snapshot.Run{
			lwlockRun(insert, 0, snapshot.TargetSingle, 0, 3), lwlockRun(insert, 0, snapshot.TargetMember, 2, 2), lwlockRun(insert, 0, snapshot.TargetProcess, 4711, 1)},
			[]history.LWLock{
				{Tranche: "4.1000037", Instance: "only one", Contention: history.Contention{Time: 3 * time.Millisecond, WaitersMax: 1}},
				{Tranche: "4.1000037", Instance: "lock 2", Contention: history.Contention{Time: 2 * time.Millisecond, WaitersMax: 1}},
				{Tranche: "4.1000037", Instance: "fast path of pid 4711", Contention: history.Contention{Time: time.Millisecond, WaitersMax: 1}}}},
		{"not tracked", []snapshot.Run{{WaitEvent: insert, TimeUs: 1000}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(numbered{})
			for i := range c.runs {
				m.Add(&c.runs[i])
			}
			if got := closed(t, m).LWLocks; !slices.Equal(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			m.Add(&snapshot.Run{TimeUs: 1})
			if got := closed(t, m).LWLocks; len(got) != 0 {
				t.Errorf("the next second has %+v", got)
			}
		})
	}
}

func TestLWLocksAreBounded(t *testing.T) {
	m := New(numbered{})
	var all time.Duration
	for i := range uint32(4 * maxLWLocks) {
		r := lwlockRun(manager, snapshot.LWExclusive, snapshot.TargetProcess, 1000+i, int64(1+i))
		all += time.Duration(1+i) * time.Millisecond
		m.Add(&r)
	}
	got := closed(t, m).LWLocks
	if len(got) > maxLWLocks+1 {
		t.Fatalf("%d locks are told, at most %d should be", len(got), maxLWLocks+1)
	}
	if got[0].Instance != fmt.Sprintf("fast path of pid %d", 1000+4*maxLWLocks-1) {
		t.Errorf("the first is %+v, not the longest", got[0])
	}
	var sum time.Duration
	for _, l := range got {
		sum += l.Time
	}
	if sum != all {
		t.Errorf("they add up to %v, not %v", sum, all)
	}
	if last := got[len(got)-1]; last.Instance != "" || last.Tranche == "" {
		t.Errorf("the rest is told as %+v", last)
	}
}

func TestOurOwnWaitsAreNone(t *testing.T) {
	m := New(numbered{})
	r := lwlockRun(manager, snapshot.LWExclusive, snapshot.TargetPartition, 3, 20)
	m.AddOwn(&r)
	m.Add(&snapshot.Run{TimeUs: 1})
	if got := closed(t, m).LWLocks; len(got) != 0 {
		t.Errorf("told: %+v", got)
	}
}
