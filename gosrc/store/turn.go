package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/ring"
	"pg_lock_history/gosrc/snapshot"
)

const (
	// The size of the ring is asked for this often, or after so
	// many estimated bytes, or an eighth of its share. In between the estimate
	// is added, which is about twice of what the rows take.
	measurePeriod = 5 * time.Second
	measureBytes  = 1 << 20

	// analyzeFirst is after how many rows the current segment gets statistics,
	// and again each time they have doubled. Without any, the planner takes a
	// view of the last minutes for a big one and compiles it.
	analyzeFirst = 1000

	// sizeShare is the part of a segment's share that may go unmeasured, by all
	// nodes together; measureLeast is what each may write all the same.
	sizeShare    = 8
	measureLeast = 64 << 10
)

// makeRoom empties what is to be emptied, as far as nobody uses it, and says
// where the hand goes.
func (s *session) makeRoom(ctx context.Context, h *hand, c *config.Config) (ring.Decision, error) {
	var d ring.Decision
	for range ring.Segments {
		d = ring.Decide(&s.rows, s.ringTime(h), s.size(), ringSettings(c))
		if d.Action == ring.Stay || d.Action == ring.Advance {
			break
		}
		if !s.isRolled(ctx, d.Next, c) && d.Action != ring.Held {
			break // there is room for the time that it takes
		}
		emptied, err := s.emptySegment(ctx, d.Next, c)
		if err == nil && emptied {
			err = s.measure(ctx, c)
		}
		if err != nil {
			return d, err
		}
		if !emptied {
			break
		}
	}
	return d, nil
}

// isRolled reports whether the seconds of seg are in minutes, after a try. Whatever
// is wrong with that the writer tells, and must not stop the ring.
func (s *session) isRolled(ctx context.Context, seg int, c *config.Config) bool {
	r := &s.rows[seg]
	if r.ClosedAt == 0 || r.Empty || r.Rolled {
		return true
	}
	done, err := s.rollUp(ctx, seg, c)
	return err == nil && done
}

// emptySegment truncates seg unless somebody uses it. It never waits: a reader
// that we queued behind would make all later readers queue behind us. Locks are
// taken in the order of all who change the ring (run rows, ring rows, leaves),
// so that no two can wait for each other; see also sql/parts/56_reset.sql.
func (s *session) emptySegment(ctx context.Context, seg int, c *config.Config) (bool, error) {
	var tables []string
	for _, leaf := range leaves {
		tables = append(tables, "lock_history."+leafName(leaf, seg))
	}
	list := strings.Join(tables, ", ")
	err := s.transact(ctx, c, func(tx pgx.Tx) error {
		// Unless another node has opened it in the meantime.
		tag, err := tx.Exec(ctx, `
			SELECT FROM lock_history.ring
			 WHERE seg = $1::smallint AND round = $2::bigint AND (closed_at IS NOT NULL OR opened_at IS NULL)
			   FOR UPDATE NOWAIT`, seg, s.rows[seg].Round)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != 1 {
			return errMoved
		}
		if _, err := tx.Exec(ctx, `LOCK TABLE `+list+` IN ACCESS EXCLUSIVE MODE NOWAIT`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `TRUNCATE TABLE `+list); err != nil {
			return err
		}
		given, err := giveUpMinutes(ctx, tx, seg)
		if err != nil {
			return err
		}
		s.gaveUp = s.gaveUp || given
		_, err = tx.Exec(ctx, `UPDATE lock_history.ring SET is_empty = true, is_rolled = true WHERE seg = $1::smallint`, seg)
		return err
	})
	switch {
	case err == nil:
		s.rows[seg].Empty, s.rows[seg].Rolled, s.files[seg], s.measureAt = true, true, segmentFiles{}, time.Time{}
		return true, nil
	case isLocked(err):
		return false, nil
	case errors.Is(err, errMoved):
		return false, err
	default:
		return false, fmt.Errorf("empty segment %d: %w", seg, err)
	}
}

// advance opens the next segment within the transaction that writes its first
// rows, so that a segment is never open and without an owner.
func (s *session) advance(ctx context.Context, tx pgx.Tx, d ring.Decision, h *hand) error {
	at := s.opens(d, h).Time()
	tag, err := tx.Exec(ctx, `
		UPDATE lock_history.ring
		   SET round = round + 1, opened_at = $3::timestamptz, closed_at = NULL, holds_until = NULL, is_empty = false,
		       rolled_to = NULL, is_rolled = false
		 WHERE seg = $1::smallint AND round = $2::bigint AND is_empty`,
		d.Next, s.rows[d.Next].Round, at)
	if err != nil {
		return fmt.Errorf("open segment %d: %w", d.Next, err)
	}
	if tag.RowsAffected() != 1 {
		return errMoved // another node did
	}
	if d.Current < 0 {
		return nil
	}
	// Other nodes may have written what is later than this one is now: their
	// clocks may be ahead, and this one may be behind with its writing.
	if _, err := tx.Exec(ctx, `
		UPDATE lock_history.ring
		   SET closed_at = $2::timestamptz,
		       holds_until = greatest($2::timestamptz, $4::timestamptz,
		           (SELECT pg_catalog.max(r.heartbeat) FROM lock_history.run AS r WHERE r.node_id <> $3::int),
		           (SELECT pg_catalog.clock_timestamp() + pg_catalog.max(n.clock_offset) FROM lock_history.node AS n WHERE n.node_id <> $3::int))
		 WHERE seg = $1::smallint`, d.Current, at, s.nodeID, when(h.from)); err != nil {
		return fmt.Errorf("close segment %d: %w", d.Current, err)
	}
	return nil
}

