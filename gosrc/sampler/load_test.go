package sampler

import (
	"fmt"
	"slices"
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
		{"nothing", false, false, history.PartAll, 3}, // before each heartbeat
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

// The relations of pages are looked up while they are there, each once; a page
// that was not found, and one that we waited for ourselves, have none.
func TestFilesOfPagesAreAskedForOnce(t *testing.T) {
	page := func(pid int32, file, block uint32) snapshot.Run {
		return snapshot.Run{Pid: pid, Flags: snapshot.RunPage, TimeUs: 1000, Target: snapshot.Target{Kind: snapshot.TargetPage, Tablespace: 1663, Database: 5, Relfile: file, Block: block}}
	}
	seen := func(runs ...snapshot.Run) func(*server) {
		return func(s *server) {
			s.runs = runs
			s.seconds = []snapshot.Second{{SampledUs: 1_000_000, Samples: 100}}
		}
	}
	srv := &server{script: []moment{
		{at: time.Second, do: seen(page(1, 10, 0), page(2, 10, 1), page(2, 11, 0), page(ourPid, 12, 0)), reasons: WokeActivity},
		{at: 2 * time.Second, do: seen(page(1, 10, 0), snapshot.Run{Flags: snapshot.RunPage, TimeUs: 1, Target: snapshot.Target{Kind: snapshot.TargetUnknown}}), reasons: WokeActivity},
	}}
	cfg := testConfig()
	cfg.TrackLoad, cfg.TrackPages = true, true
	sink := &recorder{}
	play(t, srv, sink, cfg, 4*time.Second)

	want := []snapshot.File{{Tablespace: 1663, Database: 5, Relfile: 10}, {Tablespace: 1663, Database: 5, Relfile: 11}}
	if !slices.Equal(sink.files, want) {
		t.Errorf("asked for %+v, want %+v", sink.files, want)
	}
	var pages, found int
	for _, b := range sink.batches {
		for _, s := range b.Seconds {
			for _, p := range s.Pages {
				pages++
				if p.Found {
					found++
				}
			}
		}
	}
	if pages != 5 || found != 4 {
		t.Errorf("%d pages were told, %d of them found; want 5 and 4", pages, found)
	}
}

func TestWhatIsTracked(t *testing.T) {
	for _, c := range []struct {
		name                 string
		load, lwlocks, pages bool
		want                 Track
	}{
		{"nothing of load", false, true, true, TrackLocks},
		{"load alone", true, false, false, TrackLocks | TrackLoad},
		{"LWLocks", true, true, false, TrackLocks | TrackLoad | TrackLWLocks},
		{"pages", true, false, true, TrackLocks | TrackLoad | TrackPages},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig()
			cfg.TrackLoad, cfg.TrackLWLocks, cfg.TrackPages = c.load, c.lwlocks, c.pages
			s := Sampler{o: Options{Config: cfg}}
			if got := s.track(); got != c.want {
				t.Errorf("%#x, want %#x", got, c.want)
			}
		})
	}
}

// Who is seen all the time may be renamed.
func TestOwnersAreAskedForAgain(t *testing.T) {
	const length = 3*ownersEvery + 5*time.Second
	srv := &server{}
	for at := time.Duration(0); at < length; at += time.Second {
		begin := start.Add(at)
		srv.script = append(srv.script, moment{at: at + time.Second, reasons: WokeActivity, do: func(s *server) {
			s.runs = []snapshot.Run{
				{Second: begin, Pid: 1, TimeUs: 1_000_000, LWLockMode: snapshot.NoLWLock, Database: 5, Role: 10},
				{Second: begin, Pid: 2, TimeUs: 1_000_000, LWLockMode: snapshot.NoLWLock, Database: 5, Role: 10}}
			s.seconds = []snapshot.Second{{Second: begin, SampledUs: 1_000_000, Samples: 100}}
		}})
	}
	sink := &recorder{}
	play(t, srv, sink, testConfig(), length)
	asked := slices.DeleteFunc(sink.owners, func(o owner) bool { return o != owner{5, 10} })
	if len(asked) != 4 {
		t.Errorf("names were asked for %d times in %v, want at first and then every %v", len(asked), length, ownersEvery)
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
