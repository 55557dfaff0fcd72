package load

import (
	"cmp"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// maxPages bounds the pages told apart in one second: some 30 bytes of the table
// each. Beyond it the least awaited pages of a relation are added up, and
// beyond twice of it they are told as not found.
const maxPages = 20

type pageKey struct {
	target snapshot.Target
	mode   snapshot.LWLockMode
}

func (m *Meter) addPage(r *snapshot.Run) {
	k := pageKey{target: r.Target, mode: r.LWLockMode}
	if k.target.Kind != snapshot.TargetPage {
		k.target = snapshot.Target{Kind: snapshot.TargetUnknown}
	}
	add(m.pages, k, r)
}

// takePages returns what was added, longest waits first, and begins anew.
func (m *Meter) takePages() []history.Page {
	if len(m.pages) == 0 {
		return nil
	}
	order := func(a, b pageKey) int {
		return cmp.Or(cmp.Compare(a.target.Database, b.target.Database), cmp.Compare(a.target.Relfile, b.target.Relfile), cmp.Compare(a.target.Block, b.target.Block),
			cmp.Compare(a.target.Fork, b.target.Fork), cmp.Compare(a.target.Number, b.target.Number), cmp.Compare(a.mode, b.mode))
	}
	sums := take(m.pages, order)
	sums = fold(sums, maxPages, func(k pageKey) pageKey {
		if k.target.Kind == snapshot.TargetPage {
			k.target.Number, k.target.Block = 0, history.ManyBlocks
		}
		return k
	})
	sums = fold(sums, 2*maxPages, func(k pageKey) pageKey {
		k.target = snapshot.Target{Kind: snapshot.TargetUnknown}
		return k
	})
	out := make([]history.Page, len(sums))
	for i := range sums {
		out[i] = history.Page{Mode: sums[i].key.mode, Contention: sums[i].history()}
		if t := sums[i].key.target; t.Kind == snapshot.TargetPage {
			out[i].Found, out[i].Block, out[i].Role = true, t.Block, snapshot.PageRole(t.Number)
			out[i].File = snapshot.File{Tablespace: t.Tablespace, Database: t.Database, Relfile: t.Relfile}
			out[i].Fork = t.Fork
		}
	}
	return out
}
