package anomaly

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

const (
	stateVersion = 2
	// maxState bounds what Restore looks at. A busy server's takes 6 kB, what is
	// possible at all 20 kB.
	maxState = 64 << 10
	crcBytes = 4

	// savedEvents is how many event names of an open anomaly go with it.
	savedEvents = 8
	maxName     = 256

	// Levels are kept to a 64th of a session, up to maxLevel of them.
	levelUnit = 64
	maxLevel  = 1 << 24
)

// errState: not something that State has made.
var errState = errors.New("state of the anomaly detector is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// State is what the next life needs: a version, the content, a checksum.
func (d *Detector) State() []byte {
	e := encoder{b: append(make([]byte, 0, 4096), stateVersion)}
	e.int(int64(d.last))
	e.int(int64(d.reach))
	e.int(d.clock)
	e.uint(uint64(allSeries))
	for i := range d.series {
		e.series(&d.series[i], d.clock)
	}
	return binary.BigEndian.AppendUint32(e.b, crc32.Checksum(e.b, castagnoli))
}

// Restore takes over what State said in an earlier life. It may come late: then
// what was learnt since is added to it. When it fails nothing has changed.
func (d *Detector) Restore(raw []byte) error {
	if len(raw) < 1+crcBytes || len(raw) > maxState {
		return fmt.Errorf("%w: %d bytes", errState, len(raw))
	}
	body := raw[:len(raw)-crcBytes]
	want, got := binary.BigEndian.Uint32(raw[len(body):]), crc32.Checksum(body, castagnoli)
	switch {
	case got != want:
		return fmt.Errorf("%w: checksum %08x, should be %08x", errState, got, want)
	case body[0] != stateVersion:
		return fmt.Errorf("state of the anomaly detector has version %d, this release reads %d", body[0], stateVersion)
	}
	r, err := decode(body[1:])
	if err != nil {
		return err
	}
	r.band = d.band
	if d.last != 0 {
		r.absorb(d)
	}
	*d = *r
	return nil
}

// absorb adds to d what n has learnt in a life that began after d's.
func (d *Detector) absorb(n *Detector) {
	// Time goes on to where n began: gaps, clocks, ends.
	d.events = nil
	if n.first > d.last {
		d.moveTo(n.first)
	}
	d.owed = append(d.events, n.owed...)
	d.events = nil
	fresh := n.first.Sub(d.last.Add(d.reach)) > staleAfter || n.first <= d.last
	for i := range d.series {
		d.absorbSeries(i, &n.series[i], fresh, n.clock)
	}
	d.clock += n.clock
	d.first, d.last, d.reach = n.first, n.last, n.reach
	d.recent, d.filled = n.recent, n.filled
	d.bucket, d.bucketSampled, d.bucketTime = n.bucket, n.bucketSampled, n.bucketTime
}

func (d *Detector) absorbSeries(i int, n *series, fresh bool, clock int64) {
	s := &d.series[i]
	if n.open {
		if s.open { // two cannot go on
			d.end(i, d.last.Add(d.reach), history.EndUnknown)
			d.owed, d.events = append(d.owed, d.events...), nil
		}
		spread, histories, h := s.spread, s.histories, s.history
		opened := d.clock + n.opened
		*s, n.events = *n, nil
		s.allowedAt = -1
		s.opened, s.spread, s.histories, s.history = opened, spread, histories, h
	} else if !s.open {
		if fresh {
			s.level = ring{}
		}
		for k := range n.level.n {
			s.level.add(s.levels[:], n.level.at(n.levels[:], k))
		}
		s.above, s.startedAt, s.peak = n.above, n.startedAt, n.peak
		s.events, s.root, s.votes = n.events, n.root, n.votes
	}
	s.late, s.lates = n.late, n.lates
	for b := 1; b <= blocks; b++ { // oldest first
		n.spread.addTo(&s.spread, (n.spread.filling+b)%blocks)
	}
	for k := range n.history.n {
		s.history.add(s.histories[:], n.history.at(n.histories[:], k))
	}
	s.hour = s.lastHour()
	s.deviation = s.spread.deviation()
	s.expect()
}

// addTo adds block b to p.
func (q *spread) addTo(p *spread, b int) {
	for k, count := range q.counts[b] {
		for range count {
			if p.filled >= blockBuckets {
				p.turn()
			}
			p.counts[p.filling][k]++
			p.filled++
			p.total++
		}
	}
}

// encoder writes numbers as varints, and lists as differences, of which zeros
// are counted: an idle series takes a few bytes.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64)   { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)     { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) float(v float64) { e.b = binary.BigEndian.AppendUint64(e.b, math.Float64bits(v)) }
func (e *encoder) text(s string) {
	s = s[:min(len(s), maxName)]
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) list(n int, at func(int) int64) {
	e.uint(uint64(n))
	was := int64(0)
	for k := 0; k < n; k++ {
		v := at(k)
		e.int(v - was)
		if v == was {
			same := 0
			for k+1 < n && at(k+1) == was {
				k++
				same++
			}
			e.uint(uint64(same))
		}
		was = v
	}
}

func (e *encoder) series(s *series, clock int64) {
	e.list(s.level.n, func(k int) int64 { return toUnits(s.level.at(s.levels[:], k)) })
	for b := 1; b <= blocks; b++ {
		block := &s.spread.counts[(s.spread.filling+b)%blocks]
		e.list(bins, func(k int) int64 { return int64(block[k]) })
	}
	e.list(s.history.n, func(k int) int64 {
		v := s.history.at(s.histories[:], k)
		if v != v {
			return -1
		}
		return toUnits(v)
	})
	if !s.open {
		e.uint(0)
		return
	}
	flags := uint64(1)
	if s.told {
		flags |= 2
	}
	e.uint(flags)
	e.int(clock - s.opened)
	e.int(int64(s.startedAt))
	e.int(int64(s.detectedAt))
	e.float(s.frozen)
	e.float(s.band)
	e.float(s.peak)
	e.int(int64(s.root))
	e.int(int64(s.votes))
	most := slices.Clone(s.events)
	slices.SortStableFunc(most, func(a, b eventTime) int { return int((b.time - a.time) / time.Microsecond) })
	most = most[:min(len(most), savedEvents)]
	e.uint(uint64(len(most)))
	for _, m := range most {
		e.text(m.kind)
		e.text(m.name)
		e.int(int64(m.time))
	}
}

func toUnits(v float32) int64 { return int64(math.Round(float64(min(v, maxLevel)) * levelUnit)) }

// decode reads the content, all of it or nothing.
func decode(b []byte) (*Detector, error) {
	d := &decoder{rest: b}
	r := &Detector{last: snapshot.Micros(d.int()), reach: time.Duration(d.int()), clock: d.int()}
	r.first = r.last
	r.bucket = r.last - r.last%bucketSize
	d.check(r.last > 0 && r.reach > 0 && r.reach < time.Hour && r.clock >= 0 && r.clock < 1<<40)
	d.check(d.uint() == uint64(allSeries))
	for i := range r.series {
		d.series(&r.series[i], r.clock)
	}
	if d.check(len(d.rest) == 0); d.bad {
		return nil, fmt.Errorf("%w: cannot be read, %d bytes before its end", errState, len(d.rest))
	}
	return r, nil
}

// decoder reads from the front of rest. After the first thing that cannot be,
// bad is set and everything reads as zero.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) check(ok bool) { d.bad = d.bad || !ok }

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.check(n > 0); d.bad {
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) int() int64 {
	v := d.uint()
	return int64(v>>1) ^ -int64(v&1)
}

// float reads a number of sessions.
func (d *decoder) float() float64 {
	if d.check(len(d.rest) >= 8); d.bad {
		return 0
	}
	v := math.Float64frombits(binary.BigEndian.Uint64(d.rest))
	d.rest = d.rest[8:]
	if d.check(v >= 0 && v <= maxLevel); d.bad {
		return 0
	}
	return v
}

func (d *decoder) text() string {
	n := d.uint()
	if d.check(n <= maxName && n <= uint64(len(d.rest))); d.bad {
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

// list reads at most most values that are from least up to limit.
func (d *decoder) list(most int, least, limit int64, each func(k int, v int64)) (n int) {
	count := d.uint()
	if d.check(count <= uint64(most)); d.bad {
		return 0
	}
	n = int(count)
	v := int64(0)
	for k := 0; k < n; {
		by := d.int()
		d.check(by >= -limit-1 && by <= limit+1)
		v += by
		if d.check(v >= least && v <= limit); d.bad {
			return 0
		}
		times := 1
		if by == 0 {
			same := d.uint()
			if d.check(same < uint64(n-k)); d.bad {
				return 0
			}
			times += int(same)
		}
		for range times {
			each(k, v)
			k++
		}
	}
	return n
}

func (d *decoder) series(s *series, clock int64) {
	d.list(levelBuckets, 0, maxLevel*levelUnit, func(_ int, v int64) { s.level.add(s.levels[:], float32(v)/levelUnit) })
	s.spread.filling = blocks - 1
	for b := range s.spread.counts {
		sum := 0
		d.check(d.list(bins, 0, blockBuckets, func(k int, v int64) {
			s.spread.counts[b][k] = uint8(v)
			sum += int(v)
		}) == bins && sum <= blockBuckets)
		s.spread.total += sum
		s.spread.filled = sum // of the last one
	}
	d.list(driftSteps, -1, maxLevel*levelUnit, func(_ int, v int64) {
		level := float32(v) / levelUnit
		if v < 0 {
			level = float32(math.NaN())
		}
		s.history.add(s.histories[:], level)
	})
	s.hour = s.lastHour()
	s.deviation = s.spread.deviation()
	s.expect()
	flags := d.uint()
	if d.check(flags <= 3 && flags != 2); d.bad || flags == 0 {
		return
	}
	s.open, s.told = true, flags&2 != 0
	s.opened, s.allowedAt = clock-d.int(), -1
	s.startedAt, s.detectedAt = snapshot.Micros(d.int()), snapshot.Micros(d.int())
	d.check(s.opened <= clock && s.opened >= clock-2*acceptAfter && s.startedAt > 0 && s.detectedAt > 0)
	s.frozen, s.band, s.peak = d.float(), d.float(), d.float()
	root, votes := d.int(), d.int()
	d.check(root >= math.MinInt32 && root <= math.MaxInt32 && votes >= 0 && votes < 1<<40)
	s.root, s.votes = int32(root), int(votes)
	n := d.uint()
	d.check(n <= savedEvents)
	for k := uint64(0); k < n && !d.bad; k++ {
		e := eventTime{kind: d.text(), name: d.text(), time: time.Duration(d.int())}
		d.check(e.time >= 0)
		s.events = append(s.events, e)
	}
}
