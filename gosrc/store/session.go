package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/ring"
	"pg_lock_history/gosrc/snapshot"
)

// leaves are the tables that are cut into segments, in the order in which they
// are locked and written.
var leaves = [...]string{"actor", "episode", "open", "short_wait", "deadlock", "conflict", "anomaly", "dim", "second", "lwlock", "page", "wait_length", "fastpath", "hungry", "gap", "health_minute"}

// errRecreated: the extension was dropped and created again.
var errRecreated = errors.New("extension was created anew")

// errMoved: the ring is not any more as it was read, another writer has turned it.
var errMoved = errors.New("another writer has turned the ring")

// place tells apart the tables that a life of the worker has written to, each
// node's for itself. A server that was started anew since counts as another.
type place struct {
	started   snapshot.Micros // of the server there
	database  uint32
	extension uint32
	node      int32
}

type extension struct {
	oid     uint32
	version string
}

// session is a connection to the history and what was learnt through it.
type session struct {
	conn      *pgx.Conn
	ext       extension
	nodeID    int32
	run       int64
	batch     int64 // number in the run row
	fresh     bool  // the run row is new: the tables know nothing of this run
	heartbeat snapshot.Micros
	place     place
	isHome    bool              // the history is on the very server that is watched
	params    map[string]string // set in each transaction; nil: in the session
	clock     clock
	now       func() time.Time // the clock of the watched server
	missed    *history.Gap     // what went elsewhere before this session; nil when written
	rows      ring.Rows
	files     [ring.Segments]segmentFiles
	nodes     int64               // that have a history here
	encode    func(string) string // makes valid UTF-8 fit the database's encoding

	actors    map[int64]struct{} // known to be in the current segment
	dims      *dimensions        // of the current segment; nil: to be read
	minutes   ring.Rows          // of the ring of minutes, as last read
	rollUpAt  time.Time          // not rolled up before
	gaveUp    bool               // minutes that could not be made in time; told by the writer
	owed      []history.Gap      // found on entering, for which there was no segment
	measured  ring.Size          // when last asked
	written   int64              // estimate of what was added since
	measureAt time.Time          // when to ask again

	// The batch whose open waits were last made rows of, and when that is said to have been.
	lastOpen struct {
		number int64
		at     snapshot.Micros
	}

	// Rows that this session wrote to the current segment, and at how many of
	// them it gets new statistics.
	rowsHere  int64
	analyzeAt int64
}

// files are the files of those leaves of a segment of whose rows we remember, or
// readers take for granted, that they are there. TRUNCATE gives them others, and so
// does VACUUM FULL. All 0: not known.
type segmentFiles struct{ actor, dim, open, episode uint32 }

// segmentSeen is a segment that was open, with its files.
type segmentSeen struct {
	place place
	seg   int // -1: none
	round int64
	files segmentFiles
	ends  [ring.Segments]endsSeen // of all segments
}

// endsSeen is where a segment has the ends of waits.
type endsSeen struct {
	round int64
	file  uint32 // 0: nowhere, or not known
}

// seen is the segment that is open now.
func (s *session) seen() segmentSeen {
	current := ring.Current(&s.rows)
	if current < 0 {
		return segmentSeen{seg: current}
	}
	seen := segmentSeen{place: s.place, seg: current, round: s.rows[current].Round, files: s.files[current]}
	for seg := range s.rows {
		if !s.rows[seg].Empty {
			seen.ends[seg] = endsSeen{s.rows[seg].Round, s.files[seg].episode}
		}
	}
	return seen
}

// endsEmptied is when the oldest of the segments was opened whose ends of waits were
// emptied since before, by others than the ring; false when there is none.
func (s *session) endsEmptied(before segmentSeen) (openedAt snapshot.Micros, ok bool) {
	now := s.seen()
	if before.seg < 0 || before.place != now.place {
		return 0, false
	}
	for seg, was := range before.ends {
		is := now.ends[seg]
		if was.file == 0 || is.file == 0 || is.round != was.round || is.file == was.file {
			continue
		}
		if at := s.rows[seg].OpenedAt; !ok || at < openedAt {
			openedAt, ok = at, true
		}
	}
	return openedAt, ok
}

