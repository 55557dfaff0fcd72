package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/snapshot"
)

// DetectorState returns, once, what an earlier life has left of the anomaly
// detector, nil for nothing; known is false until the tables have been read.
func (s *Store) DetectorState() (state []byte, known bool) {
	if found := s.detector.Swap(nil); found != nil {
		return *found, true
	}
	return nil, false
}

// fetchDetector reads it in the first session of this life. Later ones would
// find what this life has written itself, or, elsewhere, what is older.
func (w *writer) fetchDetector(ctx context.Context, s *session) error {
	if w.fetched {
		return nil
	}
	var state []byte
	err := s.conn.QueryRow(ctx, `
		SELECT state FROM lock_history.detector WHERE node_id = $1::int`, s.nodeID).Scan(&state)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read what is known of the usual load: %w", err)
	}
	w.fetched = true
	w.detector.Store(&state)
	return nil
}

// newestDetector returns the last state in the hand, nil for none.
func (h *hand) newestDetector() []byte {
	for i := len(h.items) - 1; i >= 0; i-- {
		if b := h.items[i].Batch; len(b.Detector) > 0 && (h.run == 0 || b.Number > h.known) {
			return b.Detector
		}
	}
	return nil
}

// saveDetector keeps it for the next life, in the transaction of the rows that
// it belongs to: an anomaly is open in both or in none.
func (s *session) saveDetector(ctx context.Context, tx pgx.Tx, at snapshot.Micros, state []byte) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO lock_history.detector AS d (node_id, written_at, state)
		VALUES ($1::int, $2::timestamptz, $3::bytea)
		ON CONFLICT (node_id) DO UPDATE SET written_at = excluded.written_at, state = excluded.state`,
		s.nodeID, at.Time(), state)
	if err != nil {
		return fmt.Errorf("keep what is known of the usual load (%d bytes): %w", len(state), err)
	}
	return nil
}