// checkOpen makes sure, once its tables are locked, that segment seg is still open:
// another node may have closed it since the ring was read. What came into it after
// it has been added up by minute would be missing there; roll_up() is kept away by
// our locks.
func (s *session) checkOpen(ctx context.Context, tx pgx.Tx, seg int) error {
	tag, err := tx.Exec(ctx, `SELECT FROM lock_history.ring WHERE seg = $1::smallint AND round = $2::bigint AND closed_at IS NULL`,
		seg, s.rows[seg].Round)
	if err != nil {
		return fmt.Errorf("read the ring: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return errMoved
	}
	return nil
}

// ringTime is now, as far as the ring is concerned, which turns by the clock of
// the server that it is on: if it turned by that of each node, one whose clock is
// wrong by a day would open the next segment, and the others again the next, until
// nothing is left of anybody's history. At home it is the time of the facts; those
// of an earlier life do not turn it back.
func (s *session) ringTime(h *hand) snapshot.Micros {
	now := h.complete
	if !s.isHome {
		now = snapshot.FromTime(s.now().Add(-s.clock.offset))
	}
	if current := ring.Current(&s.rows); current >= 0 && (!s.isHome || h.run != 0) {
		now = max(now, s.rows[current].OpenedAt)
	}
	return now
}

// opens returns the moment from which on the segment to be opened has rows, by
// the clock of the ring.
func (s *session) opens(d ring.Decision, h *hand) (at snapshot.Micros) {
	at, complete := h.from, h.complete
	if at == 0 || at > complete {
		at = complete
	}
	if !s.isHome {
		at, complete = at.Add(-s.clock.offset), complete.Add(-s.clock.offset)
	}
	if d.Current >= 0 && at < s.rows[d.Current].OpenedAt && (complete >= s.rows[d.Current].OpenedAt || !s.isHome || h.run != 0) {
		at = s.rows[d.Current].OpenedAt
	}
	return at
}

// advanced takes note after the commit.
func (s *session) advanced(d ring.Decision, h *hand) {
	at := s.opens(d, h)
	if d.Current >= 0 {
		s.rows[d.Current].ClosedAt = at
	}
	s.rows[d.Next] = ring.Row{Round: s.rows[d.Next].Round + 1, OpenedAt: at}
	clear(s.actors)
	s.measured, s.written, s.measureAt = ring.Size{}, 0, time.Time{}
	s.rowsHere, s.analyzeAt = 0, analyzeFirst
}

// analyze gives a segment its statistics, by a function of the extension's owner:
// a writer that does not own the tables may not. Whoever holds a lock on them is
// not waited for; without statistics reading is slower, no more.
func (s *session) analyze(ctx context.Context, seg int) {
	// A broken session shows at the next write.
	_, _ = s.conn.Exec(ctx, `SELECT lock_history.analyze_segment($1::int)`, seg)
}

// measure asks for the size of the ring when it is time to, and finds out on
// the way whether all of it is still there: a table that was dropped by hand
// would else be missed only when its segment comes round.
func (s *session) measure(ctx context.Context, c *config.Config) error {
	limit := min(measureBytes, ringSettings(c).ShareSize()/sizeShare)
	if s.nodes > 1 {
		limit = max(limit/s.nodes, measureLeast)
	}
	if time.Now().Before(s.measureAt) && s.written < limit {
		return nil
	}
	current := ring.Current(&s.rows)
	if current < 0 {
		return nil
	}
	var open, all []string
	for _, leaf := range leaves {
		for seg := range ring.Segments {
			all = append(all, leafName(leaf, seg))
		}
		open = append(open, leafName(leaf, current))
	}
	for _, leaf := range minuteLeaves { // they count, though no segment is theirs
		for seg := range minuteSegments {
			all = append(all, leafName(leaf, seg))
		}
	}
	var size ring.Size
	var missing *string
	err := s.conn.QueryRow(ctx, `
		SELECT coalesce(pg_catalog.sum(t.size) FILTER (WHERE t.name = ANY ($2::text[])), 0)::bigint,
		       coalesce(pg_catalog.sum(t.size), 0)::bigint,
		       pg_catalog.min(t.name) FILTER (WHERE NOT t.is_there)
		  FROM (SELECT w.name, coalesce(c.relispartition, false) AS is_there, pg_catalog.pg_total_relation_size(c.oid) AS size
		          FROM pg_catalog.unnest($1::text[]) AS w(name)
		          LEFT JOIN pg_catalog.pg_class AS c
		            ON c.relname = w.name::name
		           AND c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'lock_history')) AS t`, all, open).
		Scan(&size.Current, &size.Total, &missing)
	if err != nil {
		return fmt.Errorf("ask for the size of the ring: %w", err)
	}
	if missing != nil {
		return fmt.Errorf("%w: lock_history.%s is missing or detached", errNotOurs, *missing)
	}
	s.measured, s.written, s.measureAt = size, 0, time.Now().Add(measurePeriod)
	return nil
}
