package anomaly

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

const t0 = snapshot.Micros(800_000_000_000_000)

var seedFlag = flag.Uint64("seed", 0, "seed of the random load, 0 for a new one")

// event is what a test looks at: times since the beginning.
type event struct {
	history.Anomaly
	started, detected, ended time.Duration // ended -1 while open
}

// world feeds a detector with made-up load, second by second.
type world struct {
	t      *testing.T
	d      *Detector
	r      *rand.Rand
	now    time.Duration // virtual time since t0
	shift  time.Duration // by which the clock was set
	sample time.Duration // between samples of a second, 0: 1 s
	root   int32

	// aas of an event at a moment, before noise; and episodes on top.
	usual    map[history.Load]func(time.Duration) float64
	episodes []episode
	steady   bool                 // no noise
	stay     float64              // seconds that a session stays in its wait; 0: 1 s, each second is new
	there    map[history.Load]int // sessions, with stay

	starts []event
	ends   []event
}

type episode struct {
	from, to time.Duration
	load     history.Load
	aas      float64
}

var (
	content = history.Load{EventType: "LWLock", Event: "BufferContent"}
	walSync = history.Load{EventType: "IO", Event: "WALSync"}
	rowLock = history.Load{EventType: "Lock", Event: "transactionid"}
	cpu     = history.Load{EventType: history.CPU, Event: history.CPU}
	idle    = history.Load{EventType: "Activity", Event: "WalWriterMain"}
)

func newWorld(t *testing.T) *world {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	return &world{t: t, d: New(Config{Band: 3}), r: rand.New(rand.NewPCG(seed, 5)), usual: map[history.Load]func(time.Duration) float64{}, there: map[history.Load]int{}}
}

// fork returns a world that goes on from here.
func (w *world) fork() *world {
	f := *w
	d := *w.d
	for i := range d.series {
		d.series[i].events = nil
	}
	f.d, f.episodes, f.there = &d, nil, map[history.Load]int{}
	return &f
}

// sine swings by amplitude around mean.
func sine(mean, amplitude float64, period time.Duration) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		return mean + amplitude*math.Sin(2*math.Pi*float64(at)/float64(period))
	}
}

func constant(aas float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return aas }
}

// busy is a server whose load swings, with some of everything.
func (w *world) busy(period time.Duration) *world {
	w.usual[content] = sine(5, 4, period)
	w.usual[walSync] = sine(4, 3, period)
	w.usual[rowLock] = sine(2, 1, period)
	w.usual[cpu] = sine(6, 5, period)
	w.usual[idle] = constant(4)
	return w
}

// sessions returns how many there are now, of mean on average.
func (w *world) sessions(l history.Load, mean float64) float64 {
	if w.stay == 0 {
		return w.poisson(mean)
	}
	left := int(w.poisson(mean / w.stay))
	for range w.there[l] {
		if w.r.Float64() >= 1/w.stay {
			left++
		}
	}
	w.there[l] = left
	return float64(left)
}

func (w *world) poisson(mean float64) float64 {
	if w.steady {
		return mean
	}
	n, p, limit := 0, w.r.Float64(), math.Exp(-mean)
	for p > limit {
		n++
		p *= w.r.Float64()
	}
	return float64(n)
}

// run goes on until to.
func (w *world) run(to time.Duration) {
	w.t.Helper()
	loads := make([]history.Load, 0, 8)
	step := max(w.sample, time.Second)
	for ; w.now < to; w.now += step {
		loads = loads[:0]
		for _, l := range []history.Load{content, walSync, rowLock, cpu, idle} {
			aas := 0.0
			if f := w.usual[l]; f != nil {
				aas = w.sessions(l, f(w.now))
			}
			for _, e := range w.episodes {
				if e.load == l && w.now >= e.from && w.now < e.to {
					aas += e.aas
				}
			}
			if aas > 0 {
				l.Time = time.Duration(aas * float64(step))
				loads = append(loads, l)
			}
		}
		w.second(history.Second{At: t0.Add(w.now + w.shift), Sampled: step, Loads: loads})
	}
}

