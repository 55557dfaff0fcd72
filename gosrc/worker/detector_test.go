package main

import (
	"testing"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/queue"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/spill"
	"pg_lock_history/gosrc/store"
)

// What the life before could not write is newer than what is in the tables,
// and does not have to wait for them.
func TestDetectorStateOfTheLifeBefore(t *testing.T) {
	item := facts(60, 1)
	last := facts(60, 2)
	item.Batch.Detector, last.Batch.Detector = []byte("old"), []byte("new")
	alone := facts(60, 3)
	alone.Batch = &history.Batch{Run: 60, Number: 3, CompleteTo: 2, Detector: []byte("newest")}
	c := contentOf(60, nil, store.Left{}, 99)
	for _, i := range []*spill.Entry{{Batch: item.Batch, From: 1}, {Batch: last.Batch, From: 1}} {
		c.Entries = append(c.Entries, *i)
	}
	s := newSink(testConfig(t.TempDir()), report.New(func() {}), func() {}, &c, nil)
	if state, known := s.DetectorState(); string(state) != "new" || !known {
		t.Errorf("got %q, %t", state, known)
	}
	if state, known := s.DetectorState(); known {
		t.Errorf("%q is told without a look into the tables", state)
	}
	// At the end of a life on an idle server it is all there is.
	c = contentOf(60, nil, store.Left{Items: []queue.Item{alone}}, 99)
	if len(c.Entries) != 1 || string(c.Entries[0].Batch.Detector) != "newest" {
		t.Errorf("left: %+v", c.Entries)
	}
}
