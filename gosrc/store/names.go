package store

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/lockmgr"
	"pg_lock_history/gosrc/object"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
)

const (
	// maxNames bounds the names kept, and those waiting to be looked up. One
	// takes about 200 bytes.
	maxNames = 10_000

	// A name is asked for again when somebody waits and it is this old: tables
	// and roles are renamed, OIDs used again. What was renamed less than this
	// ago may still be told by its old name.
	nameFresh = time.Second

	// namePause lets names come together between two rounds of look-ups; the
	// first round is at once.
	namePause = 100 * time.Millisecond

	// homeIdle ends the session for shared names after so long without use.
	homeIdle = 10 * time.Second

	// A database that could not be reached is left alone for so long.
	databaseBackoff = 10 * time.Second

	// slotBackoff is shorter: slots come and go.
	slotBackoff = time.Second

	// roundTimeout bounds one look-up in one database, connecting included;
	// DROP DATABASE waits 5 s for sessions to leave.
	roundTimeout = time.Second

	keyHome     = "names: home"
	keyLookUp   = "names: look-up"
	keyDatabase = "names: database"
	keyCrowd    = "names: crowd"
)

type nameKind uint8

const (
	relationName nameKind = iota // a = relation
	databaseName                 // a = database
	roleName                     // a = role
	gidName                      // a = xid of a prepared transaction
	preparedTime                 // a = xid; when it was prepared, as Micros in decimal
	className                    // a = catalog
	objectName                   // a = catalog, b = object
	fileName                     // a = tablespace, b = number of the file; see relationFile
)

// nameKey is what a name is asked by. database is 0 for what is shared.
type nameKey struct {
	kind     nameKind
	database uint32
	a, b     uint32
}

func databaseKey(oid uint32) nameKey { return nameKey{kind: databaseName, a: oid} }
func roleKey(oid uint32) nameKey     { return nameKey{kind: roleName, a: oid} }
func gidKey(xid uint32) nameKey      { return nameKey{kind: gidName, a: xid} }

// subscriptionKey: a subscription is an object of a shared catalog.
func subscriptionKey(oid uint32) nameKey {
	return nameKey{kind: objectName, a: object.SubscriptionClass, b: oid}
}

func preparedKey(xid uint32) nameKey { return nameKey{kind: preparedTime, a: xid} }

func fileKey(f snapshot.File) nameKey {
	return nameKey{kind: fileName, database: f.Database, a: f.Tablespace, b: f.Relfile}
}

// fileKeys appends the names that a page of the file needs.
func fileKeys(keys []nameKey, f snapshot.File) []nameKey {
	if f.Database != 0 {
		keys = append(keys, databaseKey(f.Database))
	}
	return append(keys, fileKey(f))
}

// tagKeys appends the names that the text of a tag needs.
func tagKeys(keys []nameKey, t lockmgr.Tag) []nameKey {
	if db := t.Database(); db != 0 {
		keys = append(keys, databaseKey(db))
	}
	if rel := t.RelationOID(); rel != 0 {
		keys = append(keys, nameKey{kind: relationName, database: t.Database(), a: rel})
	}
	if t.Type == lockmgr.Object {
		keys = append(keys,
			nameKey{kind: className, a: t.Field2},
			nameKey{kind: objectName, database: t.Field1, a: t.Field2, b: t.Field3})
	}
	if t.Type == lockmgr.ApplyTransaction {
		keys = append(keys, subscriptionKey(t.Field2))
	}
	return keys
}

// sessionKeys appends the names that the description of a participant needs.
func sessionKeys(keys []nameKey, s *snapshot.Session) []nameKey {
	if s == nil {
		return keys
	}
	if s.Database != 0 {
		keys = append(keys, databaseKey(s.Database))
	}
	if s.Role != 0 {
		keys = append(keys, roleKey(s.Role))
	}
	if s.Prepared != 0 {
		keys = append(keys, gidKey(s.Prepared), preparedKey(s.Prepared))
	}
	return keys
}

