package episode

import "pg_lock_history/gosrc/snapshot"

// Keys at the end of a queue are the wait start in units of 1/4096 µs, so that
// they ascend by themselves, also from one life of the worker to the next, and
// leave room for queue jumpers: 12 in a row between two waits that began 1 µs
// apart, 22 where it was 1 ms. After that the one behind gets a new key.
const (
	keysPerMicro = 1 << 12
	keyGap       = keysPerMicro

	// maxKeyedStart keeps a nonsense start (the year 2035 is 2^50) from
	// overflowing; such a wait is placed by its neighbour alone.
	maxKeyedStart = snapshot.Micros(1) << 50
)

// assignQueueKeys makes the keys of one queue ascend: it gives keys to those
// that have none, and others to those that the server moved ahead or behind.
func assignQueueKeys(queue []*wait) {
	prev, havePrev := int64(0), false
	for i := 0; i < len(queue); {
		// The next one, at `to`, whose key can stay, and how many stand before it.
		to := i
		for to < len(queue) && !(queue[to].keyed && (!havePrev || queue[to].queueKey > prev)) {
			to++
		}
		for to < len(queue) && havePrev && (queue[to].queueKey-prev)/int64(to-i+1) == 0 {
			to++ // no room in between: that one moves too
			for to < len(queue) && !(queue[to].keyed && queue[to].queueKey > prev) {
				to++
			}
		}
		for n := i; n < to; n++ {
			key := queue[n].arrivalKey()
			switch {
			case to < len(queue) && havePrev:
				key = prev + (queue[to].queueKey-prev)/int64(to-n+1)
			case to < len(queue):
				key = queue[to].queueKey - int64(to-n)*keyGap
			case havePrev:
				key = max(key, prev+keyGap)
			}
			queue[n].setKey(key)
			prev, havePrev = key, true
		}
		if to < len(queue) {
			prev, havePrev = queue[to].queueKey, true
		}
		i = to + 1
	}
}

func (w *wait) arrivalKey() int64 {
	if w.start <= 0 || w.start >= maxKeyedStart {
		return 0
	}
	return int64(w.start) * keysPerMicro
}

func (w *wait) setKey(key int64) {
	w.changed = w.changed || !w.keyed || w.queueKey != key
	w.queueKey, w.keyed = key, true
}
