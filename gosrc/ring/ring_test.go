package ring

import (
	"math/rand/v2"
	"testing"
	"time"

	"pg_lock_history/gosrc/snapshot"
)

const (
	t0 = snapshot.Micros(800_000_000_000_000)
	mb = 1 << 20
)

var week = Settings{Retention: 7 * 24 * time.Hour, MaxSize: 800 * mb} // shares: a day, 100 MB

// fresh is the ring as CREATE EXTENSION leaves it.
func fresh() Rows {
	var r Rows
	for i := range r {
		r[i].Empty = true
	}
	return r
}

// turned is a ring whose segment seg is open since at, in a round in which all
// others have been filled before.
func turned(seg int, at snapshot.Micros) Rows {
	var r Rows
	for i := range r {
		r[i] = Row{Round: 1, OpenedAt: at - 100, ClosedAt: at - 50}
	}
	r[seg] = Row{Round: 2, OpenedAt: at}
	return r
}

func empty(r Rows, seg int) Rows {
	r[seg].Empty = true
	return r
}

func TestDecide(t *testing.T) {
	const day = 24 * time.Hour
	first := fresh()
	first[0] = Row{Round: 1, OpenedAt: t0}
	short := Settings{Retention: 7 * time.Hour, MaxSize: week.MaxSize}

	tests := []struct {
		name   string
		rows   Rows
		now    snapshot.Micros
		bytes  int64
		set    Settings
		want   Decision
		others int64
	}{
		{"new ring", fresh(), t0, 0, week, Decision{Advance, -1, 0}, 0},
		{"first segment", first, t0.Add(time.Hour), mb, week, Decision{Stay, 0, 1}, 0},
		{"first segment full, second never used", first, t0.Add(day), mb, week, Decision{Advance, 0, 1}, 0},
		{"last before the wrap", empty(turned(7, t0), 0), t0.Add(time.Hour), mb, week, Decision{Stay, 7, 0}, 0},
		{"the wrap", empty(turned(7, t0), 0), t0.Add(day), mb, week, Decision{Advance, 7, 0}, 0},
		{"not yet ahead", turned(3, t0), t0.Add(17 * time.Hour), 74 * mb, week, Decision{Stay, 3, 4}, 0},
		{"ahead by time", turned(3, t0), t0.Add(18 * time.Hour), mb, week, Decision{EmptyNext, 3, 4}, 0},
		{"ahead by size", turned(3, t0), t0.Add(time.Hour), 75 * mb, week, Decision{EmptyNext, 3, 4}, 0},
		{"full by size before full by time", empty(turned(3, t0), 4), t0.Add(time.Hour), 100 * mb, week, Decision{Advance, 3, 4}, 0},
		{"full by time before full by size", empty(turned(3, t0), 4), t0.Add(day), 0, week, Decision{Advance, 3, 4}, 0},
		{"clock gone backwards", turned(3, t0), t0.Add(-time.Hour), mb, week, Decision{Stay, 3, 4}, 0},
		{"clock gone backwards, full by size", empty(turned(3, t0), 4), t0.Add(-time.Hour), 100 * mb, week, Decision{Advance, 3, 4}, 0},
		{"opened by a clock far ahead", empty(turned(3, t0), 4), t0.Add(-25 * time.Hour), mb, week, Decision{Advance, 3, 4}, 0},
		{"retention changed half way, shorter", empty(turned(3, t0), 4), t0.Add(2 * time.Hour), mb, short, Decision{Advance, 3, 4}, 0},
		{"retention changed half way, longer", empty(turned(3, t0), 4), t0.Add(2 * time.Hour), mb, week, Decision{Stay, 3, 4}, 0},
		{"next held, room to grow", turned(3, t0), t0.Add(time.Hour), 100 * mb, week, Decision{Grow, 3, 4}, 0},
		{"next held, just below twice", turned(3, t0), t0.Add(time.Hour), 200*mb - 1, week, Decision{Grow, 3, 4}, 0},
		{"next held, twice its share", turned(3, t0), t0.Add(time.Hour), 200 * mb, week, Decision{Held, 3, 4}, 0},
		{"next held for days, small", turned(3, t0), t0.Add(30 * day), mb, week, Decision{Grow, 3, 4}, 0},
		{"others have grown, oldest next but one", empty(turned(3, t0), 4), t0.Add(time.Hour), 10 * mb, week, Decision{EmptyNext, 3, 5}, 790 * mb},
		{"others have grown, no room left", empty(turned(3, t0), 4), t0.Add(time.Hour), 10 * mb, week, Decision{Held, 3, 5}, 890 * mb},
		{"others have grown, full", empty(turned(3, t0), 4), t0.Add(day), 10 * mb, week, Decision{Advance, 3, 4}, 790 * mb},
		{"all of it in the current one", first, t0.Add(time.Hour), 900 * mb, week, Decision{Advance, 0, 1}, 0},
		{"held one let go", empty(turned(3, t0), 4), t0.Add(time.Hour), 300 * mb, week, Decision{Advance, 3, 4}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Decide(&tt.rows, tt.now, Size{Current: tt.bytes, Total: tt.bytes + tt.others}, tt.set); got != tt.want {
				t.Errorf("got %v %+v, want %v %+v", got.Action, got, tt.want.Action, tt.want)
			}
		})
	}
}

