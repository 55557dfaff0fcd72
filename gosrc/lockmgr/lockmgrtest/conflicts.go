// Package lockmgrtest holds PostgreSQL's table of conflicting lock modes for
// tests that have no server. The library itself is handed the table by the
// server and must not import this package.
package lockmgrtest

import "pg_lock_history/gosrc/lockmgr"

// Conflicts returns the table of the server; it is the same in 13 to 19.
func Conflicts() lockmgr.Conflicts {
	table := [lockmgr.MaxMode + 1][]lockmgr.Mode{
		1: {8},
		2: {7, 8},
		3: {5, 6, 7, 8},
		4: {4, 5, 6, 7, 8},
		5: {3, 4, 6, 7, 8},
		6: {3, 4, 5, 6, 7, 8},
		7: {2, 3, 4, 5, 6, 7, 8},
		8: {1, 2, 3, 4, 5, 6, 7, 8},
	}
	var c lockmgr.Conflicts
	for mode, others := range table {
		for _, other := range others {
			c[mode] |= other.Bit()
		}
	}
	return c
}
