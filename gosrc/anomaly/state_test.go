package anomaly

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
)

// restart gives the state of w's detector to a new one.
func restart(t *testing.T, w *world) {
	t.Helper()
	d := New(Config{Band: 3})
	if err := d.Restore(w.d.State()); err != nil {
		t.Fatal(err)
	}
	w.d = d
}

func TestRestartTeachesNothingAnew(t *testing.T) {
	w := newWorld(t).busy(day)
	w.run(day)
	raw := w.d.State()
	if len(raw) > 8<<10 {
		t.Errorf("the state of a busy server takes %d bytes", len(raw))
	}
	t.Logf("%d bytes", len(raw))
	was := w.d
	restart(t, w)
	for i := range was.series {
		a, b := &was.series[i], &w.d.series[i]
		if math.Abs(a.limit(3)-b.limit(3)) > 0.05 || a.spread.total != b.spread.total || math.Abs(a.drift(500)-b.drift(500)) > 0.05 {
			t.Errorf("series %q: limit %.2f, restored %.2f; %d and %d learnt; drift %.2f and %.2f", types[i], a.limit(3), b.limit(3),
				a.spread.total, b.spread.total, a.drift(500), b.drift(500))
		}
	}
	if again := w.d.State(); !reflect.DeepEqual(raw, again) {
		t.Error("the state of what was restored is another one")
	}
	from := w.now + 2*time.Minute
	w.episode(from, 5*time.Minute, content, 40)
	w.run(w.now + 9*time.Minute)
	check(t, w, from, from+5*time.Minute)
}

func TestIdleStateIsSmall(t *testing.T) {
	w := newWorld(t)
	w.run(day)
	if n := len(w.d.State()); n > 1<<10 {
		t.Errorf("the state of an idle server takes %d bytes", n)
	}
}

func TestRestartInTheMiddle(t *testing.T) {
	tests := []struct {
		name   string
		away   time.Duration
		late   time.Duration // how long the new life is without the state
		starts int           // of locks in all
		end    history.AnomalyEnd
		band   bool // the band stands
	}{
		{"at once", 5 * time.Second, 0, 1, history.EndNormal, true},
		{"after a quarter of an hour", 15 * time.Minute, 0, 1, history.EndNormal, true},
		{"the state comes late", 5 * time.Second, 3 * time.Minute, 1, history.EndNormal, true},
		{"away and late", 15 * time.Minute, 3 * time.Minute, 1, history.EndNormal, true},
		{"away for too long", 2 * time.Hour, 0, 1, history.EndUnknown, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.root = 99
			w.usual[rowLock] = constant(2)
			from := 3 * time.Hour
			w.episode(from, 10*time.Minute+tt.away+tt.late, rowLock, 30)
			w.run(from + 5*time.Minute)
			first := of(w.starts, "Lock")
			if len(first) != 1 {
				t.Fatalf("%+v", w.starts)
			}
			raw := w.d.State()
			w.d = New(Config{Band: 3})
			w.now += tt.away
			if tt.late == 0 {
				if err := w.d.Restore(raw); err != nil {
					t.Fatal(err)
				}
			} else {
				w.run(w.now + tt.late)
				if err := w.d.Restore(raw); err != nil {
					t.Fatal(err)
				}
			}
			w.run(w.now + 20*time.Minute)
			starts, ends := of(w.starts, "Lock"), of(w.ends, "Lock")
			if len(starts) != tt.starts || len(ends) != 1 {
				t.Fatalf("starts %+v ends %+v", starts, ends)
			}
			e := ends[0]
			if e.StartedAt != first[0].StartedAt || e.End != tt.end || e.Band != first[0].Band || e.RootPid != 99 ||
				e.LeadingEvent != "Lock:transactionid" || !e.Told {
				t.Errorf("%+v, want what started as %+v", e, first[0])
			}
			if tt.end == history.EndNormal {
				to := w.episodes[0].to
				within(t, "end", e.ended, to, to+time.Minute)
			}
		})
	}
}

// What was learnt before the state came is not lost, and does not stand in its place.
func TestLateStateIsAddedTo(t *testing.T) {
	w := newWorld(t)
	w.usual[walSync] = constant(10)
	w.run(4 * time.Hour)
	raw := w.d.State()
	known := w.d.series[3].spread.total
	w.d = New(Config{Band: 3})
	w.run(w.now + 30*time.Minute)
	own := w.d.series[3].spread.total
	if w.d.Learnt() {
		t.Fatal("half an hour is enough")
	}
	if err := w.d.Restore(raw); err != nil {
		t.Fatal(err)
	}
	if got := w.d.series[3].spread.total; got != known+own || !w.d.Learnt() {
		t.Errorf("%d differences known, want %d and %d", got, known, own)
	}
	from := w.now + 10*time.Second
	w.episode(from, 5*time.Minute, walSync, 30)
	w.run(from + 8*time.Minute)
	e := of(w.ends, "IO")
	if len(e) != 1 || math.Abs(e[0].Expected-10) > 2 {
		t.Errorf("%+v", e)
	}
}

