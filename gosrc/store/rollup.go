package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/ring"
	"pg_lock_history/gosrc/snapshot"
)

// minuteLeaves are the tables of the ring of minutes.
var minuteLeaves = [...]string{"minute", "minute_dim"}

const (
	// minuteSegments is their number, as in sql/parts/10_tables.sql. Each is
	// three relation locks for whoever reads load of old times.
	minuteSegments = 4

	// rollUpStep is how much of a segment becomes minutes in one transaction: a
	// tenth of a second of work for a busy server. More keeps the writer from
	// the next batch, less reads the dictionary more often.
	rollUpStep = 10 * time.Minute
	// rollUpTime is how long a turn of the writer may go on with it.
	rollUpTime = 100 * time.Millisecond
	// rollUpPause is the time until it is tried again when it has failed.
	rollUpPause = time.Minute

	// busyPause is the time until it is tried again when somebody was in the way.
	busyPause = 5 * time.Second

	keyRollUp = "store: roll-up"
)

// minuteSettings: minutes may take a quarter of max_size. All of what they take
// counts for it, see measure.
func minuteSettings(c *config.Config) ring.Settings {
	return ring.Settings{Retention: minuteRetention(c), MaxSize: c.MaxSize / 4, Parts: minuteSegments}
}

func minuteRetention(c *config.Config) time.Duration {
	if c.RollupRetention == 0 {
		return c.Retention
	}
	return c.RollupRetention
}

// rollUp goes on making minutes of closed segments, the oldest first. That it
// fails stops nothing else; a segment that cannot wait any longer is emptied
// without, see emptySegment.
func (w *writer) rollUp(ctx context.Context) {
	s := w.session
	if s == nil || time.Now().Before(s.rollUpAt) {
		return
	}
	seg := oldestUnrolled(&s.rows)
	if seg < 0 {
		return
	}
	_, err := s.rollUp(ctx, seg, w.cfg)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.rollUpAt = time.Now().Add(rollUpPause)
		w.st.Errors++
		w.log.Add(report.Message{Level: report.Warning, Key: keyRollUp, Text: "load by second could not be added up by minute: " + err.Error(),
			Hint: "It is tried again; load by second is kept meanwhile as far as max_size allows."})
		if s.conn.IsClosed() {
			w.disconnect()
		}
	default:
		w.log.Over(keyRollUp)
		if oldestUnrolled(&s.rows) >= 0 && !time.Now().Before(s.rollUpAt) {
			w.moreAt = time.Now().Add(rollUpTime) // what comes in is written first
		}
	}
}

// oldestUnrolled returns the segment that was closed first of those whose seconds
// are not in minutes, -1 for none.
func oldestUnrolled(rows *ring.Rows) int {
	oldest := -1
	for seg := range rows {
		r := &rows[seg]
		if r.ClosedAt == 0 || r.Empty || r.Rolled {
			continue
		}
		if oldest < 0 || r.OpenedAt < rows[oldest].OpenedAt {
			oldest = seg
		}
	}
	return oldest
}

// rollUp makes minutes of segment seg for a while and reports whether all are
// made. It never waits for another writer who is at it, nor for a reader.
func (s *session) rollUp(ctx context.Context, seg int, c *config.Config) (done bool, err error) {
	for began := time.Now(); !done && time.Since(began) < rollUpTime; {
		into, err := s.minuteSegment(ctx, s.rows[seg].OpenedAt, c)
		if err != nil {
			return false, err
		}
		if into.Action == ring.Held {
			s.rollUpAt = time.Now().Add(busyPause)
			return false, nil
		}
		err = s.transact(ctx, c, func(tx pgx.Tx) error {
			target := into.Current
			if into.Action == ring.Advance {
				target = into.Next
				if err := s.openMinutes(ctx, tx, into, seg); err != nil {
					return err
				}
			}
			return tx.QueryRow(ctx, `SELECT lock_history.roll_up($1::smallint, $2::smallint, $3::interval)`, seg, target, rollUpStep).Scan(&done)
		})
		switch {
		case isLocked(err), errors.Is(err, errMoved): // another writer is at it
			s.rollUpAt = time.Now().Add(busyPause)
			return false, nil
		case err != nil:
			return false, fmt.Errorf("segment %d: %w", seg, err)
		}
		s.written += rollUpBytes
	}
	if done {
		s.rows[seg].Rolled = true
		for minutes := range minuteSegments {
			s.analyze(ctx, minutes)
		}
	}
	return done, nil
}

// rollUpBytes is about what a step adds to the tables.
const rollUpBytes = 64 << 10

