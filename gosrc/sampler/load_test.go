package sampler

import (
	"fmt"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// A second that is complete is flushed, with the runs that came before it for
// want of room, without those of the next one, and without our own sessions.
func TestSecondsAreFlushedWhenComplete(t *testing.T) {
	event := func(second snapshot.Micros, pid int32, us int64) snapshot.Run {
		return snapshot.Run{Second: second, Pid: pid, TimeUs: us, LWLockMode: snapshot.NoLWLock, Database: 5, Role: 10}
	}
	first, next := start, start.Add(time.Second)
	srv := &server{script: []moment{
		{at: 500 * time.Millisecond, reasons: WokeActivity, do: func(s *server) {
			s.runs = []snapshot.Run{event(first, 1, 100_000)}
		}},
		{at: 1010 * time.Millisecond, reasons: WokeActivity, do: func(s *server) {
			s.runs = []snapshot.Run{event(first, 2, 200_000), event(first, ourPid, 900_000), event(next, 3, 400_000)}
			s.seconds = []snapshot.Second{{Second: first, SampledUs: 1_000_000, ClientsUs: 3_000_000, ActiveUs: 1_200_000, Samples: 100}}
		}},
	}}
	sink := &recorder{}
	s := play(t, srv, sink, testConfig(), 3*time.Second)
	var seconds []history.Second
	for _, b := range sink.batches {
		seconds = append(seconds, b.Seconds...)
	}
	if len(seconds) != 1 || seconds[0].At != first || len(seconds[0].Loads) != 1 {
		t.Fatalf("seconds %+v", seconds)
	}
	if got := seconds[0].Loads[0].Time; got != 300*time.Millisecond {
		t.Errorf("load of %v, want 300 ms", got)
	}
	if got := seconds[0].Active; got != 300*time.Millisecond {
		t.Errorf("active for %v, want 300 ms", got)
	}
	if owners := len(s.load.roles); owners != 1 {
		t.Errorf("names of %d owners were asked for, want 1", owners)
	}
}

// What is switched off is a gap of its part, told while it lasts.
func TestPartsThatAreOffAreGapsOfTheirs(t *testing.T) {
	for _, c := range []struct {
		name        string
		locks, load bool
		part        history.Part
		gaps        int
	}{
		{"all is sampled", true, true, "", 0},
		{"no waits", false, true, history.PartWaits, 3},
		{"no load", true, false, history.PartLoad, 3},
		{"nothing", false, false, history.PartAll, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig()
			cfg.TrackLocks, cfg.TrackLoad = c.locks, c.load
			sink := &recorder{}
			play(t, &server{}, sink, cfg, 31*time.Minute)
			gaps := sink.gaps()
			if len(gaps) != c.gaps {
				t.Fatalf("gaps %+v, want %d", gaps, c.gaps)
			}
			for i := range gaps {
				if gaps[i].Part != c.part || gaps[i].Reason != history.GapDisabled {
					t.Errorf("gap %+v", gaps[i])
				}
				if i > 0 && gaps[i].Began != gaps[i-1].Ended {
					t.Errorf("between %v and %v nothing is told", gaps[i-1].Ended, gaps[i].Began)
				}
			}
		})
	}
}

// What the ticks see gets to the detector, quiet seconds too, and so does the root
// of those who wait.
func TestUnusualLoadIsNoticed(t *testing.T) {
	srv := &server{}
	each := func(from, to time.Duration, sessions int, do func(*server)) {
		for at := from; at < to; at += time.Second {
			begin := start.Add(at)
			srv.script = append(srv.script, moment{at: at + time.Second, reasons: WokeActivity, do: func(s *server) {
				for i := range sessions {
					s.runs = append(s.runs, snapshot.Run{Second: begin, Pid: int32(100 + i), TimeUs: 1_000_000, WaitEvent: 0x0300_0000, LWLockMode: snapshot.NoLWLock})
				}
				s.seconds = []snapshot.Second{{Second: begin, SampledUs: 1_000_000, Samples: 100}}
				if do != nil {
					do(s)
				}
			}})
		}
	}
	const usual = 2 * time.Hour
	each(0, usual, 0, nil)
	each(usual, usual+time.Minute, 20, alterWaits)
	srv.names = map[snapshot.NameKind]string{snapshot.NameEventType: "Lock", snapshot.NameEvent: "relation"}
	cfg := testConfig()
	cfg.AnomalyBand = 3
	sink := &recorder{}
	play(t, srv, sink, cfg, usual+time.Minute)
	var of []string
	for _, b := range sink.batches {
		for i := range b.Anomalies {
			if a := &b.Anomalies[i]; a.Notify {
				of = append(of, fmt.Sprintf("%s %s since %v behind %d", a.WaitEventType, a.LeadingEvent, a.StartedAt.Sub(start), a.RootPid))
			}
		}
	}
	if want := fmt.Sprintf("Lock Lock:relation since %v behind %d", usual, srv.holders[0].Pid); len(of) != 1 || of[0] != want {
		t.Errorf("anomalies %q, want %q", of, want)
	}
}

// Databases and roles without end: asked for again, rather than kept.
func TestOwnersAreBounded(t *testing.T) {
	srv := &server{script: []moment{{at: 500 * time.Millisecond, reasons: WokeActivity, do: func(s *server) {
		for i := range 3 * maxOwners {
			s.runs = append(s.runs, snapshot.Run{Second: start, Pid: 1, TimeUs: 1, LWLockMode: snapshot.NoLWLock, Database: uint32(i % 7), Role: uint32(i)})
		}
	}}}}
	s := play(t, srv, &recorder{}, testConfig(), time.Second)
	if got := len(s.load.roles); got == 0 || got > maxOwners {
		t.Errorf("%d owners remembered, want at most %d", got, maxOwners)
	}
}