func TestCurrentTakesTheNewestRound(t *testing.T) {
	r := turned(2, t0)
	r[5] = Row{Round: 1, OpenedAt: t0 - 7} // left open by a writer that died in between
	if got := Current(&r); got != 2 {
		t.Errorf("Current = %d, want 2", got)
	}
}

func TestFill(t *testing.T) {
	tests := []struct {
		name  string
		after time.Duration
		bytes int64
		want  float64
	}{
		{"by time", 12 * time.Hour, 10 * mb, 0.5},
		{"by size", time.Hour, 75 * mb, 0.75},
		{"clock gone backwards", -time.Hour, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := turned(1, t0)
			if got := Fill(&r, t0.Add(tt.after), tt.bytes, week); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// The promise to the disk: max_size plus one segment, whatever readers hold
// and however rows come, as long as one flush is small against a segment; and
// a history of nearly the retention where size does not cut it short.
func TestBoundsHold(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for run := range 200 {
		s := Settings{Retention: time.Duration(1+rnd.IntN(100)) * time.Hour, MaxSize: int64(1+rnd.IntN(64)) * 8 * mb}
		flush := s.ShareSize() / 100
		rows := fresh()
		var size [Segments]int64
		now := t0
		heldPart := rnd.Float64()
		for range 5000 {
			now = now.Add(time.Duration(rnd.Int64N(int64(s.ShareTime() / 50))))
			decide := func() Decision {
				sz := Size{Current: size[max(Current(&rows), 0)]}
				for _, b := range size {
					sz.Total += b
				}
				return Decide(&rows, now, sz, s)
			}
			current := max(Current(&rows), 0)
			d := decide()
			if (d.Action == EmptyNext || d.Action == Grow || d.Action == Held) && rnd.Float64() >= heldPart {
				rows[d.Next].Empty, size[d.Next] = true, 0
				d = decide()
			}
			switch d.Action {
			case Held:
				continue
			case Advance:
				if size[d.Next] != 0 {
					t.Fatalf("run %d: advanced to segment %d with %d bytes in it", run, d.Next, size[d.Next])
				}
				if d.Current >= 0 {
					rows[d.Current].ClosedAt = now
				}
				rows[d.Next] = Row{Round: rows[d.Next].Round + 1, OpenedAt: now}
				current = d.Next
			}
			size[current] += flush
			var total int64
			for _, b := range size {
				total += b
			}
			if limit := s.MaxSize + s.ShareSize() + flush; total > limit {
				t.Fatalf("run %d: %d bytes, limit %d", run, total, limit)
			}
		}
	}
}