func (w *world) second(sec history.Second) {
	for _, e := range w.d.Second(Observation{Second: &sec, Root: w.root}) {
		x := event{Anomaly: e.Anomaly, started: e.StartedAt.Sub(t0), detected: e.DetectedAt.Sub(t0), ended: -1}
		if e.Started() {
			w.starts = append(w.starts, x)
		} else {
			x.ended = e.EndedAt.Sub(t0)
			w.ends = append(w.ends, x)
		}
	}
}

func (w *world) episode(from, length time.Duration, l history.Load, aas float64) {
	w.episodes = append(w.episodes, episode{from, from + length, l, aas})
}

// of returns those of one wait event type.
func of(events []event, kind string) (out []event) {
	for _, e := range events {
		if e.WaitEventType == kind {
			out = append(out, e)
		}
	}
	return out
}

// within fails unless at is from from to to.
func within(t *testing.T, what string, at, from, to time.Duration) {
	t.Helper()
	if at < from || at > to {
		t.Errorf("%s at %v, want from %v to %v", what, at, from, to)
	}
}

const (
	day = 24 * time.Hour
	// noisy is how far a start may be put back by seconds that were above the limit by chance.
	noisy = 5 * time.Second
)

func TestSwingsAreUsual(t *testing.T) {
	tests := []struct {
		name   string
		period time.Duration
		length time.Duration
		stay   float64
	}{
		{"a day", day, 2 * day, 0},
		{"an hour", time.Hour, day, 0},
		{"six hours", 6 * time.Hour, day, 0},
		{"a day, waits of 3 s", day, day, 3},
		{"an hour, waits of 3 s", time.Hour, day, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t).busy(tt.period)
			w.stay = tt.stay
			w.run(tt.length)
			// Waits that last vary most: of 61 such days one had one start by chance.
			if tt.stay > 0 && len(w.starts) == 1 {
				return
			}
			for _, e := range w.starts {
				t.Errorf("%q out of its band at %v: %.1f, expected %.1f, up to %.1f", e.WaitEventType, e.started, e.Observed, e.Expected, e.Band)
			}
		})
	}
}

// An episode at any phase of the swing, after a day of it.
func TestEpisodeAtAnyPhase(t *testing.T) {
	for _, period := range []time.Duration{day, time.Hour} {
		usual := newWorld(t).busy(period)
		for phase := range 8 {
			from := day + time.Duration(phase)*period/8
			usual.run(from)
			w := usual.fork()
			w.episode(from, 5*time.Minute, content, 40)
			w.run(from + 7*time.Minute)
			check(t, w, from, from+5*time.Minute)
		}
	}
}

// check expects one anomaly of content waits, and of the total.
func check(t *testing.T, w *world, from, to time.Duration) {
	t.Helper()
	for _, kind := range []string{"LWLock", ""} {
		starts, ends := of(w.starts, kind), of(w.ends, kind)
		if len(starts) != 1 || len(ends) != 1 {
			t.Fatalf("%q from %v: %d starts, %d ends, want one of each: %+v", kind, from, len(starts), len(ends), w.starts)
		}
		e := ends[0]
		within(t, "start", e.started, from-noisy, from+10*time.Second)
		within(t, "detection", e.detected, from, from+30*time.Second)
		within(t, "end", e.ended, to, to+time.Minute)
		if e.LeadingEvent != "LWLock:BufferContent" || e.Observed < 40 || e.Observed > 75 || e.End != history.EndNormal {
			t.Errorf("%q: %+v", kind, e)
		}
	}
	if len(w.starts) != 2 {
		t.Errorf("%d anomalies, want content waits and total: %+v", len(w.starts), w.starts)
	}
}

func TestTwoEpisodesCloseBy(t *testing.T) {
	w := newWorld(t).busy(day)
	const length, between = 8 * time.Minute, time.Minute // most of what the level is made of
	w.episode(day, length, content, 30)
	w.episode(day+length+between, length, content, 30)
	w.run(day + 2*length + 3*time.Minute)
	starts, ends := of(w.starts, "LWLock"), of(w.ends, "LWLock")
	if len(starts) != 2 || len(ends) != 2 {
		t.Fatalf("%d starts, %d ends, want two", len(starts), len(ends))
	}
	within(t, "first end", ends[0].ended, day+length, day+length+between)
	within(t, "second start", starts[1].started, day+length+between-noisy, day+length+between+10*time.Second)
	if math.Abs(starts[0].Band-starts[1].Band) > 2 {
		t.Errorf("bands %.1f and %.1f: the first one has moved it", starts[0].Band, starts[1].Band)
	}
}

