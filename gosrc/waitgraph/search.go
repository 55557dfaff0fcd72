package waitgraph

import (
	"slices"

	"pg_lock_history/gosrc/history"
)

// search finds the strongly connected components of a graph, and the roots
// that each of them reaches (Tarjan's algorithm, without recursion). Nodes
// 0 to groups-1 are lock groups, those above only tie groups together.
type search struct {
	groups int32
	first  []int32 // first edge of each node
	edges  []edge

	number []int32 // order of discovery, from 1; 0 = not yet seen
	low    []int32 // least number known to be reachable
	of     []int32 // component of each node
	cursor []int32 // next edge to follow
	open   []int32 // nodes seen but not yet in a component
	path   []int32 // nodes being visited

	components []component
	arena      []int32 // root sets; several components may share one
	scratch    [2][]int32
}

type edge struct {
	to   int32
	next int32 // next edge of the same node
}

type component struct {
	roots   []int32 // sorted, at most MaxListed; never written again
	groups  int32   // lock groups in it
	members uint64  // see Builder.finish
}

// begin starts a graph of so many groups.
func (s *search) begin(groups int) {
	for i := range s.scratch {
		s.scratch[i] = slices.Grow(s.scratch[i][:0], history.MaxListed)
	}
	s.groups = int32(groups)
	s.first = s.first[:0]
	s.edges = s.edges[:0]
	for range groups {
		s.node()
	}
}

// node adds a node and returns its number.
func (s *search) node() int32 {
	s.first = append(s.first, none)
	return int32(len(s.first) - 1)
}

// edge says that from waits for to.
func (s *search) edge(from, to int32) {
	s.edges = append(s.edges, edge{to: to, next: s.first[from]})
	s.first[from] = int32(len(s.edges) - 1)
}

// run finds the components. groups says who waits: who does not is a root.
func (s *search) run(groups []Group) {
	n := len(s.first)
	s.number = zeroed(s.number, n)
	s.low = zeroed(s.low, n)
	s.of = zeroed(s.of, n)
	s.cursor = append(s.cursor[:0], s.first...)
	s.open, s.path = s.open[:0], s.path[:0]
	s.components, s.arena = s.components[:0], s.arena[:0]

	seen := int32(0)
	visit := func(v int32) {
		seen++
		s.number[v], s.low[v], s.of[v] = seen, seen, none
		s.open = append(s.open, v)
		s.path = append(s.path, v)
	}
	// The other nodes matter only as far as a group reaches them.
	for start := range s.groups {
		if s.number[start] != 0 {
			continue
		}
		visit(start)
		for len(s.path) > 0 {
			v := s.path[len(s.path)-1]
			if at := s.cursor[v]; at != none {
				to := s.edges[at].to
				s.cursor[v] = s.edges[at].next
				switch {
				case s.number[to] == 0:
					visit(to)
				case s.of[to] == none:
					s.low[v] = min(s.low[v], s.number[to])
				}
				continue
			}
			s.path = s.path[:len(s.path)-1]
			if len(s.path) > 0 {
				parent := s.path[len(s.path)-1]
				s.low[parent] = min(s.low[parent], s.low[v])
			}
			if s.low[v] == s.number[v] {
				s.close(v, groups)
			}
		}
	}
}

// close makes a component of v and the nodes found after it. What they reach
// outside has its component already.
func (s *search) close(v int32, groups []Group) {
	from := len(s.open) - 1
	for s.open[from] != v {
		from--
	}
	nodes := s.open[from:]
	s.open = s.open[:from]

	id := int32(len(s.components))
	c := component{}
	for _, node := range nodes {
		s.of[node] = id
		if node < s.groups {
			c.groups++
		}
	}
	for _, node := range nodes {
		if node < s.groups && !groups[node].Waits {
			// It has no edges, so it is alone in its component.
			s.arena = append(s.arena, node)
			c.roots = s.arena[len(s.arena)-1 : len(s.arena) : len(s.arena)]
			break
		}
		for at := s.first[node]; at != none; at = s.edges[at].next {
			if to := s.of[s.edges[at].to]; to != id {
				c.roots = s.unite(c.roots, s.components[to].roots)
			}
		}
	}
	if s.inScratch(c.roots) {
		at := len(s.arena)
		s.arena = append(s.arena, c.roots...)
		c.roots = s.arena[at:len(s.arena):len(s.arena)]
	}
	s.components = append(s.components, c)
}

// unite returns the least MaxListed of x and y: one of the two where that is
// enough (mostly: a queue shares its roots), else a scratch buffer. The least
// of a union are among the least of its parts, so nothing is lost on the way.
func (s *search) unite(x, y []int32) []int32 {
	switch {
	case len(x) == 0 || len(x) == len(y) && &x[0] == &y[0]:
		return y
	case len(y) == 0:
		return x
	}
	// x may be in one of the two buffers; y, a component's set, is in neither.
	merged := s.scratch[0][:0]
	if &merged[:1][0] == &x[0] {
		merged = s.scratch[1][:0]
	}
	i, j := 0, 0
	for len(merged) < history.MaxListed && (i < len(x) || j < len(y)) {
		switch {
		case j == len(y) || i < len(x) && x[i] < y[j]:
			merged = append(merged, x[i])
			i++
		case i == len(x) || y[j] < x[i]:
			merged = append(merged, y[j])
			j++
		default:
			merged = append(merged, x[i])
			i, j = i+1, j+1
		}
	}
	switch {
	case slices.Equal(merged, x):
		return x
	case slices.Equal(merged, y):
		return y
	}
	return merged
}

// inScratch reports whether roots lies in a buffer that the next unite writes.
func (s *search) inScratch(roots []int32) bool {
	if len(roots) == 0 {
		return false
	}
	for i := range s.scratch {
		if &roots[0] == &s.scratch[i][:1][0] {
			return true
		}
	}
	return false
}

// zeroed returns buf with n zeros.
func zeroed(buf []int32, n int) []int32 {
	buf = slices.Grow(buf[:0], n)[:n]
	clear(buf)
	return buf
}