// wantedNames returns all names that the rows of h need.
func wantedNames(h *hand) []nameKey {
	seen := make(map[nameKey]struct{})
	var keys, some []nameKey
	add := func() {
		for _, k := range some {
			if _, ok := seen[k]; !ok {
				seen[k] = struct{}{}
				keys = append(keys, k)
			}
		}
		some = some[:0]
	}
	for i := range h.items {
		b := h.items[i].Batch
		for _, episodes := range [][]history.Episode{b.Closed, b.Open} {
			for j := range episodes {
				e := &episodes[j]
				some = sessionKeys(tagKeys(some, e.Tag), e.Waiter)
				if e.Row != (lockmgr.Tag{}) {
					some = tagKeys(some, e.Row)
				}
				for k := range e.Edges {
					some = sessionKeys(some, e.Edges[k].Blocker)
				}
				add()
			}
		}
		for j := range b.Deadlocks {
			for k := range b.Deadlocks[j].Members {
				m := &b.Deadlocks[j].Members[k]
				some = sessionKeys(some, m.Session)
				if m.HasTag {
					some = tagKeys(some, m.Tag)
				}
				if m.Row != (lockmgr.Tag{}) {
					some = tagKeys(some, m.Row)
				}
				if m.HasHeld {
					some = tagKeys(some, m.HeldTag)
				}
				add()
			}
		}
		for j := range b.Conflicts {
			some = sessionKeys(some, b.Conflicts[j].Session)
			add()
		}
		for j := range b.Seconds {
			for k := range b.Seconds[j].Pages {
				if p := &b.Seconds[j].Pages[k]; p.Found {
					some = fileKeys(some, p.File)
					add()
				}
			}
			for k := range b.Seconds[j].Loads {
				l := &b.Seconds[j].Loads[k]
				some = sessionKeys(some, &snapshot.Session{Database: l.Database, Role: l.Role})
				add()
			}
			for k := range b.Seconds[j].FastPath {
				some = sessionKeys(some, &snapshot.Session{Database: b.Seconds[j].FastPath[k].Database})
				add()
			}
		}
		for j := range b.Hungry {
			for k := range b.Hungry[j].Statements {
				s := &b.Hungry[j].Statements[k]
				some = sessionKeys(some, &snapshot.Session{Database: s.Database, Role: s.Role})
				add()
			}
		}
		for _, s := range b.Texts {
			some = sessionKeys(some, s)
			add()
		}
		for j := range b.Short {
			w := &b.Short[j]
			some = tagKeys(some, lockmgr.Tag{Type: lockmgr.Relation, Field1: w.Database, Field2: w.Relation})
			add()
		}
	}
	return keys
}

// name is what is known under a key. A name that cannot be found any more
// keeps what it was.
type name struct {
	key     nameKey
	text    string
	askedAt time.Time // zero: never
	seenAt  time.Time // when the catalog last said so

	// The name before that, and when it was last seen; "" when there was none.
	before   string
	beforeAt time.Time
}

// Names looks names up on a goroutine and connections of its own, so that
// neither the sampler nor the writer waits for a catalog, or the latter not
// for long. mu protects what is below it and is never held during a look-up.
type Names struct {
	config func() *config.Config
	log    *report.Log
	wake   chan struct{} // capacity 1
	door   *door

	mu      sync.Mutex
	known   map[nameKey]*list.Element // of recent, holding *name
	recent  *list.List                // last used first
	pending map[nameKey]struct{}
	round   chan struct{} // closed and replaced after each round
}

func newNames(config func() *config.Config, log *report.Log) *Names {
	return &Names{
		config: config, log: log, wake: make(chan struct{}, 1),
		known: make(map[nameKey]*list.Element), recent: list.New(),
		pending: make(map[nameKey]struct{}), round: make(chan struct{}),
	}
}

// WantTag asks for the names of a lock, as soon as somebody waits for it: later
// the table may be gone. It never blocks.
func (n *Names) WantTag(t lockmgr.Tag) {
	var room [4]nameKey
	n.want(tagKeys(room[:0], t))
}

// WantSession asks for the names of a participant. It never blocks.
func (n *Names) WantSession(s *snapshot.Session) {
	var room [4]nameKey
	n.want(sessionKeys(room[:0], s))
}

