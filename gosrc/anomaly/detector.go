package anomaly

import (
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

const (
	// meanOver is the length of the short mean, and of a bucket. Shorter is
	// noisier, longer tells later.
	meanOver   = 10 * time.Second
	meanSlots  = int(meanOver / time.Second)
	bucketSize = snapshot.Micros(meanOver / time.Microsecond)
	// meanLeast is how much of it must have been sampled.
	meanLeast = meanOver / 2

	// confirm is how long the mean must be above the limit for a start, or
	// below for an end, and confirmSeconds in how many samples of a second: with
	// a long sample_period a single one stands for a minute. A start is told
	// within half a minute, and a spike of 10 s is none. For a start it must have
	// been above by one spread more on average, or for longer: by half a spread
	// for 40 s. What is random seldom stays far out; what is not, does.
	confirm        = 20 * time.Second
	confirmSeconds = 5

	// yield is how much longer that is for a start of the total, so that it is the
	// type that is told, when one explains it.
	yield = 3 * time.Second

	// hysteresis is the part of the width of the band that an open anomaly must
	// come back into. Smaller: it ends later, larger: in pieces.
	hysteresis = 0.7

	// acceptAfter is when what was an anomaly is usual, in buckets: 6 hours.
	acceptAfter = 6 * 360
	// bridge is how long nobody may look at an open anomaly.
	bridge = time.Hour
	// staleAfter is the gap after which the level is learnt anew.
	staleAfter = levelBuckets * meanOver

	// warmUp is what has to be learnt before anything is detected, in buckets.
	warmUp = 360

	// The least that the spread counts for: one session, and a part of the
	// expected ones.
	leastSessions = 1.0
	leastPart     = 1.0 / 12
)

// types are the wait event types looked at, by number of their series; 0 is
// the total. The order is that of State. Server version 19 has Buffer for what was
// BufferPin, and takes the waits for the content of pages there that were LWLocks.
var types = [...]string{"", "Lock", "LWLock", "IO", "IPC", "Client", "Timeout", "BufferPin", "Extension", "Buffer"}

const (
	total      = 0
	seriesLock = 1
	allSeries  = len(types)
)

func seriesOf(eventType string) int {
	switch eventType { // by what is seen most
	case "LWLock":
		return 2
	case "Lock":
		return seriesLock
	case "IO":
		return 3
	case "Client":
		return 5
	case "IPC":
		return 4
	case "Timeout":
		return 6
	case "BufferPin":
		return 7
	case "Extension":
		return 8
	case "Buffer":
		return 9
	default:
		return total
	}
}

// counts reports whether l is load that is looked at: not on CPU, and not a
// process that waits for something to do.
func counts(l *history.Load) bool { return l.EventType != history.CPU && l.EventType != "Activity" }

// Config is what a detector goes by.
type Config struct {
	Band float64 // width of the band in spreads; 0: nothing is detected, only learnt
}

// Observation is one second.
type Observation struct {
	Second *history.Second
	Root   int32 // pid of the root blocker of most waits for locks, 0 for none
}

// Event says that an anomaly has started (EndedAt is 0) or ended.
type Event struct {
	history.Anomaly
}

// Started reports whether it is the start.
func (e *Event) Started() bool { return e.EndedAt == 0 }

// second is what is kept of one, for the mean.
type second struct {
	at      snapshot.Micros
	sampled time.Duration
	time    [allSeries]time.Duration
}

// Detector is used by one thread.
type Detector struct {
	band  float64
	first snapshot.Micros // of this life, 0 before
	last  snapshot.Micros // begin of the last second
	reach time.Duration   // and how much it stands for

	recent [meanSlots]second // oldest first
	filled int

	bucket        snapshot.Micros // begin of the one that is being filled
	bucketSampled time.Duration
	bucketTime    [allSeries]time.Duration
	clock         int64 // buckets since the beginning, gaps included

	series [allSeries]series
	events []Event // given out by Second, reused
	owed   []Event // for the next Second
}

// New returns a detector that knows nothing yet.
func New(c Config) *Detector {
	d := &Detector{}
	d.Configure(c)
	return d
}

// Configure changes the width of the band for what is not open yet; a Band of
// 0 ends what is open, with the next second.
func (d *Detector) Configure(c Config) { d.band = c.Band }

// Second takes in one second and returns what has started and ended by it. The
// result is good until the next call.
func (d *Detector) Second(o Observation) []Event {
	sec := o.Second
	d.events = append(d.events[:0], d.owed...)
	d.owed = d.owed[:0]
	if sec.Sampled <= 0 {
		return d.events
	}
	d.moveTo(sec.At)
	now := d.take(sec)

	var sampled time.Duration
	var sums [allSeries]time.Duration
	for i := range d.filled {
		sampled += d.recent[i].sampled
		for k := range sums {
			sums[k] += d.recent[i].time[k]
		}
	}
	if sampled < meanLeast {
		return d.events
	}
	for k := 1; k <= allSeries; k++ { // the total last, see tells
		i := k % allSeries
		d.judge(i, float64(sums[i])/float64(sampled), now, o)
	}
	return d.events
}

// Open appends what is open to dst.
func (d *Detector) Open(dst []history.Anomaly) []history.Anomaly {
	for i := range d.series {
		if d.series[i].open {
			dst = append(dst, d.series[i].anomaly(i))
		}
	}
	return dst
}

// IsOpen reports whether anything is.
func (d *Detector) IsOpen() bool {
	for i := range d.series {
		if d.series[i].open {
			return true
		}
	}
	return false
}

// Learnt reports whether the first hour is over.
func (d *Detector) Learnt() bool { return d.series[total].spread.total >= warmUp }

// moveTo brings the time to at: closes buckets, and bears gaps and clocks that
// were set.
func (d *Detector) moveTo(at snapshot.Micros) {
	begin := at - at%bucketSize
	if d.first == 0 {
		d.first = at
	}
	if d.last == 0 {
		d.bucket = begin
		return
	}
	gap := at.Sub(d.last.Add(d.reach))
	switch {
	case at <= d.last: // set back: how long it was nobody knows
		d.interrupt()
	case gap > meanOver:
		d.interrupt()
		for i := range d.series {
			if gap > bridge && d.series[i].open {
				d.end(i, d.last.Add(d.reach), history.EndUnknown)
			}
			if gap > staleAfter {
				d.series[i].stale()
			}
		}
	}
	if begin == d.bucket {
		return
	}
	d.closeBucket()
	passed := int64(1)
	if begin > d.bucket {
		// This stands for any longer time: all that is compared has gone then.
		passed = min(int64((begin-d.bucket)/bucketSize), int64(driftSteps*levelBuckets))
	}
	for step := d.clock/levelBuckets + 1; step <= (d.clock+passed)/levelBuckets; step++ {
		known := step == (d.clock+passed)/levelBuckets
		for i := range d.series {
			d.series[i].drifted(known)
		}
	}
	d.clock += passed
	d.bucket = begin
}

// interrupt forgets the short mean: what comes does not follow what was.
func (d *Detector) interrupt() {
	d.filled = 0
	for i := range d.series {
		s := &d.series[i]
		s.above, s.below = run{}, run{}
		s.endedAt = 0
	}
}

// closeBucket lets the series learn from the one that is full.
func (d *Detector) closeBucket() {
	if d.bucketSampled >= meanLeast {
		for i := range d.series {
			d.series[i].learn(float64(d.bucketTime[i]) / float64(d.bucketSampled))
		}
	}
	d.bucketSampled = 0
	clear(d.bucketTime[:])
}

// take adds sec to the mean and to the bucket.
func (d *Detector) take(sec *history.Second) *second {
	keep := 0 // what is older than the mean goes, and the oldest when all slots are taken
	for keep < d.filled && (sec.At.Sub(d.recent[keep].at) >= meanOver || d.filled-keep >= meanSlots) {
		keep++
	}
	d.filled = copy(d.recent[:], d.recent[keep:d.filled])
	now := &d.recent[d.filled]
	d.filled++
	*now = second{at: sec.At, sampled: sec.Sampled}
	for i := range sec.Loads {
		l := &sec.Loads[i]
		if !counts(l) {
			continue
		}
		now.time[total] += l.Time
		if k := seriesOf(l.EventType); k != total {
			now.time[k] += l.Time
		}
	}
	d.bucketSampled += sec.Sampled
	for i := range now.time {
		d.bucketTime[i] += now.time[i]
	}
	d.last, d.reach = sec.At, max(sec.Sampled, time.Second)
	return now
}

// judge compares the mean of series i with its limits.
func (d *Detector) judge(i int, mean float64, now *second, o Observation) {
	s := &d.series[i]
	s.excess = mean - s.expected
	if s.open {
		d.judgeOpen(i, mean, now, o)
		return
	}
	if d.band <= 0 || !s.ready() {
		s.above = run{}
		return
	}
	limit := s.limit(d.band)
	if mean <= limit {
		s.above = run{}
		return
	}
	if s.above.seconds == 0 {
		s.begin(d.began(i, limit))
	}
	s.above.add(now.sampled, mean-limit)
	s.follow(i, mean, o)
	least := confirm
	if i == total {
		least += yield
	}
	if s.above.over(least) && s.above.area >= confirm.Seconds()*(limit-s.expected)/d.band {
		s.open, s.opened = true, d.clock
		s.allowed, s.allowedAt = 0, d.clock
		s.detectedAt, s.band = now.at, limit
		s.frozen = s.expected
		s.below = run{}
		s.told = d.tells(i)
		d.events = append(d.events, Event{s.anomaly(i)})
	}
}

func (d *Detector) judgeOpen(i int, mean float64, now *second, o Observation) {
	s := &d.series[i]
	s.excess = mean - s.frozen
	age := d.clock - s.opened
	if s.allowedAt != d.clock { // once in a bucket
		s.allowed, s.allowedAt = s.drift(age), d.clock
	}
	switch {
	case d.band <= 0:
		d.end(i, now.at, history.EndSwitchedOff)
		return
	case age >= acceptAfter:
		s.rebase(s.lately(mean))
		d.end(i, now.at, history.EndNewLevel)
		return
	case mean > s.frozen+hysteresis*(s.band-s.frozen)+s.allowed:
		s.below = run{}
		s.follow(i, mean, o)
		return
	}
	if s.below.seconds == 0 {
		s.calmAt = now.at
	}
	s.below.add(now.sampled, 0)
	if s.below.over(confirm) {
		if age >= levelBuckets {
			s.rebase(mean)
		}
		d.end(i, s.calmAt, history.EndNormal)
	}
}

// began returns when the series went above the limit: the mean lags, the
// seconds in it tell. Those before the end of the anomaly before belong to that.
func (d *Detector) began(i int, limit float64) snapshot.Micros {
	k := d.filled - 1
	for k > 0 && d.recent[k-1].at >= d.series[i].endedAt && float64(d.recent[k-1].time[i]) > limit*float64(d.recent[k-1].sampled) {
		k--
	}
	return d.recent[k].at
}

// tells reports whether the anomaly of series i, which has just started, is
// to be told: not when one that was told says the same.
func (d *Detector) tells(i int) bool {
	var said, of float64
	if i == total {
		of = d.series[total].excess
		for k := 1; k < allSeries; k++ {
			if s := &d.series[k]; s.open && s.told {
				said += s.excess
			}
		}
	} else if t := &d.series[total]; t.open && t.told {
		said, of = d.series[i].excess, t.excess
	} else {
		return true
	}
	return 2*said < of
}

func (d *Detector) end(i int, at snapshot.Micros, why history.AnomalyEnd) {
	s := &d.series[i]
	a := s.anomaly(i)
	a.EndedAt, a.End = max(at, a.StartedAt), why // the clock may have been set back
	d.events = append(d.events, Event{a})
	s.open, s.endedAt = false, a.EndedAt
	s.above, s.below = run{}, run{}
	s.forget()
}