// After three hours the level of before is no more.
func TestLevelAfterALongIncident(t *testing.T) {
	w := newWorld(t)
	w.steady = true
	w.usual[content] = sine(10, 8, day)
	from := 2*day - 90*time.Minute // rises fastest, and has been seen to
	w.episode(from, 3*time.Hour, content, 40)
	w.run(from + 3*time.Hour + time.Minute)
	if len(of(w.ends, "LWLock")) != 1 {
		t.Fatalf("%+v", w.ends)
	}
	if is, want := w.d.series[2].expected, w.usual[content](w.now); math.Abs(is-want) > 0.5 {
		t.Errorf("%.1f are expected where %.1f are usual", is, want)
	}
}

func TestLimit(t *testing.T) {
	tests := []struct {
		name                      string
		expected, hour, deviation float64
		buckets                   int
		want                      float64
	}{
		{"nothing known of its spread", 0, 0, 0, levelBuckets, 3},
		{"a part of it", 100, 0, 0, levelBuckets, 125},
		{"by the root, and the square", 16, 0, 1, levelBuckets, 16 + 3*4 + 9.0/4},
		{"by the hour, when it was more", 4, 16, 1, levelBuckets, 4 + 3*4 + 9.0/4},
		{"an uncertain level", 16, 0, 1 / math.Sqrt2, settle, 16 + 3*4 + 9.0/4},
	}
	for _, tt := range tests {
		s := series{expected: tt.expected, hour: tt.hour, deviation: tt.deviation}
		s.level.n = tt.buckets
		if got := s.limit(3); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %.3f, want %.3f", tt.name, got, tt.want)
		}
	}
}

// Just above the limit takes longer.
func TestHowFarDecidesHowSoon(t *testing.T) {
	for aas, want := range map[float64]time.Duration{3.25: 88 * time.Second, 3.5: 48 * time.Second, 4: 29 * time.Second, 30: 20 * time.Second} {
		w := newWorld(t)
		w.steady = true
		w.episode(2*time.Hour, 10*time.Minute, rowLock, aas)
		w.run(2*time.Hour + 10*time.Minute)
		s := of(w.starts, "Lock")
		if len(s) != 1 {
			t.Fatalf("%g sessions: %+v", aas, s)
		}
		within(t, "detection", s[0].detected-2*time.Hour, want-2*time.Second, want+2*time.Second)
	}
}

// What hovers about the limit is one anomaly, not many.
func TestItEndsWellBelowTheLimit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rest  float64 // after 2 minutes, of a limit of 3
		lasts bool
	}{{"a little below", 2.5, true}, {"well below", 2, false}} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.steady = true
			w.episode(2*time.Hour, 2*time.Minute, rowLock, 20)
			w.episode(2*time.Hour+2*time.Minute, 5*time.Minute, rowLock, tt.rest)
			w.run(2*time.Hour + 7*time.Minute)
			if lasts := len(of(w.ends, "Lock")) == 0; lasts != tt.lasts {
				t.Errorf("goes on: %t, want %t", lasts, tt.lasts)
			}
		})
	}
}