// WantFile asks for the relation that a file belongs to. It never blocks.
func (n *Names) WantFile(f snapshot.File) {
	var room [2]nameKey
	n.want(fileKeys(room[:0], f))
}

// want puts down what is not known or not fresh.
func (n *Names) want(keys []nameKey) {
	n.mu.Lock()
	now := time.Now()
	before := len(n.pending)
	for _, k := range keys {
		if e, ok := n.known[k]; ok && now.Sub(e.Value.(*name).askedAt) < nameFresh {
			continue
		}
		if len(n.pending) < maxNames {
			n.pending[k] = struct{}{}
		}
	}
	more := len(n.pending) > before
	n.mu.Unlock()
	if more {
		signal(n.wake)
	}
}

// resolve makes sure that each of keys has been asked for once, waiting for at
// most wait; it does not wait for names that could not be found before.
func (n *Names) resolve(ctx context.Context, keys []nameKey, wait time.Duration, stopping <-chan struct{}) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		var missing, nameless []nameKey
		n.mu.Lock()
		for _, k := range keys {
			if e, ok := n.known[k]; !ok {
				missing = append(missing, k)
			} else if e.Value.(*name).text == "" {
				nameless = append(nameless, k)
			}
		}
		round := n.round
		n.mu.Unlock()
		n.want(nameless) // another try, for the next time
		if len(missing) == 0 {
			return
		}
		n.want(missing)
		select {
		case <-round:
			keys = missing
		case <-timer.C:
			return
		case <-stopping: // nobody looks any more
			return
		case <-ctx.Done():
			return
		}
	}
}

// nameless returns those of keys that have no name so far, and asks for them again.
func (n *Names) nameless(keys []nameKey) []nameKey {
	var missing []nameKey
	n.mu.Lock()
	for _, k := range keys {
		if e, ok := n.known[k]; !ok || e.Value.(*name).text == "" {
			missing = append(missing, k)
		}
	}
	n.mu.Unlock()
	n.want(missing)
	return missing
}

// get returns the name, "" when it is not known.
func (n *Names) get(k nameKey) string { return n.getAt(k, 0) }

// getAt returns the name that was still seen after since began: whoever waits
// for a table while it is renamed has asked for it by the older one.
func (n *Names) getAt(k nameKey, since snapshot.Micros) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	e, ok := n.known[k]
	if !ok {
		return ""
	}
	n.recent.MoveToFront(e)
	nm := e.Value.(*name)
	if since != 0 && nm.before != "" && !nm.beforeAt.Before(since.Time()) {
		return nm.before
	}
	return nm.text
}

// preparedAt returns when a transaction was prepared, 0 when not known.
func (n *Names) preparedAt(xid uint32) snapshot.Micros {
	at, err := strconv.ParseInt(n.get(preparedKey(xid)), 10, 64)
	if err != nil {
		return 0
	}
	return snapshot.Micros(at)
}

// Tag returns the names of a lock that were still seen after since; 0: by now.
func (n *Names) Tag(t lockmgr.Tag, since snapshot.Micros) object.Names {
	names := object.Names{Database: n.getAt(databaseKey(t.Database()), since)}
	if rel := t.RelationOID(); rel != 0 {
		names.Relation = n.getAt(nameKey{kind: relationName, database: t.Database(), a: rel}, since)
	}
	switch t.Type {
	case lockmgr.Object:
		names.Class = n.getAt(nameKey{kind: className, a: t.Field2}, since)
		names.Object = n.getAt(nameKey{kind: objectName, database: t.Field1, a: t.Field2, b: t.Field3}, since)
	case lockmgr.ApplyTransaction:
		names.Object = n.getAt(subscriptionKey(t.Field2), since)
	}
	return names
}

