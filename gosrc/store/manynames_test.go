package store

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/queue"
	"pg_lock_history/gosrc/snapshot"
)

// Whoever gives each transaction an application_name and a statement of its own
// gets all of them into the tables; the writer does not keep them.
func TestManyNames(t *testing.T) {
	const (
		rounds  = 100
		each    = 1000 // waits in one hand: 100 000 names in all, and as many statements, roles and relations
		maxHeap = 24 << 20
	)
	c := &config.Config{NodeName: "n", QueryLength: 1024, MaxRowsPerSecond: 1000}
	names := newNames(func() *config.Config { return c }, nil)
	s := &session{nodeID: 1, run: 1, actors: make(map[int64]struct{}), encode: func(t string) string { return t }}
	dims := newDimensions()
	stored := make(map[uint32]bool) // by a number in the name
	before := heap()
	for round := range rounds {
		now := snapshot.Micros(820_000_000_000_000).Add(time.Duration(round) * time.Second)
		b := &history.Batch{Number: int64(round + 1), CompleteTo: now}
		for i := range each {
			n := uint32(round*each + i)
			w := &snapshot.Session{Slot: int32(i), Pid: int32(i), Role: 20_000 + n, Database: 5, SeenAt: now, BackendStart: now,
				ApplicationName: fmt.Sprintf("%08d %s", n, longName), Query: fmt.Sprintf("SELECT '%d', '%s'", n, longName), QueryID: int64(n)}
			b.Closed = append(b.Closed, history.Episode{WaitID: int64(n) + 1, Waiter: w, Mode: 8, Start: now, End: now, Outcome: history.Granted, Samples: 1})
			b.Seconds = append(b.Seconds, history.Second{At: now, Loads: []history.Load{{EventType: history.CPU, Event: history.CPU, Database: 5, Role: w.Role, QueryID: w.QueryID, Time: time.Millisecond}}})
		}
		h := &hand{items: []queue.Item{{Batch: b, From: now}}, number: b.Number, complete: now}
		found := make(map[nameKey]string)
		keys := wantedNames(h)
		for _, k := range keys {
			found[k] = fmt.Sprint(k.a, longName)
		}
		names.store(keys, found)
		r := newRows(h, s, names, c, dims, false)
		for _, row := range r.actors {
			var n uint32
			if _, err := fmt.Sscanf(*row[14].(*string), "%d", &n); err != nil {
				t.Fatal(err)
			}
			stored[n] = true
		}
		s.remember(r)
		dims.added = nil
	}
	if len(stored) != rounds*each {
		t.Errorf("%d names are stored, want %d", len(stored), rounds*each)
	}
	if len(s.actors) > maxActors || len(dims.ids) > maxDims+10 || names.recent.Len() > maxNames {
		t.Errorf("kept: %d actors, %d dimensions, %d names", len(s.actors), len(dims.ids), names.recent.Len())
	}
	clear(stored)
	stored = nil
	if grown := heap() - before; grown > maxHeap {
		t.Errorf("the heap has grown by %d kB", grown>>10)
	} else {
		t.Logf("the heap has grown by %d kB", grown>>10)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(dims)
	runtime.KeepAlive(names)
}

// longName is as long as the server lets an application_name be.
const longName = "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghi"

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