// isEmptied reports whether it has been given other files since.
func (before segmentSeen) isEmptied(now segmentSeen) bool {
	files := now.files
	now.files, now.ends = before.files, before.ends
	return before.seg >= 0 && before.files != (segmentFiles{}) && before == now && before.files != files
}

// size estimates what the ring takes.
func (s *session) size() ring.Size {
	return ring.Size{Current: s.measured.Current + s.written, Total: s.measured.Total + s.written}
}

// openSession connects and makes node, run and ring known. It fails with
// errNoExtension when there is nothing to write to.
func openSession(ctx context.Context, d *door, t target, c *config.Config, earlier []history.Run, now func() time.Time) (*session, error) {
	conn, err := dial(ctx, d, t, c)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, now: now, run: int64(c.Server.WorkerStart), analyzeAt: analyzeFirst, actors: make(map[int64]struct{})}
	if isPooled(conn) {
		s.params = transactionParams(&t)
	}
	if err := s.learn(ctx, c, earlier); err != nil {
		hangUp(conn)
		return nil, &attempt{err: err, database: conn.Config().Database, user: conn.Config().User, server: serversOf(conn)}
	}
	return s, nil
}

// target says where history is written, without any secret.
func (s *session) target() string {
	c := s.conn.Config()
	host, port := c.Host, strconv.Itoa(int(c.Port))
	if strings.Contains(serversOf(s.conn), ",") { // which of them
		host, port = addressOf(s.conn.PgConn().Conn().RemoteAddr())
	}
	return fmt.Sprintf("host=%s port=%s dbname=%s user=%s", host, port, c.Database, c.User)
}

// addressOf takes an address apart as conninfo would have it.
func addressOf(a net.Addr) (host, port string) {
	if dir, file := filepath.Split(a.String()); a.Network() == "unix" {
		return filepath.Clean(dir), strings.TrimPrefix(file, ".s.PGSQL.")
	}
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String(), ""
	}
	return host, port
}

func (s *session) learn(ctx context.Context, c *config.Config, earlier []history.Run) error {
	var err error
	if s.ext, err = findExtension(ctx, s.conn); err != nil {
		return err
	}
	if s.ext.version != c.Server.ExtensionVersion {
		return &versionError{extension: s.ext.version, libraries: c.Server.ExtensionVersion}
	}
	if err := checkTables(ctx, s.conn); err != nil {
		return err
	}
	// The transaction below would find it too, but changes tables first.
	if err := checkPublished(ctx, s.conn, c); err != nil {
		return err
	}
	var encoding string
	var started time.Time
	err = s.conn.QueryRow(ctx, `
		SELECT pg_catalog.current_setting('server_encoding'), pg_catalog.pg_postmaster_start_time(), d.oid
		  FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()`).
		Scan(&encoding, &started, &s.place.database)
	if err != nil {
		return fmt.Errorf("ask for encoding and identity of the database: %w", err)
	}
	s.place.started, s.place.extension = snapshot.FromTime(started), s.ext.oid
	s.isHome = s.place.started == c.Server.PostmasterStart
	if err := s.readClock(ctx); err != nil {
		return err
	}
	s.encode = func(t string) string { return t }
	if encoding != "UTF8" && encoding != "SQL_ASCII" {
		s.encode = querytext.ASCII // what can be converted is not known here
	}
	if err := s.readRing(ctx); err != nil {
		return err
	}
	return s.transact(ctx, c, func(tx pgx.Tx) error {
		if err := s.enterNode(ctx, tx, c); err != nil {
			return err
		}
		s.place.node = s.nodeID
		if err := s.noteClock(ctx, tx); err != nil {
			return err
		}
		return s.enterRuns(ctx, tx, c, earlier)
	})
}

