package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/config"
)

const (
	// clockTries is how often the other clock is asked; the quickest answer counts.
	clockTries = 3

	// clockPeriod is how often the offset is measured anew while a session lasts:
	// clocks that nobody sets drift by some milliseconds in that time.
	clockPeriod = 10 * time.Minute
)

// clock is how far the clock of the watched server is ahead of that of the server
// with the history, right to err. Zero at home.
type clock struct {
	offset, err time.Duration
	readAt      time.Time
}

// readClock measures the offset: the answer was given at some moment between
// question and receipt, so half of the round trip is the error, whatever the way
// to and fro takes.
func (s *session) readClock(ctx context.Context) error {
	c := clock{readAt: time.Now()}
	if s.isHome {
		s.clock = c
		return nil
	}
	for i := range clockTries {
		var there time.Time
		asked := s.now()
		if err := s.conn.QueryRow(ctx, `SELECT pg_catalog.clock_timestamp()`).Scan(&there); err != nil {
			return fmt.Errorf("ask for the time: %w", err)
		}
		half := s.now().Sub(asked) / 2
		if i == 0 || half < c.err {
			c.err = half
			// Round: there is no monotonic clock that both have.
			c.offset = asked.Round(0).Add(half).Sub(there)
		}
	}
	s.clock = c
	return nil
}

// noteClock writes it beside the node, as far as it says something new.
func (s *session) noteClock(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `
		UPDATE lock_history.node AS n
		   SET clock_offset = v.clock_offset, clock_error = v.clock_error, clock_at = pg_catalog.clock_timestamp()
		  FROM (SELECT pg_catalog.make_interval(secs => $2::float8) AS clock_offset, pg_catalog.make_interval(secs => $3::float8) AS clock_error) AS v
		 WHERE n.node_id = $1::int
		   AND NOT ($4::bool AND n.clock_offset IS NOT DISTINCT FROM v.clock_offset)`,
		s.nodeID, s.clock.offset.Seconds(), s.clock.err.Seconds(), s.isHome)
	if err != nil {
		return fmt.Errorf("write down the clock of node %d: %w", s.nodeID, err)
	}
	return nil
}

// keepClock measures again when it is time to.
func (s *session) keepClock(ctx context.Context, c *config.Config) error {
	if s.isHome || time.Since(s.clock.readAt) < clockPeriod {
		return nil
	}
	if err := s.readClock(ctx); err != nil {
		return err
	}
	return s.transact(ctx, c, func(tx pgx.Tx) error { return s.noteClock(ctx, tx) })
}
