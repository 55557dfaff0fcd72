package anomaly

import (
	"math"
	"slices"
	"strings"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

const (
	// levelBuckets is the window of the expected load: 10 minutes. Longer lags
	// further behind a load that swings, shorter takes an incident that grows
	// slowly for usual.
	levelBuckets = 60
	// settle is how many of them make an expectation.
	settle = 6

	// With fewer than sure of them, the expectation is as uncertain as the buckets
	// themselves, which makes differences larger by so much.
	sure   = 30
	unsure = math.Sqrt2

	// driftSteps levels, one every 10 minutes: how the level moves. A day, and the
	// 6 hours that an anomaly may last, so that its own time of yesterday is there.
	driftSteps = 186
	// hourSteps of them make an hour.
	hourSteps = 6
	// driftPairs is how many comparisons make a drift.
	driftPairs = 18
	// driftRise is the part of them that it covers.
	driftRise = 0.95

	// maxEvents bounds the events counted during one anomaly; what comes later
	// does not lead.
	maxEvents = 64
)

// run is an unbroken time above or below.
type run struct {
	seconds int
	length  time.Duration
	area    float64 // sessions above the limit times seconds
}

func (r *run) add(d time.Duration, above float64) {
	r.seconds++
	r.length += d
	r.area += above * d.Seconds()
}

func (r *run) over(least time.Duration) bool {
	return r.seconds >= confirmSeconds && r.length >= least
}

// ring keeps the last values, as many as its buffer has room for.
type ring struct{ n, next int }

func (r *ring) add(buf []float32, v float32) {
	buf[r.next] = v
	r.next = (r.next + 1) % len(buf)
	r.n = min(r.n+1, len(buf))
}

// at returns the k-th value, oldest first.
func (r *ring) at(buf []float32, k int) float32 {
	return buf[(r.next-r.n+k+len(buf))%len(buf)]
}

// series is what is known of one.
type series struct {
	level      ring
	levels     [levelBuckets]float32
	spread     spread
	history    ring // of levels, NaN: not known
	histories  [driftSteps]float32
	late       ring // the last buckets, also while it is open
	lates      [settle]float32
	expected   float64 // median of the level
	hour       float64 // mean of the last hour's
	deviation  float64 // of the spread
	excess     float64 // of the last second
	above      run
	below      run
	open       bool
	told       bool
	opened     int64 // clock of the detector
	startedAt  snapshot.Micros
	detectedAt snapshot.Micros
	calmAt     snapshot.Micros // begin of below
	endedAt    snapshot.Micros // of the last one, 0 when what came since is not known to follow it
	frozen     float64         // expected when it started
	allowed    float64         // what drift said at allowedAt, a time of the detector's clock
	allowedAt  int64
	band       float64
	peak       float64
	events     []eventTime // kept from one to the next
	root       int32       // that most seconds named, by majority vote
	votes      int
}

// eventTime is the time spent on one event.
type eventTime struct {
	kind, name string
	time       time.Duration
}

// ready reports whether it is known what is usual.
func (s *series) ready() bool { return s.spread.total >= warmUp && s.level.n >= settle }

// learn takes in one bucket; nothing of it while an anomaly is open, or seems
// to begin.
func (s *series) learn(v float64) {
	s.late.add(s.lates[:], float32(v))
	if s.open || s.above.seconds > 0 {
		return
	}
	if s.level.n >= settle {
		s.spread.add(math.Abs(v-s.expected) / s.scale())
		s.deviation = s.spread.deviation()
	}
	s.level.add(s.levels[:], float32(v))
	s.expect()
}

// expect brings expected up to date.
func (s *series) expect() {
	s.expected = 0
	if s.level.n == 0 {
		return
	}
	var sorted [levelBuckets]float32
	n := copy(sorted[:], s.levels[:s.level.n])
	slices.Sort(sorted[:n])
	s.expected = float64(sorted[(n-1)/2]+sorted[n/2]) / 2
}

// limit is up to where the load is usual.
func (s *series) limit(band float64) float64 {
	spread := s.deviation
	if s.level.n < sure {
		spread *= unsure
	}
	width := spread * s.scale()
	skew := band * spread * spread / 4 // times band: the square of what the root varies by
	return s.expected + band*max(width+skew, leastSessions, leastPart*s.expected)
}

// scale is what differences are measured in: the root of the load, since
// sessions that come and go at random vary with that. Of the load of the last
// hour, when that is more: one that swings within the hour rises fastest from
// below.
func (s *series) scale() float64 { return math.Sqrt(max(s.expected, s.hour, 1)) }

// stale has the level learnt anew.
func (s *series) stale() {
	if s.open {
		return // its band stands
	}
	s.level = ring{}
	s.expect()
}

// rebase makes v the level.
func (s *series) rebase(v float64) {
	s.level = ring{}
	for range settle {
		s.level.add(s.levels[:], float32(v))
	}
	s.expect()
}

// lately is the median of the last minute, or mean when that is not known.
func (s *series) lately(mean float64) float64 {
	if s.late.n < settle {
		return mean
	}
	sorted := s.lates
	slices.Sort(sorted[:])
	return float64(sorted[settle/2])
}

// drifted notes the level each time when as much time has passed as it is
// made of.
func (s *series) drifted(known bool) {
	v := float32(math.NaN())
	if known && !s.open && s.level.n >= settle {
		v = float32(s.expected)
	}
	s.history.add(s.histories[:], v)
	s.hour = s.lastHour()
}

// lastHour is the mean of the levels noted in it.
func (s *series) lastHour() float64 {
	sum, n := 0.0, 0
	for k := max(s.history.n-hourSteps, 0); k < s.history.n; k++ {
		if v := s.history.at(s.histories[:], k); v == v { // not NaN
			sum += float64(v)
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// drift is by how much the level usually rises, at most, in so many buckets.
func (s *series) drift(buckets int64) float64 {
	step := int(buckets / levelBuckets)
	part := float64(buckets%levelBuckets) / levelBuckets
	low := 0.0
	if step > 0 {
		low = s.rise(step)
	}
	return low + part*(s.rise(step+1)-low)
}

func (s *series) rise(step int) float64 {
	var rises [driftSteps]float32
	n := 0
	for k := step; k < s.history.n; k++ {
		was, is := s.history.at(s.histories[:], k-step), s.history.at(s.histories[:], k)
		if was == was && is == is { // not NaN
			rises[n] = is - was
			n++
		}
	}
	if n < driftPairs {
		return 0
	}
	slices.Sort(rises[:n])
	return max(float64(rises[int(driftRise*float64(n-1))]), 0)
}

// begin makes ready for an anomaly that may come.
func (s *series) begin(at snapshot.Micros) {
	s.forget()
	s.startedAt = at
}

// forget lets go of what was noted of the last one.
func (s *series) forget() {
	clear(s.events) // lets go of the names
	s.events = s.events[:0]
	s.peak, s.root, s.votes = 0, 0, 0
}

// follow notes what a second above the limit is made of.
func (s *series) follow(i int, mean float64, o Observation) {
	s.peak = max(s.peak, mean)
	for k := range o.Second.Loads {
		l := &o.Second.Loads[k]
		if counts(l) && (i == total || seriesOf(l.EventType) == i) {
			s.spend(l)
		}
	}
	if (i == seriesLock || i == total) && o.Root != 0 {
		switch {
		case s.votes == 0:
			s.root, s.votes = o.Root, 1
		case s.root == o.Root:
			s.votes++
		default:
			s.votes--
		}
	}
}

func (s *series) spend(l *history.Load) {
	for k := range s.events {
		if e := &s.events[k]; e.name == l.Event && e.kind == l.EventType {
			e.time += l.Time
			return
		}
	}
	if len(s.events) < maxEvents {
		s.events = append(s.events, eventTime{kind: l.EventType, name: l.Event, time: l.Time})
	}
}

// leading returns the event with the most time.
func (s *series) leading() (most eventTime) {
	for _, e := range s.events {
		if e.time > most.time {
			most = e
		}
	}
	return most
}

// anomaly describes the one that is open.
func (s *series) anomaly(i int) history.Anomaly {
	a := history.Anomaly{WaitEventType: types[i], StartedAt: s.startedAt, DetectedAt: s.detectedAt,
		Observed: s.peak, Expected: s.frozen, Band: s.band, Told: s.told}
	if e := s.leading(); e.time > 0 {
		a.LeadingEvent = strings.ToValidUTF8(e.kind+":"+e.name, "?")
		if e.kind == "Lock" {
			a.RootPid = s.root
		}
	}
	return a
}