// minuteSegment says where minutes from now on go, and empties what is to be emptied of
// their ring as far as nobody uses it.
func (s *session) minuteSegment(ctx context.Context, now snapshot.Micros, c *config.Config) (ring.Decision, error) {
	var d ring.Decision
	for range minuteSegments {
		var rows ring.Rows
		var size ring.Size
		answer, err := s.conn.Query(ctx, `
			SELECT r.seg, r.round, r.opened_at, r.closed_at, r.is_empty,
			       pg_catalog.pg_total_relation_size(('lock_history.minute_' || r.seg)::pg_catalog.regclass)
			       + pg_catalog.pg_total_relation_size(('lock_history.minute_dim_' || r.seg)::pg_catalog.regclass)
			  FROM lock_history.minute_ring AS r`)
		if err != nil {
			return d, fmt.Errorf("read the ring of minutes: %w", err)
		}
		var seg int
		var r ring.Row
		var opened, closed *time.Time
		var bytes int64
		_, err = pgx.ForEachRow(answer, []any{&seg, &r.Round, &opened, &closed, &r.Empty, &bytes}, func() error {
			if seg < 0 || seg >= minuteSegments {
				return fmt.Errorf("%w: the ring of minutes has a segment %d", errNotOurs, seg)
			}
			r.OpenedAt, r.ClosedAt = micros(opened), micros(closed)
			rows[seg] = r
			size.Total += bytes
			if r.OpenedAt != 0 && r.ClosedAt == 0 {
				size.Current = bytes
			}
			return nil
		})
		if err != nil {
			return d, fmt.Errorf("read the ring of minutes: %w", err)
		}
		s.minutes = rows
		d = ring.Decide(&rows, now, size, minuteSettings(c))
		if d.Action == ring.Stay || d.Action == ring.Advance {
			break
		}
		emptied, err := s.emptyMinutes(ctx, d.Next, now, c)
		if err != nil {
			return d, err
		}
		if !emptied {
			break
		}
	}
	if d.Action != ring.Advance && d.Current < 0 {
		d.Action = ring.Held // the first segment of a new ring is in use
	}
	return d, nil
}

// openMinutes opens the next segment of minutes. It begins with what the segment
// that is rolled up has: that far back minutes are complete.
func (s *session) openMinutes(ctx context.Context, tx pgx.Tx, d ring.Decision, from int) error {
	at := s.rows[from].OpenedAt.Time()
	tag, err := tx.Exec(ctx, `
		UPDATE lock_history.minute_ring
		   SET round = round + 1, opened_at = $3::timestamptz, closed_at = NULL, is_empty = false
		 WHERE seg = $1::smallint AND round = $2::bigint AND is_empty`,
		d.Next, s.minutes[d.Next].Round, at)
	if err != nil {
		return fmt.Errorf("open segment %d of minutes: %w", d.Next, err)
	}
	if tag.RowsAffected() != 1 {
		return errMoved
	}
	if d.Current < 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, `
		UPDATE lock_history.minute_ring SET closed_at = greatest($2::timestamptz, opened_at) WHERE seg = $1::smallint`, d.Current, at); err != nil {
		return fmt.Errorf("close segment %d of minutes: %w", d.Current, err)
	}
	return nil
}

// emptyMinutes truncates a segment of minutes unless somebody uses it, by the
// rules of emptySegment.
func (s *session) emptyMinutes(ctx context.Context, seg int, now snapshot.Micros, c *config.Config) (bool, error) {
	var tables []string
	for _, leaf := range minuteLeaves {
		tables = append(tables, "lock_history."+leafName(leaf, seg))
	}
	list := strings.Join(tables, ", ")
	err := s.transact(ctx, c, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			SELECT FROM lock_history.minute_ring
			 WHERE seg = $1::smallint AND round = $2::bigint AND (closed_at IS NOT NULL OR opened_at IS NULL)
			   FOR UPDATE NOWAIT`, seg, s.minutes[seg].Round)
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
		if _, err := tx.Exec(ctx, `DELETE FROM lock_history.minute_gap WHERE ended < $1::timestamptz`, now.Time().Add(-minuteRetention(c))); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE lock_history.minute_ring SET is_empty = true WHERE seg = $1::smallint`, seg)
		return err
	})
	switch {
	case err == nil:
		return true, nil
	case isLocked(err):
		return false, nil
	case errors.Is(err, errMoved):
		return false, err
	default:
		return false, fmt.Errorf("empty segment %d of minutes: %w", seg, err)
	}
}

// giveUpMinutes notes that there will be no minutes of what segment seg still has
// to be rolled up of, for every node: it is about to be emptied.
func giveUpMinutes(ctx context.Context, tx pgx.Tx, seg int) (given bool, err error) {
	tag, err := tx.Exec(ctx, `
		INSERT INTO lock_history.minute_gap (node_id, source, began, ended)
		SELECT n.node_id, r.round * 8 + r.seg, greatest(r.rolled_to, r.opened_at), greatest(r.rolled_to, r.closed_at)
		  FROM lock_history.ring AS r
		 CROSS JOIN lock_history.node AS n
		 WHERE r.seg = $1::smallint AND r.closed_at IS NOT NULL AND NOT r.is_empty AND NOT r.is_rolled`, seg)
	if err != nil {
		return false, fmt.Errorf("give up minutes of segment %d: %w", seg, err)
	}
	return tag.RowsAffected() > 0, nil
}
