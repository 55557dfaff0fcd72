package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/ring"
)

const (
	// nameWait is how long a batch waits for names that nobody had asked for
	// early enough. Longer delays flush(), shorter costs names.
	nameWait = 500 * time.Millisecond

	// Names that came too late for their rows are waited for, so many for so
	// long. Open waits are written once more when they come.
	maxLate  = 1000
	lateWait = time.Minute

	// maxActors bounds the remembered actors, 16 bytes each and some. Beyond it
	// all are forgotten; the index knows them still.
	maxActors = 50_000

	// heldGapLength ends a gap that goes on, so that it can be read before
	// its end.
	heldGapLength = time.Minute

	// maxLosses bounds the times in a run row, 16 bytes each, that is written with every
	// batch. Beyond it they become one: of a wait that was lost then, less is known.
	maxLosses = 20

	keyHeld   = "store: held"
	keyGaveUp = "store: minutes given up"
)

// write brings the hand into the tables, or finds that there is no need to.
// That it is not in already, open has made sure of.
func (w *writer) write(ctx context.Context) error {
	h, s := w.hand, w.session
	if w.nothingToWrite(h) {
		w.done()
		w.succeeded()
		return nil
	}
	if err := checkAlive(s.conn); err != nil {
		return err
	}
	if !h.named {
		keys := wantedNames(h)
		w.names.resolve(ctx, keys, nameWait, w.stopping)
		w.expectNames(keys)
		h.named = true
	}

	before := s.seen()
	err := s.look(ctx, w.cfg)
	if err != nil {
		return err
	}
	w.meetOthers(before, s)
	if err := s.keepClock(ctx, w.cfg); err != nil {
		return err
	}
	if h.run != 0 {
		if err := s.learnKnown(ctx, h, w.cfg.FlushPeriod); err != nil {
			return err
		}
		if h.number <= h.known && len(h.gaps) == 0 {
			w.done() // all of it is in: that life's last commit had gone through
			w.succeeded()
			return nil
		}
	}
	d, err := s.makeRoom(ctx, h, w.cfg)
	if err != nil {
		return err
	}
	if s.gaveUp {
		s.gaveUp = false
		w.log.Add(report.Message{Level: report.Warning, Key: keyGaveUp,
			Text: "load by second had to be removed before it was added up by minute", Detail: "Load of that time is not known any more.",
			Hint: "See the messages before this one, and whether a session holds a lock on the tables in schema lock_history."})
	}
	seg := d.Current
	if d.Action == ring.Advance {
		seg = d.Next
	}
	// Held, or a new ring whose first segment somebody keeps: only gaps are
	// written, they explain the silence and take next to no room.
	held := d.Action == ring.Held || seg < 0
	w.hold(h, held)
	if h.run == 0 {
		h.lossFrom, h.lossTo = w.lossFrom, w.lossTo
	}

	dims, err := s.dimensionsOf(ctx, seg, isNewSegment(d))
	if err != nil {
		return err
	}
	r := newRows(h, s, w.names, w.cfg, dims, held)
	if h.run == 0 && s.missed != nil {
		r.gap(s.missed)
	}
	if err := s.dropKnownActors(ctx, r, seg, d.Action == ring.Advance); err != nil {
		return err
	}
	err = s.transact(ctx, w.cfg, func(tx pgx.Tx) error {
		// First the run row: see doc.go, "once".
		if err := s.beat(ctx, tx, h, w.cfg, seg, r.count()); err != nil {
			return err
		}
		if d.Action == ring.Advance {
			if err := s.advance(ctx, tx, d, h); err != nil {
				return err
			}
		}
		if detector := h.newestDetector(); detector != nil {
			if err := s.saveDetector(ctx, tx, h.complete, detector); err != nil {
				return err
			}
		}
		if seg < 0 {
			return nil
		}
		var check func() error
		if s.nodes > 1 && d.Action != ring.Advance {
			check = func() error { return s.checkOpen(ctx, tx, seg) }
		}
		return r.copyInto(ctx, tx, seg, check)
	})
	if err != nil {
		return fmt.Errorf("batch %d (%d rows) into segment %d: %w", h.number, r.count(), seg, err)
	}

	if h.run == 0 {
		s.batch = h.number
		if seg >= 0 {
			s.missed = nil
		}
		w.lastHeartbeat = h.complete
		w.lossFrom, w.lossTo = 0, 0
	}
	if seg >= 0 {
		dims.added = nil
		s.dims = dims
	}
	w.st.RowsWritten += uint64(r.count())
	if d.Action == ring.Advance {
		s.advanced(d, h)
		w.rewriteOpen.Store(true)
	}
	s.remember(r)
	s.written += h.bytes
	notices := w.notices(h)
	w.done()
	w.succeeded()
	w.notify(ctx, notices)
	if w.session == nil {
		return nil
	}
	if d.Action == ring.Advance && d.Current >= 0 {
		s.analyze(ctx, d.Current)
	}
	s.rowsHere += int64(r.count())
	if s.rowsHere >= s.analyzeAt {
		s.analyze(ctx, seg)
		s.analyzeAt = 2 * s.rowsHere
	}
	return nil
}

