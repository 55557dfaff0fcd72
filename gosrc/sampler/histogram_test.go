package sampler

import (
	"testing"
	"time"
)

func TestHistogramBounds(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 4, 5, 7, 8, 9, 1000, 1279, 1280, 1 << 20, time.Second, 15 * time.Minute} {
		var h Histogram
		h.Add(d)
		got := h.Quantile(0.5)
		least := max(d, 4)
		if got <= least || float64(got) > float64(least)*1.26+1 {
			t.Errorf("%v reads back as %v: want more, and at most a quarter more", d, got)
		}
		if h.Max() != got {
			t.Errorf("%v: max %v differs from the only value %v", d, h.Max(), got)
		}
	}
}

func TestHistogramQuantiles(t *testing.T) {
	var h Histogram
	if h.Quantile(0.99) != 0 || h.Max() != 0 {
		t.Error("an empty histogram must read 0")
	}
	for i := range 1000 {
		h.Add(time.Duration(i+1) * time.Microsecond)
	}
	for _, q := range []struct{ share, want float64 }{{0.5, 500}, {0.99, 990}} {
		got := float64(h.Quantile(q.share)) / 1000
		if got < q.want || got > 1.26*q.want {
			t.Errorf("quantile %v = %v µs, want %v to a quarter more", q.share, got, q.want)
		}
	}
	var other Histogram
	other.Merge(&h)
	if other != h {
		t.Error("merging into an empty histogram must give the same counts")
	}
}
