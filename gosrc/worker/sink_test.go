package main

import (
	"runtime/debug"
	"testing"

	"pg_lock_history/gosrc/report"
)

// A reload moves the collector's limit as well: with that of the start, more
// memory would be nothing but more collecting.
func TestMemoryLimitFollowsTheSetting(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	c := testConfig(t.TempDir())
	s := newSink(c, report.New(func() {}), func() {}, nil, nil)
	for _, limit := range []int64{64 << 20, 1 << 30} {
		c.MemoryLimit = limit
		s.Configure(c)
		if got := debug.SetMemoryLimit(-1); got != limit {
			t.Errorf("the limit is %d, want %d", got, limit)
		}
	}
}