func findExtension(ctx context.Context, conn *pgx.Conn) (extension, error) {
	var e extension
	err := conn.QueryRow(ctx, `
		SELECT e.oid, e.extversion
		  FROM pg_catalog.pg_extension AS e
		 WHERE e.extname = 'pg_lock_history'`).Scan(&e.oid, &e.version)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, errNoExtension
	}
	if err != nil {
		return e, fmt.Errorf("look for the extension: %w", err)
	}
	return e, nil
}

// checkTables refuses tables through which somebody else's code could run with
// the rights of the writer, which usually is a superuser. An owner who has fewer
// rights could add such code at any time after we have looked.
func checkTables(ctx context.Context, conn *pgx.Conn) error {
	names := []string{"node", "run", "ring", "detector", "minute_ring", "minute_gap"}
	for _, leaf := range leaves {
		names = append(names, leaf)
		for seg := range ring.Segments {
			names = append(names, leafName(leaf, seg))
		}
	}
	for _, leaf := range minuteLeaves {
		names = append(names, leaf)
		for seg := range minuteSegments {
			names = append(names, leafName(leaf, seg))
		}
	}
	var bad *string
	err := conn.QueryRow(ctx, `
		SELECT pg_catalog.min(w.name || CASE
		           WHEN c.oid IS NULL THEN ' is missing'
		           WHEN c.relowner <> e.extowner THEN ' has another owner'
		           WHEN me.rolsuper AND NOT o.rolsuper THEN ' belongs to role ' || pg_catalog.quote_ident(o.rolname) || ', which is no superuser as the writer is (REASSIGN OWNED BY ' || pg_catalog.quote_ident(o.rolname) || ' TO ' || pg_catalog.quote_ident(me.rolname) || ')'
		           WHEN c.relhasrules THEN ' has a rule'
		           WHEN c.relrowsecurity THEN ' has row security'
		           WHEN w.name ~ '_[0-7]$' AND NOT c.relispartition THEN ' is detached'
		           ELSE ' has a trigger' END)
		           FILTER (WHERE c.oid IS NULL OR c.relowner <> e.extowner OR me.rolsuper AND NOT o.rolsuper OR c.relhasrules OR c.relrowsecurity
		                      OR w.name ~ '_[0-7]$' AND NOT c.relispartition
		                      OR EXISTS (SELECT FROM pg_catalog.pg_trigger AS t
		                                  WHERE t.tgrelid = c.oid AND NOT t.tgisinternal))
		  FROM pg_catalog.unnest($1::text[]) AS w(name)
		 CROSS JOIN pg_catalog.pg_extension AS e
		  JOIN pg_catalog.pg_roles AS me ON me.rolname = current_user
		  LEFT JOIN (SELECT t.* FROM pg_catalog.pg_class AS t
		               JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace AND n.nspname = 'lock_history'
		              WHERE t.relkind IN ('r', 'p')) AS c ON c.relname = w.name::name
		  LEFT JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner
		 WHERE e.extname = 'pg_lock_history'`,
		names).Scan(&bad)
	if err != nil {
		return fmt.Errorf("check the history tables: %w", err)
	}
	if bad != nil {
		return fmt.Errorf("%w: lock_history.%s", errNotOurs, *bad)
	}
	return nil
}