// At any phase: the swing goes on while the band stands.
func TestThreeHoursStayOneAndTeachNothing(t *testing.T) {
	usual := newWorld(t).busy(day)
	for phase := range 8 {
		from := day + time.Duration(phase)*day/8
		usual.run(from)
		w := usual.fork()
		w.episode(from, 3*time.Hour, content, 30)
		w.run(from + 3*time.Hour - time.Second)
		if s, e := of(w.starts, "LWLock"), of(w.ends, "LWLock"); len(s) != 1 || len(e) != 0 {
			t.Fatalf("phase %d: %d starts, %d ends before the end", phase, len(s), len(e))
		}
		w.episode(from+4*time.Hour, 5*time.Minute, content, 30)
		w.run(from + 5*time.Hour)
		starts, ends := of(w.starts, "LWLock"), of(w.ends, "LWLock")
		if len(starts) != 2 || len(ends) != 2 || len(of(w.starts, "")) != 2 {
			t.Fatalf("phase %d: %d starts, %d ends, want two; %+v", phase, len(starts), len(ends), w.starts)
		}
		// The usual load may be above the lower limit by chance: of 1 200 ends half came
		// within 8 s, 2 % after 20 s, the last after 50 s.
		within(t, "end", ends[0].ended, from+3*time.Hour, from+3*time.Hour+5*time.Minute)
		within(t, "next start", starts[1].started, from+4*time.Hour-noisy, from+4*time.Hour+10*time.Second)
		if width := starts[1].Band - starts[1].Expected; width > 8 {
			t.Errorf("phase %d: the band is %.1f wide after it", phase, width)
		}
	}
}

func TestNewLevel(t *testing.T) {
	w := newWorld(t)
	w.usual[walSync] = constant(5)
	w.episode(3*time.Hour, day, walSync, 20)
	w.run(3*time.Hour + 5*time.Hour + 59*time.Minute)
	if len(w.ends) != 0 {
		t.Fatalf("ended before 6 hours: %+v", w.ends)
	}
	w.run(12 * time.Hour)
	ends := of(w.ends, "IO")
	if len(w.starts) != 2 || len(ends) != 1 || ends[0].End != history.EndNewLevel {
		t.Fatalf("starts %+v ends %+v, want one of IO that ends as new level", w.starts, ends)
	}
	within(t, "end", ends[0].ended, 9*time.Hour, 9*time.Hour+time.Minute)
	// What is above that is out of the band again.
	w.episode(12*time.Hour, 5*time.Minute, walSync, 20)
	w.run(12*time.Hour + 10*time.Minute)
	if s := of(w.starts, "IO"); len(s) != 2 || math.Abs(s[1].Expected-25) > 3 {
		t.Errorf("above the new level: %+v", s)
	}
}

func TestNoAnomaly(t *testing.T) {
	tests := []struct {
		name  string
		build func(*world)
	}{
		{"idle", func(w *world) {}},
		{"idle, spike of two sessions", func(w *world) { w.episode(2*time.Hour, 90*time.Second, rowLock, 2) }},
		{"idle, ten sessions for ten seconds", func(w *world) { w.episode(2*time.Hour, 10*time.Second, rowLock, 10) }},
		{"constant high load", func(w *world) { w.usual[walSync] = constant(60) }},
		{"constant and without noise", func(w *world) { w.usual[walSync], w.steady = constant(60), true }},
		{"steady, a tenth more", func(w *world) {
			w.usual[walSync], w.steady = constant(60), true
			w.episode(2*time.Hour, time.Hour, walSync, 6)
		}},
		{"on CPU", func(w *world) { w.episode(2*time.Hour, time.Hour, cpu, 60) }},
		{"nothing to do", func(w *world) { w.episode(2*time.Hour, time.Hour, idle, 60) }},
		{"less than usual", func(w *world) {
			w.usual[walSync] = constant(30)
			w.run(2 * time.Hour)
			w.usual[walSync] = constant(2)
		}},
		{"the first hour", func(w *world) { w.episode(50*time.Minute, 9*time.Minute, rowLock, 30) }},
		{"switched off", func(w *world) {
			w.d.Configure(Config{Band: 0})
			w.episode(2*time.Hour, time.Hour, rowLock, 30)
		}},
		{"a wide band", func(w *world) {
			w.d.Configure(Config{Band: 40})
			w.episode(2*time.Hour, time.Hour, rowLock, 30)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.build(w)
			w.run(4 * time.Hour)
			if len(w.starts) != 0 {
				t.Errorf("%+v", w.starts)
			}
		})
	}
}

// What a load that is always the same would have as its band without floors.
func TestFloors(t *testing.T) {
	w := newWorld(t)
	w.usual[walSync], w.steady = constant(60), true
	w.run(2 * time.Hour)
	if l := w.d.series[3].limit(3); math.Abs(l-75) > 0.01 {
		t.Errorf("limit of a steady load of 60 is %.2f, want a quarter more", l)
	}
	if l := w.d.series[seriesLock].limit(3); l != 3 {
		t.Errorf("limit of nothing is %.2f, want 3", l)
	}
	if l := w.d.series[seriesLock].limit(5); l != 5 {
		t.Errorf("with a band of 5 it is %.2f", l)
	}
}

