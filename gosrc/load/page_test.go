package load

import (
	"slices"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

func pageRun(mode snapshot.LWLockMode, file, block uint32, role snapshot.PageRole, ms int64) snapshot.Run {
	return snapshot.Run{WaitEvent: manager, LWLockMode: mode, Flags: snapshot.RunPage, TimeUs: ms * 1000, WaitersMax: 1,
		Target: snapshot.Target{Kind: snapshot.TargetPage, Number: uint32(role), Tablespace: 1663, Database: 5, Relfile: file, Block: block}}
}

func TestPagesAreTold(t *testing.T) {
	unfound := snapshot.Run{LWLockMode: snapshot.LWShared, Flags: snapshot.RunPage, TimeUs: 1000, Target: snapshot.Target{Kind: snapshot.TargetUnknown}}
	page := func(mode snapshot.LWLockMode, file, block uint32, role snapshot.PageRole, ms time.Duration) history.Page {
		return history.Page{Found: true, File: snapshot.File{Tablespace: 1663, Database: 5, Relfile: file}, Block: block, Role: role, Mode: mode,
			Contention: history.Contention{Time: ms * time.Millisecond, WaitersMax: 1}}
	}
	for _, c := range []struct {
		name string
		runs []snapshot.Run
		want []history.Page
	}{
		{"pages, modes and roles apart", []snapshot.Run{
			pageRun(snapshot.LWShared, 9, 0, 0, 5), pageRun(snapshot.LWShared, 9, 1, 0, 4), pageRun(snapshot.LWExclusive, 9, 0, 0, 3),
			pageRun(snapshot.LWShared, 9, 1, snapshot.RoleLeaf, 2), pageRun(snapshot.LWShared, 9, 0, 0, 5)},
			[]history.Page{page(snapshot.LWShared, 9, 0, 0, 10), page(snapshot.LWShared, 9, 1, 0, 4), page(snapshot.LWExclusive, 9, 0, 0, 3),
				page(snapshot.LWShared, 9, 1, snapshot.RoleLeaf, 2)}},
		{"not found", []snapshot.Run{unfound, unfound},
			[]history.Page{{Mode: snapshot.LWShared, Contention: history.Contention{Time: 2 * time.Millisecond}}}},
		{"a pin", []snapshot.Run{pageRun(snapshot.NoLWLock, 9, 0, 0, 5)}, []history.Page{page(snapshot.NoLWLock, 9, 0, 0, 5)}},
		{"not tracked", []snapshot.Run{{WaitEvent: manager, TimeUs: 1000}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(numbered{})
			for i := range c.runs {
				m.Add(&c.runs[i])
			}
			if got := closed(t, m).Pages; !slices.Equal(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestPagesAreBounded(t *testing.T) {
	for _, c := range []struct {
		name        string
		files       uint32
		wantLast    history.Page // but for its contention
		wantEntries int
	}{
		{"of one relation", 1, history.Page{Found: true, File: snapshot.File{Tablespace: 1663, Database: 5, Relfile: 1}, Block: history.ManyBlocks}, maxPages + 1},
		{"of very many", 1000, history.Page{}, 2*maxPages + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(numbered{})
			var all, sum time.Duration
			for i := range uint32(1000) {
				r := pageRun(snapshot.LWExclusive, 1+i%c.files, i, 0, int64(1+i))
				all += time.Duration(1+i) * time.Millisecond
				m.Add(&r)
			}
			got := closed(t, m).Pages
			for _, p := range got {
				sum += p.Time
			}
			if len(got) != c.wantEntries || sum != all {
				t.Errorf("%d entries of %v, want %d of %v", len(got), sum, c.wantEntries, all)
			}
			last := got[len(got)-1]
			last.Contention = history.Contention{}
			if last != c.wantLast {
				t.Errorf("the rest is told as %+v, want %+v", last, c.wantLast)
			}
			if got[0].Block != 999 {
				t.Errorf("the first is block %d, not the one of the longest waits", got[0].Block)
			}
		})
	}
}
