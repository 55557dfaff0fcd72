package load

import (
	"cmp"
	"slices"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// contention is what the waits of one kind come to in the second that goes on.
type contention struct {
	us          int64 // session time
	waits       int64 // that ended
	max         uint32
	aheadUs     int64
	exclusiveUs int64
	sharedUs    int64
}

func (c *contention) add(r *snapshot.Run) {
	o := contention{us: r.TimeUs, max: r.WaitersMax, aheadUs: r.AheadUs, exclusiveUs: r.ExclusiveUs, sharedUs: r.SharedUs}
	if r.EndedUs > 0 {
		o.waits = 1
	}
	c.join(o)
}

// join adds up two kinds that are told as one.
func (c *contention) join(o contention) {
	c.us += o.us
	c.waits += o.waits
	c.max = max(c.max, o.max)
	c.aheadUs += o.aheadUs
	c.exclusiveUs += o.exclusiveUs
	c.sharedUs += o.sharedUs
}

func (c *contention) history() history.Contention {
	return history.Contention{Time: micros(c.us), Waits: c.waits, WaitersMax: int32(c.max),
		Ahead: micros(c.aheadUs), Exclusive: micros(c.exclusiveUs), Shared: micros(c.sharedUs)}
}

type contended[K comparable] struct {
	key K
	contention
}

// add adds a run to what sums has of its kind.
func add[K comparable](sums map[K]contention, key K, r *snapshot.Run) {
	c := sums[key]
	c.add(r)
	sums[key] = c
}

// take empties sums and returns them, longest first.
func take[K comparable](sums map[K]contention, order func(a, b K) int) []contended[K] {
	out := make([]contended[K], 0, len(sums))
	for k, c := range sums {
		out = append(out, contended[K]{k, c})
	}
	clear(sums)
	slices.SortFunc(out, func(a, b contended[K]) int { return cmp.Or(cmp.Compare(b.us, a.us), order(a.key, b.key)) })
	return out
}

// fold adds up those after the first most that less makes equal.
func fold[K comparable](all []contended[K], most int, less func(K) K) []contended[K] {
	if len(all) <= most {
		return all
	}
	out := slices.Clone(all[:most])
	for _, c := range all[most:] {
		key := less(c.key)
		i := slices.IndexFunc(out, func(o contended[K]) bool { return o.key == key })
		if i < 0 {
			out = append(out, contended[K]{key: key})
			i = len(out) - 1
		}
		out[i].join(c.contention)
	}
	return out
}