// enterNode finds this server's row or makes it.
func (s *session) enterNode(ctx context.Context, tx pgx.Tx, c *config.Config) error {
	node := s.encode(querytext.Sanitize(c.NodeName, 256))
	sysid, version := int64(c.Server.SystemIdentifier), c.Server.VersionNum
	var stored int64
	var storedVersion int
	find := func() error {
		return tx.QueryRow(ctx, `
			SELECT node_id, system_identifier, server_version_num
			  FROM lock_history.node WHERE node = $1::text`, node).
			Scan(&s.nodeID, &stored, &storedVersion)
	}
	err := find()
	if errors.Is(err, pgx.ErrNoRows) {
		_, err = tx.Exec(ctx, `
			INSERT INTO lock_history.node (node, system_identifier, server_version_num, first_seen)
			VALUES ($1::text, $2::bigint, $3::int, $4::timestamptz)
			ON CONFLICT (node) DO NOTHING`,
			node, sysid, version, c.Server.WorkerStart.Time())
		if err == nil {
			err = find()
		}
	}
	if err != nil {
		return fmt.Errorf("enter node %q: %w", c.NodeName, err)
	}
	if stored == sysid && storedVersion == version {
		return nil
	}
	if stored != sysid && c.ConnInfo != "" {
		return fmt.Errorf("%w: %q has system identifier %d, this server %d", errNodeTaken, c.NodeName, uint64(stored), uint64(sysid))
	}
	// In its own database the server is itself, also after pg_upgrade.
	_, err = tx.Exec(ctx, `
		UPDATE lock_history.node SET system_identifier = $2::bigint, server_version_num = $3::int
		 WHERE node_id = $1::int`, s.nodeID, sysid, version)
	if err != nil {
		return fmt.Errorf("update node %q: %w", c.NodeName, err)
	}
	return nil
}

// enterRuns finds the row of this life of the worker, or makes it. Earlier lives
// that could not write at all come first: each has a gap before it.
func (s *session) enterRuns(ctx context.Context, tx pgx.Tx, c *config.Config, earlier []history.Run) error {
	var before end // of the life before
	for _, r := range earlier {
		if r.ID >= s.run {
			continue // the clock was set back: not to be told from ours by its order
		}
		if _, err := s.enterRun(ctx, tx, c, r.ID, before); err != nil {
			return err
		}
		before = end{at: r.CompleteTo, inOrder: true}
	}
	if flushed := c.Server.PreviousFlush; flushed > before.at {
		before = end{at: flushed} // another life, which has left nothing
	}
	made, err := s.enterRun(ctx, tx, c, s.run, before)
	if err != nil {
		return err
	}
	if !made {
		var heartbeat time.Time
		err := tx.QueryRow(ctx, `
			SELECT batch, heartbeat FROM lock_history.run WHERE node_id = $1::int AND run = $2::bigint`,
			s.nodeID, s.run).Scan(&s.batch, &heartbeat)
		if err != nil {
			return fmt.Errorf("find run %d: %w", s.run, err)
		}
		s.heartbeat = snapshot.FromTime(heartbeat)
		return nil
	}
	s.fresh, s.heartbeat = true, c.Server.WorkerStart
	// Rows may outlive the retention by the growth of a segment; twice of it
	// is past any row that could name such a run.
	_, err = tx.Exec(ctx, `
		DELETE FROM lock_history.run WHERE node_id = $1::int AND heartbeat < $2::timestamptz AND run < $3::bigint`,
		s.nodeID, c.Server.WorkerStart.Time().Add(-2*c.Retention), s.run)
	if err != nil {
		return fmt.Errorf("remove old runs: %w", err)
	}
	return nil
}

// end is up to when the history of a life is complete, as far as others than the
// tables know. One that ended in order has handed over the second of its end as well.
type end struct {
	at      snapshot.Micros // 0: they do not know
	inOrder bool
}

// What is told of a life that did not end in order. Load takes a gap with a detail
// for one that begins with its second: see load_hole() in sql/parts/48_minutes.sql.
const (
	endedUnseen     = "from the last heartbeat on; a server where nobody waits writes one every 15 minutes"
	endedInDisorder = "the worker did not end in order"
)