func TestOneIncidentIsToldOnce(t *testing.T) {
	tests := []struct {
		name string
		put  func(*world)
		told []string // types of those told
		rows int
	}{
		{"one type", func(w *world) { w.episode(2*time.Hour, 5*time.Minute, rowLock, 30) }, []string{"Lock"}, 2},
		{"two types", func(w *world) {
			w.episode(2*time.Hour, 5*time.Minute, rowLock, 30)
			w.episode(2*time.Hour, 5*time.Minute, content, 30)
		}, []string{"Lock", "LWLock"}, 3},
		{"little of each", func(w *world) {
			for _, l := range []history.Load{rowLock, content, walSync} {
				w.episode(2*time.Hour, 5*time.Minute, l, 2.5)
			}
		}, []string{""}, 1},
		{"a type beside a larger one", func(w *world) {
			w.episode(2*time.Hour, 10*time.Minute, rowLock, 30)
			w.episode(2*time.Hour+5*time.Minute, 2*time.Minute, walSync, 10)
		}, []string{"Lock", "IO"}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.steady = true
			tt.put(w)
			w.run(2*time.Hour + 15*time.Minute)
			var told []string
			for _, e := range w.starts {
				if e.Told {
					told = append(told, e.WaitEventType)
				}
			}
			if len(told) != len(tt.told) || len(w.starts) != tt.rows || len(w.ends) != tt.rows {
				t.Fatalf("told %q of %d starts and %d ends, want %q of %d", told, len(w.starts), len(w.ends), tt.told, tt.rows)
			}
			for i := range told {
				if told[i] != tt.told[i] {
					t.Errorf("told %q, want %q", told, tt.told)
				}
			}
			for _, e := range w.ends {
				for _, s := range w.starts {
					if s.WaitEventType == e.WaitEventType && s.Told != e.Told {
						t.Errorf("start of %q told: %t, end: %t", s.WaitEventType, s.Told, e.Told)
					}
				}
			}
		})
	}
}

func TestTypesHaveASeries(t *testing.T) {
	for i, kind := range types {
		if got := seriesOf(kind); got != i {
			t.Errorf("%q goes to series %d, want %d", kind, got, i)
		}
	}
	if got := seriesOf("InjectionPoint"); got != total {
		t.Errorf("a type that is not looked at goes to series %d", got)
	}
}

func TestRootOfLocks(t *testing.T) {
	w := newWorld(t)
	w.run(2 * time.Hour)
	w.root = 77 // the first seconds name another one
	w.episode(w.now, 5*time.Minute, rowLock, 20)
	w.episode(w.now, 5*time.Minute, walSync, 5)
	w.run(w.now + 3*time.Second)
	w.root = 4711
	w.run(w.now + 4*time.Minute + 50*time.Second)
	w.root = 88 // as do the last ones
	w.run(w.now + 2*time.Minute)
	for kind, want := range map[string]int32{"Lock": 4711, "": 4711, "IO": 0} {
		if e := of(w.ends, kind); len(e) != 1 || e[0].RootPid != want {
			t.Errorf("%q: %+v, want root %d", kind, e, want)
		}
	}
}

// A second that stands for a minute is not enough to say anything.
func TestLongSamplePeriod(t *testing.T) {
	w := newWorld(t)
	w.sample = time.Minute
	w.run(8 * time.Hour)
	w.episode(w.now, time.Minute, rowLock, 30)
	w.run(w.now + 10*time.Minute)
	if len(w.starts) != 0 {
		t.Errorf("by one sample: %+v", w.starts)
	}
	w.episode(w.now, 10*time.Minute, rowLock, 30)
	w.run(w.now + 20*time.Minute)
	if len(of(w.ends, "Lock")) != 1 {
		t.Errorf("ten samples: %+v", w.starts)
	}
}

