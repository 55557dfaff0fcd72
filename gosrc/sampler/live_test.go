package sampler

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

func TestLiveGraphFollowsTheWait(t *testing.T) {
	srv := &server{script: []moment{{at: 1500 * time.Millisecond, do: alterWaits}, {at: 4 * time.Second, do: nobodyWaits}}}
	play(t, srv, &recorder{}, testConfig(), 10*time.Second)

	first, last := srv.graphs[0], srv.graphs[len(srv.graphs)-1]
	if first.rows != 0 || first.at > 100*time.Millisecond {
		t.Errorf("first shown %+v, want an empty graph at once: what the life before left is not true", first)
	}
	if begin := srv.graphs[1]; begin.rows != 2 || begin.at > 1520*time.Millisecond {
		t.Errorf("then %+v, want waiter and holder within two ticks of 1.5 s", begin)
	}
	if n := len(srv.graphs); n < 23 || n > 35 {
		t.Errorf("%d graphs for 2.5 s of waiting, want about ten a second", n)
	}
	if last.rows != 0 || last.at > 4020*time.Millisecond {
		t.Errorf("last shown %+v, want an empty graph when the wait ended, and nothing after", last)
	}
	if len(srv.ended) != 1 || srv.ended[0].records != 1 || srv.ended[0].at != last.at {
		t.Errorf("ended waits %+v, want one, with the end and not with the flush", srv.ended)
	}
}

func TestLiveWaitsArriveOnceEach(t *testing.T) {
	srv := &server{}
	for i := range 5 { // over several flushes, and several in one
		at := time.Second + time.Duration(i)*700*time.Millisecond
		srv.script = append(srv.script, moment{at: at, do: alterWaits}, moment{at: at + 300*time.Millisecond, do: nobodyWaits})
	}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 10*time.Second)
	if n := len(sink.closedEpisodes()); n != 5 || len(srv.ended) != 5 {
		t.Errorf("%d waits in the history, %+v in the live area; want 5", n, srv.ended)
	}
	for i, e := range srv.ended {
		if e.records != 1 {
			t.Errorf("%d records at the end of wait %d", e.records, i+1)
		}
	}
}

// What somebody who asks for all has decided for him arrives as well.
func TestLiveWaitsThatAreDecidedByAFlush(t *testing.T) {
	srv := &server{status: snapshot.EndedFailed, script: []moment{
		{at: time.Second, do: alterWaits}, {at: 2 * time.Second, do: nobodyWaits}, // its record never comes
		{at: 2020 * time.Millisecond, reasons: WokeFlush, ticket: 1},
	}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 3*time.Second)
	if closed := sink.closedEpisodes(); len(closed) != 1 || closed[0].Outcome != history.Failed {
		t.Fatalf("ended %+v, want one of which no more is known", closed)
	}
	if len(srv.ended) != 1 || srv.ended[0].records != 1 || srv.ended[0].at > 2030*time.Millisecond {
		t.Errorf("ended waits %+v, want it with the flush", srv.ended)
	}
}

func TestLiveGraphHeedsNewSettings(t *testing.T) {
	off := `{"settings":{"enabled":true,"track_locks":true,"database":"postgres","sample_period_ms":10,"flush_period_ms":1000,"retention_s":604800,"max_size_mb":1024,"min_duration_ms":100,"max_rows_per_second":1000,"query_text":"off","query_length":64,"memory_limit_mb":64,"node_name":"n"},
		"server":{"version_num":150000,"port":5432,"worker_start":1,"system_identifier":"1","extension_version":"1.0"}}`
	srv := &server{settings: off, script: []moment{{at: time.Second, do: alterWaits}, {at: 2 * time.Second, reasons: WokeReload}}}
	play(t, srv, &recorder{}, testConfig(), 3*time.Second)
	for _, g := range srv.graphs {
		want := 0
		if g.rows == 2 && g.at <= 2*time.Second {
			want = 2
		}
		if g.statements != want && (g.at < 2*time.Second || g.at > 2020*time.Millisecond) {
			t.Errorf("%d statements at %v, want %d", g.statements, g.at, want)
		}
	}
}

func TestLiveAreaBusy(t *testing.T) {
	srv := &server{script: []moment{
		{at: 1500 * time.Millisecond, do: alterWaits},
		{at: 4 * time.Second, do: func(s *server) { nobodyWaits(s); s.areaBusy = 150 }}, // over a flush
	}}
	play(t, srv, &recorder{}, testConfig(), 10*time.Second)
	if len(srv.ended) != 1 || srv.ended[0].records != 1 || srv.ended[0].skipped != 0 {
		t.Fatalf("ended waits %+v, want the one", srv.ended)
	}
	if at := srv.ended[0].at; at < 5400*time.Millisecond || at > 5600*time.Millisecond {
		t.Errorf("arrived at %v, want with the first tick on which the area is free: 5.5 s", at)
	}
	if last := srv.graphs[len(srv.graphs)-1]; last.rows != 0 || last.at != srv.ended[0].at {
		t.Errorf("last shown %+v, want the empty graph with the ended wait", last)
	}
}

