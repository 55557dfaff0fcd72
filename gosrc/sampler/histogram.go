package sampler

import (
	"math/bits"
	"time"
)

// HistogramBuckets is PLH_HIST_BUCKETS of probe.h.
const HistogramBuckets = 160

// Histogram counts durations in quarter octaves, in the buckets of probe.h:
// any value read from it is at most a quarter too high.
type Histogram [HistogramBuckets]uint32

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	ns := uint64(max(d, 4))
	octave := bits.Len64(ns) - 1
	h[min(4*octave+int(ns>>(octave-2)&3), HistogramBuckets-1)]++
}

// Merge adds the counts of o.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o {
		h[i] += n
	}
}

// Quantile returns the upper bound of the bucket that holds the share q of all
// values, 0 for an empty histogram.
func (h *Histogram) Quantile(q float64) time.Duration {
	var total uint64
	for _, n := range h {
		total += uint64(n)
	}
	if total == 0 {
		return 0
	}
	rank := uint64(q * float64(total))
	if rank >= total {
		rank = total - 1
	}
	var seen uint64
	for i, n := range h {
		seen += uint64(n)
		if seen > rank {
			return upperBound(i)
		}
	}
	return upperBound(HistogramBuckets - 1)
}

// Max returns the upper bound of the highest bucket in use.
func (h *Histogram) Max() time.Duration {
	for i := HistogramBuckets - 1; i >= 0; i-- {
		if h[i] != 0 {
			return upperBound(i)
		}
	}
	return 0
}

func upperBound(bucket int) time.Duration {
	octave, quarter := bucket/4, bucket%4
	return time.Duration(1) << octave / 4 * time.Duration(5+quarter)
}