// expectNames notes which names the rows at hand have to do without.
func (w *writer) expectNames(keys []nameKey) {
	if missing := w.names.nameless(keys); len(missing) > 0 {
		w.late, w.lateUntil = missing[:min(len(missing), maxLate)], time.Now().Add(lateWait)
	}
}

// lateNames has open waits written again when names have come that their rows
// lack. What has ended keeps its numbers.
func (w *writer) lateNames() {
	if len(w.late) == 0 {
		return
	}
	missing := w.names.nameless(w.late)
	if len(missing) < len(w.late) {
		w.rewriteOpen.Store(true)
	}
	w.late = missing
	if time.Now().After(w.lateUntil) {
		w.late = nil // of what is gone there is no name
	}
}

// nothingToWrite: the history is complete as it is.
func (w *writer) nothingToWrite(h *hand) bool {
	if len(h.items) == 0 || len(h.gaps) > 0 || w.session.missed != nil {
		return false
	}
	for i := range h.items {
		if !h.items[i].Batch.Empty() {
			return false
		}
	}
	return h.complete.Sub(w.lastHeartbeat) < w.session.heartbeatEvery(w.cfg)
}

// heartbeatEvery is how long the run row may go without being written.
func (s *session) heartbeatEvery(c *config.Config) time.Duration {
	every := heartbeatIdle
	if !s.isHome {
		every = heartbeatAway
	}
	return min(every, ringSettings(c).ShareTime())
}

// hold keeps the account of what is dropped while the ring is held, and turns
// it into a gap when that ends or has gone on for long.
func (w *writer) hold(h *hand, held bool) {
	if held && h.rows > 0 && !h.dropped {
		h.dropped = true // once, however often the transaction is tried
		if w.held == nil {
			w.held = &history.Gap{Began: h.from, Reason: history.GapRingHeld, Detail: "a session kept the oldest segment from being emptied"}
			w.log.Add(report.Message{Level: report.Warning, Key: keyHeld, Text: "lock history is full and its oldest part is in use, new facts are dropped",
				Hint: "End the session that holds a lock on the tables in schema lock_history, or raise pg_lock_history.max_size."})
		}
		w.lose(h.from, h.complete)
		w.held.Ended = h.complete
		w.held.Lost += h.rows
		w.st.RowsDropped += uint64(h.rows)
	}
	if w.held == nil {
		return
	}
	switch {
	case !held:
		h.gaps = append(h.gaps, *w.held)
		w.held = nil
		w.log.Over(keyHeld)
		w.rewriteOpen.Store(true) // open waits were among what was dropped
	case w.held.Ended.Sub(w.held.Began) >= heldGapLength:
		h.gaps = append(h.gaps, *w.held)
		w.held.Began, w.held.Lost = w.held.Ended, 0
	}
}

// look learns what may have changed since the last transaction: by DROP and
// CREATE EXTENSION, by other nodes, by hand, by our own writing.
func (s *session) look(ctx context.Context, c *config.Config) error {
	ext, err := findExtension(ctx, s.conn)
	if err != nil {
		return err
	}
	if ext != s.ext {
		return errRecreated
	}
	before := s.seen()
	if err := s.readRing(ctx); err != nil {
		return err
	}
	now := s.seen()
	if now.seg != before.seg || before.isEmptied(now) { // another node went on, or reset()
		clear(s.actors)
		s.dims = nil
		s.measureAt = time.Time{}
		s.rowsHere, s.analyzeAt = 0, analyzeFirst
	}
	return s.measure(ctx, c)
}