// Both lives know of an open one: the older cannot be followed any more.
func TestLateStateMeetsAnAnomaly(t *testing.T) {
	w := newWorld(t)
	w.episode(2*time.Hour, 3*time.Hour, rowLock, 20)
	w.run(2*time.Hour + time.Minute)
	raw := w.d.State()
	old := of(w.starts, "Lock")[0]
	w.d = New(Config{Band: 3})
	w.episodes = nil
	w.run(w.now + 90*time.Minute)
	w.episode(w.now, 10*time.Minute, rowLock, 20)
	w.run(w.now + 5*time.Minute)
	if err := w.d.Restore(raw); err != nil {
		t.Fatal(err)
	}
	w.run(w.now + 20*time.Minute)
	starts, ends := of(w.starts, "Lock"), of(w.ends, "Lock")
	if len(starts) != 2 || len(ends) != 2 || ends[0].StartedAt != old.StartedAt || ends[0].EndedAt == 0 || ends[1].End != history.EndNormal ||
		ends[1].StartedAt != starts[1].StartedAt {
		t.Errorf("starts %+v, ends %+v", starts, ends)
	}
}

func TestDamagedStateIsRefused(t *testing.T) {
	w := newWorld(t).busy(time.Hour)
	w.episode(2*time.Hour, time.Hour, content, 40)
	w.run(2*time.Hour + 5*time.Minute)
	good := w.d.State()
	version := append([]byte{stateVersion + 1}, good[1:len(good)-crcBytes]...)
	version = binary.BigEndian.AppendUint32(version, crc32.Checksum(version, castagnoli))
	tests := []struct {
		name string
		raw  []byte
	}{
		{"nothing", nil},
		{"a byte", good[:1]},
		{"the half", good[:len(good)/2]},
		{"one byte more", append(append([]byte{}, good...), 0)},
		{"too long", make([]byte, maxState+1)},
		{"another version", version},
	}
	for i := range good {
		b := append([]byte{}, good...)
		b[i] ^= 0x41
		tests = append(tests, struct {
			name string
			raw  []byte
		}{"a byte changed", b})
	}
	before := *w.d
	for _, tt := range tests {
		err := w.d.Restore(tt.raw)
		if err == nil {
			t.Fatalf("%s: taken", tt.name)
		}
		if tt.name != "another version" && tt.name != "a byte changed" && !errors.Is(err, errState) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if !reflect.DeepEqual(before.State(), w.d.State()) || before.clock != w.d.clock {
		t.Error("a refused state has changed something")
	}
}

// Whatever is taken can be used, and is the same when it is saved again.
func FuzzRestore(f *testing.F) {
	w := newWorldForFuzz()
	f.Add(w.State()[:len(w.State())-crcBytes])
	f.Add([]byte{stateVersion})
	f.Fuzz(func(t *testing.T, body []byte) {
		raw := binary.BigEndian.AppendUint32(append([]byte{}, body...), crc32.Checksum(body, castagnoli))
		for _, late := range []bool{false, true} {
			d := New(Config{Band: 3})
			if late {
				for k := range 12 {
					d.Second(Observation{Second: &history.Second{At: t0.Add(time.Duration(k) * time.Second), Sampled: time.Second}})
				}
			}
			if d.Restore(raw) != nil {
				continue
			}
			if !late {
				again := New(Config{})
				if err := again.Restore(d.State()); err != nil {
					t.Fatalf("its own state is refused: %v", err)
				}
			}
			at := max(d.last, t0)
			for k := range 300 {
				sec := history.Second{At: at.Add(time.Duration(k+1) * time.Second), Sampled: time.Second,
					Loads: []history.Load{{EventType: "Lock", Event: "tuple", Time: time.Duration(k%200) * time.Second}}}
				for _, e := range d.Second(Observation{Second: &sec}) {
					if !(e.Observed >= 0 && e.Expected >= 0 && e.Band >= 0) {
						t.Fatalf("%+v", e)
					}
				}
			}
		}
	})
}

func newWorldForFuzz() *Detector {
	d := New(Config{Band: 3})
	for k := range 4000 {
		sec := history.Second{At: t0.Add(time.Duration(k) * time.Second), Sampled: time.Second}
		sec.Loads = append(sec.Loads, history.Load{EventType: "IO", Event: "DataFileRead", Time: time.Duration(k%7) * time.Second})
		if k > 3800 {
			sec.Loads = append(sec.Loads, history.Load{EventType: "Lock", Event: "tuple", Time: 20 * time.Second})
		}
		d.Second(Observation{Second: &sec, Root: 5})
	}
	return d
}
