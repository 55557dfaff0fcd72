// Package ring is the arithmetic of the bounded history: 8 segments that are
// filled one after the other and truncated on coming round. It knows no
// database and no clock; the store reads the ring table, asks Decide and does
// what it says.
//
// A segment ends when it has been open for a seventh of the retention, or when
// it holds an eighth of max_size, whichever comes first. A seventh, because
// one of the eight is empty or about to be: just before a segment is closed,
// seven full ones reach back as far as the retention says.
//
// Emptying the next segment needs a moment without any reader in it, so it is
// begun ahead of need, when three quarters of the current share are used, and
// tried again at each flush. Earlier would cost history (at once: a seventh of
// it), later would leave no time to get a busy reader out of the way.
//
// While a reader keeps the next segment, the current one grows: by time
// without bound, since age alone fills no disk; by size up to twice its share.
// Then facts are dropped (Held).
//
// Several segments may have grown that way, one after the other, and max_size
// may have been made smaller. So the size of all of them counts too: from
// max_size on the oldest segment is emptied, wherever it is, and at max_size
// plus one share facts are dropped until that succeeds. All segments together
// never hold more, but for what one flush adds.
//
// Clocks go back. A segment that seems opened a little in the future has age
// 0. One that was opened more than a whole share ahead was stamped by a clock
// that has since been put right, and is closed, or it would stay open until
// the clock gets there.
package ring
