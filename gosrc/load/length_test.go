package load

import (
	"reflect"
	"testing"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

func TestBuckets(t *testing.T) {
	for _, c := range []struct {
		name string
		us   int64
		want int32
	}{
		{"nothing", 0, 0}, {"below a millisecond", 999, 0}, {"a millisecond", 1000, 1}, {"just below two", 1999, 1}, {"two", 2000, 2},
		{"a sampling period", 10_000, 4}, {"16 ms begin one", 16_000, 5}, {"a second", 1_000_000, 10}, {"a clock gone mad", -5, 0},
		{"49 days", 1 << 32 * 1000, 33},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := bucketOf(c.us); got != c.want {
				t.Errorf("%d us are in bucket %d, want %d", c.us, got, c.want)
			}
		})
	}
}

func TestWaitLengths(t *testing.T) {
	const minute = 60_000_000
	ended := func(second snapshot.Micros, event uint32, us int64) snapshot.Run {
		return snapshot.Run{Second: second, WaitEvent: event, EndedUs: us, TimeUs: us}
	}
	for _, c := range []struct {
		name string
		runs []snapshot.Run
		till snapshot.Micros // a second that is closed after them
		all  bool
		want []history.WaitLengths
	}{
		{"a minute that goes on is not handed out", []snapshot.Run{ended(minute, manager, 20_000)}, minute + 59_000_000, false, nil},
		{"unless all is wanted", []snapshot.Run{ended(minute, manager, 20_000), ended(minute, manager, 30_000), ended(minute+5_000_000, manager, 40_000), ended(minute, insert, 20_000)}, minute, true,
			[]history.WaitLengths{{Minute: minute, Bars: []history.LengthBar{
				{EventType: "1.1000037", Event: "2.1000037", Bucket: 5, Waits: 1, Time: 20 * time.Millisecond},
				{EventType: "1.100003d", Event: "2.100003d", Bucket: 5, Waits: 2, Time: 50 * time.Millisecond},
				{EventType: "1.100003d", Event: "2.100003d", Bucket: 6, Waits: 1, Time: 40 * time.Millisecond}}}}},
		{"the next minute ends it", []snapshot.Run{ended(minute, manager, 20_000)}, 2 * minute, false,
			[]history.WaitLengths{{Minute: minute, Bars: []history.LengthBar{{EventType: "1.100003d", Event: "2.100003d", Bucket: 5, Waits: 1, Time: 20 * time.Millisecond}}}}},
		{"a wait that goes on has no length", []snapshot.Run{{Second: minute, WaitEvent: manager, TimeUs: 20_000}}, 2 * minute, true, nil},
		{"work is no wait", []snapshot.Run{ended(minute, 0, 20_000)}, 2 * minute, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(numbered{})
			for i := range c.runs {
				m.Add(&c.runs[i])
			}
			own := ended(minute, manager, 20_000)
			m.AddOwn(&own)
			m.Close(&snapshot.Second{Second: c.till, SampledUs: 1_000_000})
			if has := m.HasLengths(); has && len(c.want) == 0 || !has && len(c.want) > 0 && !c.all {
				t.Errorf("says that there are some: %v", has)
			}
			if got := m.TakeLengths(c.all); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if again := m.TakeLengths(true); len(again) > 0 && len(c.want) > 0 {
				t.Errorf("taken twice: %+v", again)
			}
		})
	}
}