// store enters the answers to keys; what has no answer keeps its old one.
func (n *Names) store(keys []nameKey, found map[nameKey]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for _, k := range keys {
		e, ok := n.known[k]
		if !ok {
			e = n.recent.PushFront(&name{key: k})
			n.known[k] = e
		}
		nm := e.Value.(*name)
		nm.askedAt = now
		if text, ok := found[k]; ok {
			if text != nm.text {
				nm.before, nm.beforeAt = nm.text, nm.seenAt
			}
			nm.text, nm.seenAt = text, now
		}
	}
	for n.recent.Len() > maxNames {
		oldest := n.recent.Back()
		delete(n.known, oldest.Value.(*name).key)
		n.recent.Remove(oldest)
	}
}

// take returns what is to be looked up.
func (n *Names) take() []nameKey {
	n.mu.Lock()
	defer n.mu.Unlock()
	keys := make([]nameKey, 0, len(n.pending))
	for k := range n.pending {
		keys = append(keys, k)
	}
	clear(n.pending)
	return keys
}

// roundDone lets those go on who wait for a round.
func (n *Names) roundDone() {
	n.mu.Lock()
	close(n.round)
	n.round = make(chan struct{})
	n.mu.Unlock()
}

// namer is the state of the goroutine that looks names up.
type namer struct {
	*Names
	home    *pgx.Conn // nil while not connected
	homeOID uint32
	homeWay string               // settings by which home is found
	blocked map[uint32]time.Time // databases not to be tried before; 0 is home
}

// run looks names up until ctx is done or the server stops.
func (n *Names) run(ctx context.Context, stopping <-chan struct{}) {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with run
		select {
		case <-stopping:
			cancel()
		case <-work.Done():
		}
	}()
	r := &namer{Names: n, blocked: make(map[uint32]time.Time)}
	defer r.leaveHome()
	idle := time.NewTimer(homeIdle)
	defer idle.Stop()
	for {
		select {
		case <-work.Done():
			return
		case <-idle.C:
			r.leaveHome()
		case <-n.wake:
			r.lookUp(work)
			idle.Reset(homeIdle)
			select {
			case <-time.After(namePause):
			case <-work.Done():
				return
			}
		}
	}
}

// lookUp does one round. It contains panics: a name is not worth a restart.
func (r *namer) lookUp(ctx context.Context) {
	keys := r.take()
	found := make(map[nameKey]string)
	defer func() {
		if p := recover(); p != nil {
			r.leaveHome()
			r.complain(report.Warning, "names: panic", "internal error while looking up names", fmt.Errorf("panic: %v", p))
		}
		r.store(keys, found)
		r.roundDone()
	}()

	var here []nameKey
	var elsewhere map[uint32][]nameKey
	var visits map[uint32]string
	for again := false; ; again = true {
		if err := r.enterHome(ctx); err != nil {
			r.complain(report.Warning, keyHome, "cannot look up names of tables and roles, their numbers are shown", err)
			return
		}
		here, elsewhere = r.split(keys)
		// Databases whose names we need, and those that we are to visit.
		for db := range elsewhere {
			here = append(here, databaseKey(db))
		}
		var err error
		visits, err = r.shared(ctx, here, found)
		if err == nil {
			err = local(ctx, r.home, here, found)
		}
		if err == nil {
			break
		}
		r.leaveHome()
		if again || !serverEnds(err) { // else somebody has ended the session
			r.complain(report.Info, keyLookUp, "cannot look up names", err)
			return
		}
	}
	r.log.Over(keyHome)
	r.log.Over(keyCrowd)
	r.log.Over(keyLookUp)
	for db, keys := range elsewhere {
		if ctx.Err() != nil {
			return
		}
		if datname, ok := visits[db]; ok && !time.Now().Before(r.blocked[db]) {
			r.visit(ctx, db, datname, keys, found)
		}
	}
}

// split tells what the home session can answer from what another database must.
func (r *namer) split(keys []nameKey) (here []nameKey, elsewhere map[uint32][]nameKey) {
	elsewhere = make(map[uint32][]nameKey)
	for _, k := range keys {
		if k.database == 0 || k.database == r.homeOID {
			here = append(here, k)
		} else {
			elsewhere[k.database] = append(elsewhere[k.database], k)
		}
	}
	return here, elsewhere
}

