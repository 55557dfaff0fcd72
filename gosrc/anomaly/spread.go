package anomaly

import "math"

const (
	// A block counts the differences of half an hour, and 12 of them beside the
	// one that is being filled make 6 hours. Longer: more of a rare
	// disturbance is known; shorter: a change of the load is known earlier.
	blockBuckets = 180
	blocks       = 13

	// Differences are counted in steps of 15 %, from 0.05 to 54. Below a third
	// nothing is told apart anyway, by the floors of the limit.
	bins     = 52
	binFirst = 0.05
	binRatio = 1.15

	// normal makes a standard deviation of a median of absolute differences.
	normal = 1.4826
)

// spread is a trailing histogram of differences.
type spread struct {
	counts  [blocks][bins]uint8 // a block has at most blockBuckets
	filling int                 // the block that is
	filled  int                 // in it
	total   int                 // in all
}

func binOf(z float64) int {
	if z < binFirst {
		return 0
	}
	return min(1+int(math.Log(z/binFirst)/math.Log(binRatio)), bins-1)
}

func (p *spread) add(z float64) {
	if p.filled >= blockBuckets {
		p.turn()
	}
	p.counts[p.filling][binOf(z)]++
	p.filled++
	p.total++
}

// turn begins the next block, in place of the oldest.
func (p *spread) turn() {
	p.filling = (p.filling + 1) % blocks
	for _, n := range p.counts[p.filling] {
		p.total -= int(n)
	}
	p.counts[p.filling] = [bins]uint8{}
	p.filled = 0
}

// deviation is the spread as a standard deviation: the larger one of the whole
// and of the last half hour and what came after it.
func (p *spread) deviation() float64 {
	var all, lately [bins]int
	for b := range p.counts {
		for k, n := range p.counts[b] {
			all[k] += int(n)
		}
	}
	for _, b := range [...]int{p.filling, (p.filling + blocks - 1) % blocks} {
		for k, n := range p.counts[b] {
			lately[k] += int(n)
		}
	}
	return normal * max(median(&all), median(&lately))
}

// median of a histogram, within a bin by its share.
func median(counts *[bins]int) float64 {
	n := 0
	for _, c := range counts {
		n += c
	}
	if n == 0 {
		return 0
	}
	half, below := float64(n)/2, 0.0
	for k, c := range counts {
		if below+float64(c) >= half {
			if k == 0 {
				return 0
			}
			return binFirst * math.Pow(binRatio, float64(k-1)+(half-below)/float64(c))
		}
		below += float64(c)
	}
	return 0
}
