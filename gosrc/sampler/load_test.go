package sampler

import (
	"slices"
	"testing"
	"time"

	"pg_lock_history/gosrc/snapshot"
)

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