func TestGapsAndClocks(t *testing.T) {
	const hours = 2 * time.Hour
	tests := []struct {
		name string
		do   func(*world) // at 2 h; an episode of locks has begun 5 min before
		end  history.AnomalyEnd
		to   time.Duration // when it ends, at the earliest; a minute is given
		more int           // anomalies of locks after it
	}{
		{"a gap of a minute", func(w *world) { w.now += time.Minute }, history.EndNormal, hours + 10*time.Minute, 0},
		{"a gap of half an hour", func(w *world) {
			w.now += 30 * time.Minute
			w.episodes[0].to = w.now + 10*time.Minute
		}, history.EndNormal, hours + 40*time.Minute, 0},
		{"over when it comes back", func(w *world) { w.now += 30 * time.Minute }, history.EndNormal, hours + 30*time.Minute, 0},
		{"a gap of two hours", func(w *world) { w.now += 2 * time.Hour }, history.EndUnknown, hours, 0},
		{"set back by an hour", func(w *world) { w.shift -= time.Hour }, history.EndNormal, 0, 0},
		{"set back by a day", func(w *world) { w.shift -= day }, history.EndNormal, 0, 0},
		{"set forward by a minute", func(w *world) { w.shift += time.Minute }, history.EndNormal, hours + 11*time.Minute, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.episode(hours-5*time.Minute, 15*time.Minute, rowLock, 20)
			w.run(hours)
			if len(of(w.starts, "Lock")) != 1 {
				t.Fatalf("did not start: %+v", w.starts)
			}
			tt.do(w)
			w.run(w.now + time.Hour)
			ends := of(w.ends, "Lock")
			if len(ends) != 1 || len(of(w.starts, "Lock")) != 1+tt.more {
				t.Fatalf("starts %+v, ends %+v", w.starts, ends)
			}
			e := ends[0]
			if e.End != tt.end || e.EndedAt < e.StartedAt {
				t.Errorf("ended as %s, %v after its start", e.End, e.EndedAt.Sub(e.StartedAt))
			}
			if tt.to != 0 {
				within(t, "end", e.ended, tt.to, tt.to+time.Minute)
			}
			// and the next one is found
			from := w.now
			w.episode(from, 5*time.Minute, rowLock, 20)
			w.run(w.now + 8*time.Minute)
			if s := of(w.starts, "Lock"); len(s) != 2+tt.more {
				t.Errorf("the next one was not found: %+v", s)
			}
		})
	}
}

// What came before a clock was set back has no place in a mean.
func TestSetBackBeginsANewMean(t *testing.T) {
	w := newWorld(t)
	w.sample = 3 * time.Second
	w.run(9 * time.Second)
	before := w.d.filled
	w.shift = -5 * time.Second
	w.run(12 * time.Second)
	if before != 3 || w.d.filled != 1 {
		t.Errorf("%d seconds in the mean, then %d; want 3 and 1", before, w.d.filled)
	}
}

func TestSpread(t *testing.T) {
	var p spread
	fill := func(n int, z float64) {
		for range n {
			p.add(z)
		}
	}
	near := func(what string, want float64) {
		t.Helper()
		if got := p.deviation() / normal; math.Abs(got-want) > 0.1*want {
			t.Errorf("%s: median %.3f, want %.3f", what, got, want)
		}
	}
	near("nothing", 0)
	fill(200, 0.01)
	near("less than counts", 0)
	fill(blockBuckets*blocks, 0.5)
	near("half", 0.5)
	if want := blockBuckets*(blocks-1) + 200%blockBuckets; p.total != want {
		t.Errorf("%d are known, want %d", p.total, want)
	}
	fill(blockBuckets*5/4, 2)
	near("noisier for half an hour", 2)
	fill(3*blockBuckets, 0.1)
	near("and calm again: the 6 hours count", 0.5)
	fill(1, 1e9)
	near("one that is far out", 0.5)
}

func TestSwitchedOffEndsWhatIsOpen(t *testing.T) {
	w := newWorld(t)
	w.episode(2*time.Hour, time.Hour, rowLock, 20)
	w.run(2*time.Hour + time.Minute)
	w.d.Configure(Config{Band: 0})
	w.run(w.now + 2*time.Second)
	if len(w.ends) != 2 || w.ends[0].End != history.EndSwitchedOff || w.d.IsOpen() {
		t.Errorf("%+v", w.ends)
	}
}