// meetOthers looks whether another node has gone on to the next segment since, or
// somebody has emptied the current one by hand. Then open waits are needed again; and
// where ends of waits have gone, of whatever segment, nobody knows any more which of
// those in the tables had ended.
func (w *writer) meetOthers(before segmentSeen, s *session) {
	now := s.seen()
	if before.place == now.place && before.seg != now.seg {
		w.rewriteOpen.Store(true)
	}
	if before.isEmptied(now) {
		w.rewriteOpen.Store(true)
	}
	if openedAt, ok := s.endsEmptied(before); ok && w.lastComplete > 0 {
		w.rewriteOpen.Store(true)
		w.lose(openedAt, w.lastComplete)
	}
}

// beat raises the batch number, provided nobody else did. That many rows go to
// segment seg with it, which is -1 when there is none.
func (s *session) beat(ctx context.Context, tx pgx.Tx, h *hand, c *config.Config, seg, rows int) error {
	run, batch, number := s.run, s.batch, h.number
	if h.run != 0 {
		run, batch, number = h.run, h.known, max(h.number, h.known)
	}
	tag, err := tx.Exec(ctx, `
		UPDATE lock_history.run
		   SET heartbeat = $4::timestamptz, batch = $5::bigint, flush_period = pg_catalog.make_interval(secs => $6::float8),
		       oldest_open = coalesce($7::timestamptz, oldest_open),
		       lost = CASE WHEN $9::timestamptz IS NULL THEN lost
		                   WHEN (SELECT pg_catalog.count(*) FROM pg_catalog.unnest(lost)) < $10::int
		                   THEN lost + pg_catalog.tstzmultirange(pg_catalog.tstzrange(least($8::timestamptz, $9), $9, '[]'))
		                   -- what was written in between and still goes on was written again
		                   ELSE pg_catalog.tstzmultirange(pg_catalog.tstzrange(least($8, pg_catalog.lower(lost)), greatest($9, pg_catalog.upper(lost)), '[]')) END,
		       heartbeat_every = pg_catalog.make_interval(secs => $11::float8),
		       -- at home there is but one clock
		       written_at = CASE WHEN $12::bool THEN NULL ELSE pg_catalog.clock_timestamp() END,
		       last_seg = coalesce(nullif($13::smallint, -1), last_seg), rows = rows + $14::bigint
		 WHERE node_id = $1::int AND run = $2::bigint AND batch = $3::bigint`,
		s.nodeID, run, batch, h.complete.Time(), number, c.FlushPeriod.Seconds(), when(h.oldest), when(h.lossFrom), when(h.lossTo),
		maxLosses, s.heartbeatEvery(c).Seconds(), s.isHome, seg, rows)
	if err != nil {
		return fmt.Errorf("write the heartbeat: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return errChanged
	}
	return nil
}

// learnKnown asks up to which batch the tables have the run of a hand of an
// earlier life. Without its row (another history than then, or reset since) it
// is made.
func (s *session) learnKnown(ctx context.Context, h *hand, flushPeriod time.Duration) error {
	for range 2 {
		err := s.conn.QueryRow(ctx, `
			SELECT batch FROM lock_history.run WHERE node_id = $1::int AND run = $2::bigint`,
			s.nodeID, h.run).Scan(&h.known)
		if err == nil {
			break
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("find the earlier run %d: %w", h.run, err)
		}
		if err := makeRun(ctx, s.conn, s.nodeID, h.run, flushPeriod); err != nil {
			return err
		}
	}
	h.rows = 0
	for i := range h.items {
		if b := h.items[i].Batch; b.Number > h.known {
			h.rows += int64(b.Rows())
		}
	}
	return nil
}

// dropKnownActors leaves out of r the actors that are in segment seg already.
func (s *session) dropKnownActors(ctx context.Context, r *rowSet, seg int, empty bool) error {
	if empty || len(r.actors) == 0 {
		return nil
	}
	var ask []int64
	for id := range r.actors {
		if _, ok := s.actors[id]; ok {
			delete(r.actors, id)
		} else {
			ask = append(ask, id)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	rows, err := s.conn.Query(ctx, `
		SELECT actor_id FROM lock_history.`+leafName("actor", seg)+`
		 WHERE actor_id = ANY ($1::bigint[]) AND node_id = $2::int`, ask, s.nodeID)
	if err != nil {
		return fmt.Errorf("look for %d actors: %w", len(ask), err)
	}
	var id int64
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		delete(r.actors, id)
		s.actors[id] = struct{}{}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for %d actors: %w", len(ask), err)
	}
	return nil
}

// remember keeps in mind which actors are in the current segment now.
func (s *session) remember(r *rowSet) {
	if len(s.actors)+len(r.actors) > maxActors {
		clear(s.actors)
	}
	for id := range r.actors {
		s.actors[id] = struct{}{}
	}
}
