package ring

import (
	"time"

	"pg_lock_history/gosrc/snapshot"
)

// Segments is the number of segments, as in sql/parts/10_tables.sql.
const Segments = 8

// aheadQuarters is the part of a segment's share, in quarters, at which emptying
// of the next one begins; see doc.go.
const aheadQuarters = 3

// Next returns the segment that follows seg in a ring of n. It has to be empty
// before the first row of its new round is written.
func Next(seg, n int) int { return (seg + 1) % n }

// Row is one row of the ring table.
type Row struct {
	Round    int64           // how often the segment has been opened
	OpenedAt snapshot.Micros // 0: never
	ClosedAt snapshot.Micros // 0: open, or never opened
	Empty    bool
	Rolled   bool // its seconds are in minutes; of the ring of minutes itself never
}

// Rows is the whole ring table, by segment. A smaller ring has the first of them.
type Rows [Segments]Row

// Settings bound the ring.
type Settings struct {
	Retention time.Duration
	MaxSize   int64 // bytes
	Parts     int   // segments it is cut into; 0 for Segments
}

func (s Settings) parts() int {
	if s.Parts == 0 {
		return Segments
	}
	return s.Parts
}

// ShareTime returns how long a segment is meant to stay open.
func (s Settings) ShareTime() time.Duration { return s.Retention / time.Duration(s.parts()-1) }

// ShareSize returns how many bytes a segment is meant to hold.
func (s Settings) ShareSize() int64 { return s.MaxSize / int64(s.parts()) }

// Action is what has to be done before rows are written.
type Action int

// Decide's answers.
const (
	Stay      Action = iota // write to the current segment
	EmptyNext               // try to empty a segment; write to the current in any case
	Advance                 // open the next one, which is empty, and write to it
	Grow                    // full, the next one is not empty: try to, else write to the current
	Held                    // no room is left: try to empty a segment, else drop
)

func (a Action) String() string {
	return [...]string{"stay", "empty next", "advance", "grow", "held"}[a]
}

// Decision says what to do and with which segments.
type Decision struct {
	Action  Action
	Current int // -1 when none was ever opened
	Next    int // to be opened (Advance) or emptied (all others but Stay)
}

// Size is what the ring takes on disk, in bytes.
type Size struct {
	Current int64 // the segment that is open
	Total   int64 // all of them
}

// Current returns the segment that is open, -1 for none.
func Current(rows *Rows) int {
	current := -1
	for seg := range rows {
		r := &rows[seg]
		if r.OpenedAt != 0 && r.ClosedAt == 0 && (current < 0 || r.Round > rows[current].Round) {
			current = seg
		}
	}
	return current
}

// Decide says what to do at now with a ring of that size.
func Decide(rows *Rows, now snapshot.Micros, size Size, s Settings) Decision {
	current := Current(rows)
	if current < 0 {
		// The ring is new, or was reset: begin where it is empty.
		if rows[0].Empty {
			return Decision{Advance, -1, 0}
		}
		return Decision{Grow, -1, 0}
	}
	n := s.parts()
	next, oldest := Next(current, n), oldest(rows, current, n)
	age := now.Sub(rows[current].OpenedAt)
	share, part := s.ShareTime(), s.ShareSize()

	full := age >= share || age < -share || size.Current >= part
	over := size.Total >= s.MaxSize && oldest >= 0
	switch {
	case over && size.Total >= s.MaxSize+part:
		return Decision{Held, current, oldest}
	case full && rows[next].Empty:
		return Decision{Advance, current, next}
	case full && size.Current >= 2*part:
		return Decision{Held, current, next}
	case full:
		return Decision{Grow, current, next}
	case over:
		return Decision{EmptyNext, current, oldest}
	case rows[next].Empty:
		return Decision{Stay, current, next}
	case age >= share/4*aheadQuarters || size.Current >= part/4*aheadQuarters:
		return Decision{EmptyNext, current, next}
	default:
		return Decision{Stay, current, next}
	}
}

// oldest returns the first segment after current that holds anything, -1 when
// none but current does.
func oldest(rows *Rows, current, n int) int {
	for seg := Next(current, n); seg != current; seg = Next(seg, n) {
		if !rows[seg].Empty {
			return seg
		}
	}
	return -1
}

// Fill returns how full the current segment is of its share, 1 for full.
func Fill(rows *Rows, now snapshot.Micros, bytes int64, s Settings) float64 {
	current := Current(rows)
	if current < 0 || s.ShareTime() <= 0 || s.ShareSize() <= 0 {
		return 0
	}
	age := max(0, now.Sub(rows[current].OpenedAt))
	return max(float64(age)/float64(s.ShareTime()), float64(bytes)/float64(s.ShareSize()))
}