// The mean of a new one reaches back into the one before, its start does not.
func TestSwitchedOffAndOnDoesNotOverlap(t *testing.T) {
	for _, off := range []time.Duration{2 * time.Second, 5 * time.Second, 9 * time.Second, time.Minute} {
		t.Run("off for "+off.String(), func(t *testing.T) {
			w := newWorld(t)
			w.steady = true
			w.episode(2*time.Hour, 10*time.Minute, rowLock, 20)
			w.run(2*time.Hour + time.Minute)
			w.d.Configure(Config{Band: 0})
			w.run(w.now + off)
			w.d.Configure(Config{Band: 3})
			w.run(w.now + time.Hour)
			for _, kind := range []string{"", "Lock"} {
				starts, ends := of(w.starts, kind), of(w.ends, kind)
				if len(starts) != 2 || len(ends) != 2 {
					t.Fatalf("starts %+v, ends %+v", starts, ends)
				}
				if starts[1].started < ends[0].ended {
					t.Errorf("%q began %v before the end of the one before", kind, ends[0].ended-starts[1].started)
				}
			}
		})
	}
}

func TestOpenTellsWhatIsOpen(t *testing.T) {
	w := newWorld(t)
	w.run(2 * time.Hour)
	if w.d.IsOpen() || len(w.d.Open(nil)) != 0 || !w.d.Learnt() {
		t.Error("something is open on an idle server")
	}
	w.episode(w.now, time.Hour, rowLock, 20)
	w.run(w.now + time.Minute)
	open := w.d.Open(nil)
	if len(open) != 2 || open[1].WaitEventType != "Lock" || open[1].EndedAt != 0 || open[1].Observed < 20 || open[1].LeadingEvent != "Lock:transactionid" {
		t.Errorf("%+v", open)
	}
}

func TestEventsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.run(2 * time.Hour)
	for range 120 {
		sec := history.Second{At: t0.Add(w.now), Sampled: time.Second}
		for k := range 300 {
			sec.Loads = append(sec.Loads, history.Load{EventType: "Extension", Event: string(rune('a' + k)), Time: time.Second})
		}
		w.second(sec)
		w.now += time.Second
	}
	for i := range w.d.series {
		if n := len(w.d.series[i].events); n > maxEvents {
			t.Errorf("%d events noted", n)
		}
	}
	if len(of(w.starts, "Extension")) != 1 {
		t.Errorf("%+v", w.starts)
	}
}

func TestSize(t *testing.T) {
	if n := unsafe.Sizeof(Detector{}); n > 21_000 {
		t.Errorf("a detector takes %d bytes, doc.go says 21 kB", n)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	for _, name := range []string{"quiet", "busy", "open"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.usual[walSync] = constant(5)
			w.run(2 * time.Hour)
			sec := history.Second{Sampled: time.Second}
			if name != "quiet" {
				sec.Loads = []history.Load{{EventType: "IO", Event: "WALSync", Time: 5 * time.Second}}
			}
			if name == "open" {
				w.episode(w.now, time.Minute, walSync, 50)
				w.run(w.now + time.Minute)
				sec.Loads[0].Time = time.Minute
			}
			n := testing.AllocsPerRun(2000, func() {
				sec.At = t0.Add(w.now)
				w.now += time.Second
				w.d.Second(Observation{Second: &sec})
			})
			if n != 0 {
				t.Errorf("%.2f allocations a second", n)
			}
		})
	}
}

func BenchmarkSecond(b *testing.B) {
	d := New(Config{Band: 3})
	sec := history.Second{Sampled: time.Second, Loads: []history.Load{
		{EventType: "IO", Event: "WALSync", Time: 5 * time.Second}, {EventType: "LWLock", Event: "WALWrite", Time: 3 * time.Second}, {EventType: history.CPU, Event: history.CPU, Time: time.Second}}}
	for i := range b.N {
		sec.At = t0.Add(time.Duration(i) * time.Second)
		d.Second(Observation{Second: &sec})
	}
}