// enterHome connects to the history's database, or else to postgres, for what
// is shared. Never to a template: CREATE DATABASE would fail.
func (r *namer) enterHome(ctx context.Context) error {
	cfg := r.config()
	if way := cfg.LocalConnInfo + "\x00" + cfg.Database; way != r.homeWay {
		r.leaveHome() // and what failed with the old settings deserves a new try
		clear(r.blocked)
		r.homeWay = way
	}
	if r.home != nil && checkAlive(r.home) == nil {
		return nil
	}
	r.home = nil
	if time.Now().Before(r.blocked[0]) {
		return errLater
	}
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	var err error
	for _, database := range []string{cfg.Database, "postgres"} {
		r.home, err = dial(ctx, r.door, namesTarget(cfg, database), cfg)
		if sqlState(err) != "3D000" && !errors.Is(err, errTemplate) {
			break
		}
	}
	if err == nil {
		err = r.home.QueryRow(ctx, `
			SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()`).Scan(&r.homeOID)
	}
	if err != nil {
		r.leaveHome()
		r.blocked[0] = time.Now().Add(databaseBackoff)
		if errors.Is(err, errNoSpareSlot) {
			r.blocked[0] = time.Now().Add(slotBackoff)
		}
	}
	return err
}

// errLater: the last try is not long enough ago.
var errLater = errors.New("not tried again yet")

func (r *namer) leaveHome() {
	hangUp(r.home)
	r.home = nil
}