func TestLiveAreaThatFails(t *testing.T) {
	srv := &server{areaError: errors.New("no such area"), script: []moment{{at: time.Second, do: alterWaits}}}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), 5*time.Second)
	if len(srv.logged) != 1 || !strings.Contains(srv.logged[0].Text, "no such area") {
		t.Errorf("logged %+v, want one message", srv.logged)
	}
	if sink.batches == nil {
		t.Error("the history stopped with the live area")
	}
}

func TestLiveGraphIsEmptyWhileNobodyLooks(t *testing.T) {
	off := `{"settings":{"enabled":false,"track_locks":true,"database":"postgres","sample_period_ms":10,"flush_period_ms":1000,"retention_s":604800,"max_size_mb":1024,"min_duration_ms":100,"max_rows_per_second":1000,"query_text":"full","query_length":64,"memory_limit_mb":64,"node_name":"n"},
		"server":{"version_num":150000,"port":5432,"worker_start":1,"system_identifier":"1","extension_version":"1.0"}}`
	srv := &server{settings: off, script: []moment{
		{at: time.Second, do: alterWaits},
		{at: 2 * time.Second, reasons: WokeReload},
		{at: 5 * time.Second, reasons: WokeReload, do: func(s *server) { s.settings = strings.Replace(off, `"enabled":false`, `"enabled":true`, 1) }},
	}}
	play(t, srv, &recorder{}, testConfig(), 6*time.Second)
	for _, g := range srv.graphs {
		if paused := g.at > 2*time.Second && g.at < 5*time.Second; paused && g.rows != 0 {
			t.Errorf("%d rows shown at %v, while sampling was off", g.rows, g.at)
		}
	}
	emptied, back := false, false
	for _, g := range srv.graphs {
		emptied = emptied || g.rows == 0 && g.at >= 2*time.Second && g.at < 2100*time.Millisecond
		back = back || g.rows == 2 && g.at >= 5*time.Second && g.at < 5100*time.Millisecond
	}
	if !emptied || !back {
		t.Errorf("emptied when switched off: %v, shown again when switched on: %v", emptied, back)
	}
}

// lateNames is a server whose names are known from a moment on.
type lateNames struct {
	noNames
	srv      *server
	database time.Duration
	role     time.Duration
}

func (n lateNames) Database(uint32) string { return knownFrom(n.srv, n.database, "shop") }
func (n lateNames) Role(uint32) string     { return knownFrom(n.srv, n.role, "clerk") }

func knownFrom(srv *server, at time.Duration, name string) string {
	if srv.now < at {
		return ""
	}
	return name
}

// The first second of a database or role waits for their names, which could not
// be asked for before; but not for ever, and no other second waits but those behind it.
func TestLiveLoadWaitsForNames(t *testing.T) {
	const first, second, never = 1010 * time.Millisecond, 2010 * time.Millisecond, time.Hour
	for _, c := range []struct {
		name           string
		database, role time.Duration // when they are known
		at             time.Duration // when the first second is shown
		named          int           // of the two
	}{
		{"known already", 0, 0, first, 2},
		{"come soon", first + 100*time.Millisecond, first + 300*time.Millisecond, first + 350*time.Millisecond, 2},
		{"one does not come", 0, never, first + namesWithin + 10*time.Millisecond, 0},
		{"come too late", second + 300*time.Millisecond, second + 300*time.Millisecond, first + namesWithin + 10*time.Millisecond, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			busy := func(at snapshot.Micros) func(*server) {
				return func(s *server) {
					s.runs = []snapshot.Run{{Second: at, Pid: 1, TimeUs: 1_000_000, LWLockMode: snapshot.NoLWLock, Database: 5, Role: 10}}
					s.seconds = []snapshot.Second{{Second: at, SampledUs: 1_000_000, Samples: 100}}
				}
			}
			srv := &server{script: []moment{
				{at: first, reasons: WokeActivity, do: busy(start)},
				{at: second, reasons: WokeActivity, do: busy(start.Add(time.Second))},
			}}
			playNamed(t, srv, &recorder{}, testConfig(), 4*time.Second, lateNames{srv: srv, database: c.database, role: c.role})
			if len(srv.loadAt) == 0 || srv.loadAt[0] < c.at-namesLook || srv.loadAt[0] > c.at+namesLook {
				t.Errorf("shown at %v, want the first at %v", srv.loadAt, c.at)
			}
			if last := srv.loadAt[len(srv.loadAt)-1]; last > second+2*namesLook {
				t.Errorf("the second was shown at %v, though its owner is no stranger any more", last)
			}
			if n := bytes.Count(srv.load, []byte("clerk")); n != c.named {
				t.Errorf("%d of two seconds have names, want %d", n, c.named)
			}
			if n := bytes.Count(srv.load, []byte("CPU")); n != 4 { // type and event
				t.Errorf("%d words of load in two seconds, want 4", n)
			}
		})
	}
}
