package sampler

import (
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/load"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
)

const keyActivity = "probe activity"

// maxSeconds bounds the seconds that wait for a flush; with a longer flush
// period they are flushed sooner.
const maxSeconds = 120

// loadMeter is load as far as it goes on.
type loadMeter struct {
	meter    *load.Meter
	activity Activity         // made larger by the probe
	seconds  []history.Second // not yet flushed
	roles    map[owner]Monotonic
	files    map[snapshot.File]struct{}
}

// owner is whose names were asked for, and when.
type owner struct{ database, role uint32 }

// ownersEvery is how often names are asked for again: what was renamed is told by
// its old name for so long.
const ownersEvery = 30 * time.Second

// maxOwners bounds the owners remembered; beyond it their names are asked for again.
const maxOwners = 10_000

func newLoadMeter(o Options) loadMeter {
	return loadMeter{meter: load.New(o.Probes), roles: make(map[owner]Monotonic), files: make(map[snapshot.File]struct{}),
		activity: Activity{Runs: make([]snapshot.Run, 0, 4*o.MaxProcesses), Seconds: make([]snapshot.Second, 0, 8)}}
}

// tracksLoad reports whether load is sampled.
func (s *Sampler) tracksLoad() bool { return s.o.Config.Enabled && s.o.Config.TrackLoad }

// readLoad adds up what every process was doing; final ends the second that
// goes on.
func (s *Sampler) readLoad(final bool) {
	if s.wake.Reasons&WokeActivity == 0 && !final {
		return
	}
	l := &s.load
	l.activity.Ours = s.o.Sink.Ours(l.activity.Ours[:0])
	if err := s.o.Probes.Activity(final, &l.activity); err != nil {
		s.errors++
		s.o.Log.Add(report.Message{Level: report.Warning, Key: keyActivity, Text: "could not read what sessions do: " + err.Error(), Hint: hintProbeHasFailed})
		return
	}
	s.o.Log.Over(keyActivity)
	s.readFastPath(final)
	s.errors += int64(l.activity.Lost)
	runs := l.activity.Runs
	for i := range l.activity.Seconds {
		second := &l.activity.Seconds[i]
		n := 0
		for n < len(runs) && runs[n].Second == second.Second {
			s.addRun(&runs[n])
			n++
		}
		runs = runs[n:]
		paths := s.closeFastPath(second.Second, l.meter.Active())
		if len(paths) > 0 {
			l.meter.Insist()
		}
		done, ok := l.meter.Close(second)
		if done.Sampled > 0 {
			s.observe(&done, s.root)
		}
		if ok {
			if len(paths) > 0 {
				done.Slots, done.FastPath = s.fastPath.meter.Slots(), paths
			}
			l.seconds = append(l.seconds, done)
			s.live.second(&done, s.wake.NowNs)
		}
	}
	for i := range runs { // of the second that goes on
		s.addRun(&runs[i])
	}
	s.readTexts()
}

func (s *Sampler) addRun(r *snapshot.Run) {
	l := &s.load
	if s.o.Sink.IsOurs(r.Pid) {
		l.meter.AddOwn(r)
		return
	}
	l.meter.Add(r)
	if r.QueryID != 0 {
		s.texts.see(r)
	}
	s.wantFile(&r.Target)
	s.wantOwner(r.Database, r.Role)
}

// wantOwner has the names of database and role looked up while they exist.
func (s *Sampler) wantOwner(database, role uint32) {
	l := &s.load
	o := owner{database, role}
	asked, ok := l.roles[o]
	s.live.strangers = s.live.strangers || !ok
	if !ok || s.wake.NowNs-asked >= Monotonic(ownersEvery) {
		if len(l.roles) >= maxOwners {
			clear(l.roles)
		}
		l.roles[o] = s.wake.NowNs
		s.o.Sink.WantSession(&snapshot.Session{Database: database, Role: role})
	}
}

// wantFile has the relation of a page looked up, once, while it is there.
func (s *Sampler) wantFile(t *snapshot.Target) {
	if t.Kind != snapshot.TargetPage {
		return
	}
	f := snapshot.File{Tablespace: t.Tablespace, Database: t.Database, Relfile: t.Relfile}
	if _, ok := s.load.files[f]; ok {
		return
	}
	if len(s.load.files) >= maxOwners {
		clear(s.load.files)
	}
	s.load.files[f] = struct{}{}
	s.o.Sink.WantFile(f)
}