// shared answers from the shared catalogs, and returns the names of databases
// that may be connected to. Templates are left alone: a session in one makes
// CREATE DATABASE fail.
func (r *namer) shared(ctx context.Context, keys []nameKey, found map[nameKey]string) (map[uint32]string, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	var databases, roles []uint32
	var xids []string
	for _, k := range keys {
		switch k.kind {
		case databaseName:
			databases = append(databases, k.a)
		case roleName:
			roles = append(roles, k.a)
		case gidName: // brings the time along
			xids = append(xids, strconv.FormatUint(uint64(k.a), 10))
		}
	}
	visits := make(map[uint32]string)
	if len(databases) > 0 {
		rows, err := r.home.Query(ctx, `
			SELECT oid, datname::text, datallowconn AND NOT datistemplate
			  FROM pg_catalog.pg_database WHERE oid = ANY ($1::oid[])`, databases)
		if err != nil {
			return nil, fmt.Errorf("look up databases: %w", err)
		}
		var oid uint32
		var datname string
		var open bool
		_, err = pgx.ForEachRow(rows, []any{&oid, &datname, &open}, func() error {
			found[databaseKey(oid)] = clean(datname)
			if open {
				visits[oid] = datname
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look up databases: %w", err)
		}
	}
	if len(roles) > 0 {
		err := pairs(ctx, r.home, `
			SELECT oid, rolname::text FROM pg_catalog.pg_roles WHERE oid = ANY ($1::oid[])`, roles,
			func(oid uint32, rolname string) { found[roleKey(oid)] = rolname })
		if err != nil {
			return nil, fmt.Errorf("look up roles: %w", err)
		}
	}
	if len(xids) > 0 {
		rows, err := r.home.Query(ctx, `
			SELECT p.transaction::text::bigint, p.gid, p.prepared FROM pg_catalog.pg_prepared_xact() AS p
			 WHERE p.transaction::text = ANY ($1::text[])`, xids)
		if err != nil {
			return nil, fmt.Errorf("look up prepared transactions: %w", err)
		}
		var xid int64
		var gid string
		var prepared time.Time
		_, err = pgx.ForEachRow(rows, []any{&xid, &gid, &prepared}, func() error {
			found[gidKey(uint32(xid))] = clean(gid)
			found[preparedKey(uint32(xid))] = strconv.FormatInt(int64(snapshot.FromTime(prepared)), 10)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look up prepared transactions: %w", err)
		}
	}
	return visits, nil
}

// local answers from the catalogs of the database that conn is in. It reads
// catalogs only and takes no lock on what they describe.
func local(ctx context.Context, conn *pgx.Conn, keys []nameKey, found map[nameKey]string) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	var relations, classes []uint32
	byOID := make(map[uint32]nameKey) // OIDs of relations are unique here, 0 stands for shared ones
	for _, k := range keys {
		switch k.kind {
		case relationName:
			relations = append(relations, k.a)
			byOID[k.a] = k
		case className:
			classes = append(classes, k.a)
		}
	}
	if len(relations) > 0 {
		err := pairs(ctx, conn, `
			SELECT c.oid, pg_catalog.format('%I.%I', n.nspname, c.relname)
			  FROM pg_catalog.pg_class AS c
			  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
			 WHERE c.oid = ANY ($1::oid[])`, relations,
			func(oid uint32, text string) { found[byOID[oid]] = text })
		if err != nil {
			return fmt.Errorf("look up %d relations: %w", len(relations), err)
		}
	}
	if len(classes) > 0 {
		err := pairs(ctx, conn, `
			SELECT oid, relname::text FROM pg_catalog.pg_class
			 WHERE oid = ANY ($1::oid[]) AND relnamespace = 'pg_catalog'::regnamespace`, classes,
			func(oid uint32, relname string) { found[nameKey{kind: className, a: oid}] = relname })
		if err != nil {
			return fmt.Errorf("look up %d catalogs: %w", len(classes), err)
		}
	}
	if err := files(ctx, conn, keys, found); err != nil {
		return err
	}
	for _, k := range keys {
		if k.kind != objectName || k.b == 0 {
			continue
		}
		var text *string
		err := conn.QueryRow(ctx, `
			SELECT pg_catalog.pg_describe_object($1::oid, $2::oid, 0)`, k.a, k.b).Scan(&text)
		switch {
		case err != nil && sqlState(err) == "":
			return fmt.Errorf("describe object %d of class %d: %w", k.b, k.a, err)
		case err == nil && text != nil:
			found[k] = clean(*text)
		}
		// Any other error means a class of objects that has no descriptions.
	}
	return nil
}

// visit looks names up in another database by one short session.
func (r *namer) visit(ctx context.Context, db uint32, datname string, keys []nameKey, found map[nameKey]string) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	cfg := r.config()
	conn, err := dial(ctx, r.door, namesTarget(cfg, datname), cfg)
	if err == nil {
		err = local(ctx, conn, keys, found)
		hangUp(conn)
	}
	if err == nil {
		delete(r.blocked, db)
		r.log.Over(keyDatabase)
		return
	}
	if len(r.blocked) > maxNames {
		clear(r.blocked)
	}
	r.blocked[db] = time.Now().Add(databaseBackoff)
	switch sqlState(err) {
	case "3D000", "57P01": // dropped in the meantime, by force too: nothing to tell
	default:
		r.complain(report.Info, keyDatabase, fmt.Sprintf("cannot look up names in database %q, numbers are shown", datname), err)
	}
}

// complain tells of trouble; the log tells it once until it is over.
func (r *namer) complain(level report.Level, key, text string, err error) {
	if errors.Is(err, errLater) || errors.Is(err, context.Canceled) || sqlState(err) == "57P03" {
		return // 57P03: the server starts or stops
	}
	if errors.Is(err, errCrowd) { // of its own: what led to it may have been told already
		level, key, text = report.Warning, keyCrowd, "cannot look up names, no more sessions are made"
	}
	r.log.Add(report.Message{Level: level, Key: key, Text: text, Detail: cut(err.Error(), maxDetailBytes),
		Hint: "It is tried again. pg_lock_history.local_conninfo says how this server is reached."})
}

// pairs reads rows of a number and a text.
func pairs(ctx context.Context, conn *pgx.Conn, sql string, arg any, each func(uint32, string)) error {
	rows, err := conn.Query(ctx, sql, arg)
	if err != nil {
		return err
	}
	var oid uint32
	var text string
	_, err = pgx.ForEachRow(rows, []any{&oid, &text}, func() error {
		each(oid, clean(text))
		return nil
	})
	return err
}

// clean makes a name from a database without encoding valid.
func clean(name string) string { return querytext.Sanitize(name, 512) }