// enterRun makes sure of the row of a life of the worker and reports whether it
// had to be made. Then the time since the life before becomes a gap in the same
// transaction; last is how that one ended.
func (s *session) enterRun(ctx context.Context, tx pgx.Tx, c *config.Config, run int64, last end) (made bool, err error) {
	var there bool
	var before *time.Time
	err = tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM lock_history.run WHERE node_id = $1::int AND run = $2::bigint),
		       (SELECT heartbeat FROM lock_history.run WHERE node_id = $1::int AND run < $2::bigint ORDER BY run DESC LIMIT 1)`,
		s.nodeID, run).Scan(&there, &before)
	if err != nil {
		return false, fmt.Errorf("find run %d: %w", run, err)
	}
	if there {
		return false, nil
	}
	started := snapshot.Micros(run).Time()
	if before != nil {
		// An idle server's heartbeat is old; what the last life wrote, or had
		// no need to, may be known better.
		began, detail := *before, endedUnseen
		if at := last.at.Time(); !at.Before(began) && at.Before(started) {
			if began, detail = at, ""; !last.inOrder {
				detail = endedInDisorder
			}
		}
		seg := ring.Current(&s.rows)
		switch {
		case !began.Before(started):
		case seg < 0: // new or reset: it goes with the first rows
			s.owed = append(s.owed, history.Gap{Began: snapshot.FromTime(began), Ended: snapshot.FromTime(started),
				Reason: history.GapStopped, Detail: detail})
		default:
			_, err = tx.Exec(ctx, `
				INSERT INTO lock_history.`+leafName("gap", seg)+` (seg, node_id, run, began, ended, reason, lost, detail)
				VALUES ($1::smallint, $2::int, $3::bigint, $4::timestamptz, $5::timestamptz, $6::text, 0, nullif($7::text, ''))`,
				seg, s.nodeID, run, began, started, string(history.GapStopped), detail)
			if err != nil {
				return false, fmt.Errorf("write the gap before run %d: %w", run, err)
			}
		}
	}
	return true, makeRun(ctx, tx, s.nodeID, run, c.FlushPeriod)
}

// makeRun makes the row of a life that has written nothing, unless it is there.
func makeRun(ctx context.Context, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, nodeID int32, run int64, flushPeriod time.Duration) error {
	_, err := db.Exec(ctx, `
		INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period)
		VALUES ($1::int, $2::bigint, $3::timestamptz, $3::timestamptz, 0, pg_catalog.make_interval(secs => $4::float8))
		ON CONFLICT (node_id, run) DO NOTHING`,
		nodeID, run, snapshot.Micros(run).Time(), flushPeriod.Seconds())
	if err != nil {
		return fmt.Errorf("enter run %d: %w", run, err)
	}
	return nil
}

func (s *session) readRing(ctx context.Context) error {
	rows, err := s.conn.Query(ctx, `
		SELECT seg, round, opened_at, closed_at, is_empty, is_rolled,
		       coalesce(pg_catalog.pg_relation_filenode(pg_catalog.to_regclass('lock_history.actor_' || seg)), 0),
		       coalesce(pg_catalog.pg_relation_filenode(pg_catalog.to_regclass('lock_history.dim_' || seg)), 0),
		       coalesce(pg_catalog.pg_relation_filenode(pg_catalog.to_regclass('lock_history.open_' || seg)), 0),
		       coalesce(pg_catalog.pg_relation_filenode(pg_catalog.to_regclass('lock_history.episode_' || seg)), 0),
		       (SELECT pg_catalog.count(*) FROM lock_history.node)
		  FROM lock_history.ring`)
	if err != nil {
		return fmt.Errorf("read the ring: %w", err)
	}
	var seg int
	var r ring.Row
	var f segmentFiles
	var opened, closed *time.Time
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&seg, &r.Round, &opened, &closed, &r.Empty, &r.Rolled, &f.actor, &f.dim, &f.open, &f.episode, &s.nodes}, func() error {
		if seg < 0 || seg >= ring.Segments {
			return fmt.Errorf("%w: ring has a segment %d", errNotOurs, seg)
		}
		n++
		r.OpenedAt, r.ClosedAt = micros(opened), micros(closed)
		s.rows[seg], s.files[seg] = r, f
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the ring: %w", err)
	}
	if n != ring.Segments {
		return fmt.Errorf("%w: ring has %d segments", errNotOurs, n)
	}
	return nil
}

func micros(t *time.Time) snapshot.Micros {
	if t == nil {
		return 0
	}
	return snapshot.FromTime(*t)
}

func leafName(leaf string, seg int) string { return leaf + "_" + strconv.Itoa(seg) }
