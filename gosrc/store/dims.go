package store

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/ring"
)

// maxDims bounds the dictionary of one segment, 150 bytes a row and as much of
// memory. Beyond it statements, then roles and databases are not told apart, so
// that a few more may come; all of them fit two bytes.
const maxDims = 50_000

// dimension is what seconds are told apart by: a row of the dictionary.
type dimension struct {
	kind        dimKind
	eventType   string
	event       string
	mode        string
	backendType string
	database    uint32
	datname     string
	role        uint32
	usename     string
	queryID     int64

	// Of LWLocks and pages.
	instance string // which of the locks of a tranche
	relation uint32
	object   string // its name
	fork     string

	objectKind string
}

// dimKind says what a row of the dictionary tells apart. The numbers are stored.
type dimKind int16

const (
	loadDim   dimKind = 1
	lwlockDim dimKind = 2
	pageDim   dimKind = 3
	queryDim  dimKind = 4

	// textDim is the text of a statement. It has no number: rows find it by
	// the query identifier.
	textDim dimKind = 5

	eventDim    dimKind = 6
	databaseDim dimKind = 7
)

// maxTexts bounds the statements of which a segment keeps the text, query_length
// each. Servers with more make them up as they go.
const maxTexts = 10_000

// textKey is what the text of a statement is found by.
type textKey struct {
	queryID        int64
	database, role uint32
}

// dimensions are the dictionary of a segment, as far as it is ours: numbers of
// another node mean something else. Made anew with each segment, so that it does
// not outlive what it describes.
type dimensions struct {
	ids   map[dimension]int32
	last  uint16      // number given out last; stored as int16, see number
	added []dimension // not yet in the table; numbers last-len(added)+1 to last
	texts map[textKey]struct{}
}

func newDimensions() *dimensions {
	return &dimensions{ids: make(map[dimension]int32), texts: make(map[textKey]struct{})}
}

// id returns the number of d, a new one when it has none.
func (n *dimensions) id(d dimension) int32 {
	for len(n.ids) >= maxDims {
		if _, ok := n.ids[d]; ok {
			break
		}
		if d.queryID != 0 {
			d.queryID = 0
			continue
		}
		d.database, d.datname, d.role, d.usename, d.instance = 0, "", 0, "", ""
		d.relation, d.object, d.fork, d.objectKind = 0, "", "", ""
		break
	}
	if id, ok := n.ids[d]; ok {
		return id
	}
	if n.last == math.MaxUint16 {
		return 0 // no row has this number: what is left over is not told
	}
	n.last++
	n.ids[d] = number(n.last)
	n.added = append(n.added, d)
	return n.ids[d]
}

// lacksText reports, once, that the text of a statement has to be written.
func (n *dimensions) lacksText(k textKey) bool {
	if _, ok := n.texts[k]; ok || len(n.texts) >= maxTexts {
		return false
	}
	n.texts[k] = struct{}{}
	return true
}

// number is n as it is stored: two bytes with a sign.
func number(n uint16) int32 { return int32(int16(n)) }

// dimensionsOf returns the dictionary of segment seg, read from the table unless
// it is known or the segment is new. It counts as known when the rows are in.
func (s *session) dimensionsOf(ctx context.Context, seg int, isNew bool) (*dimensions, error) {
	n := s.dims
	s.dims = nil
	switch {
	case seg < 0 || isNew:
		return newDimensions(), nil
	case n != nil:
		return n, nil
	}
	n = newDimensions()
	rows, err := s.conn.Query(ctx, `
		SELECT dim_id, kind, coalesce(wait_event_type, ''), coalesce(wait_event, ''), coalesce(lwlock_mode, ''), coalesce(backend_type, ''),
		       coalesce(datid, 0), coalesce(datname, ''), coalesce(usesysid, 0), coalesce(usename, ''), coalesce(query_id, 0),
		       coalesce(instance, ''), coalesce(relation, 0), coalesce(object, ''), coalesce(fork, ''), coalesce(object_kind, '')
		  FROM lock_history.`+leafName("dim", seg)+`
		 WHERE node_id = $1::int AND kind <> $2::smallint`, s.nodeID, textDim)
	if err != nil {
		return nil, fmt.Errorf("read the dictionary of segment %d: %w", seg, err)
	}
	var id int32
	var d dimension
	_, err = pgx.ForEachRow(rows, []any{&id, &d.kind, &d.eventType, &d.event, &d.mode, &d.backendType, &d.database, &d.datname,
		&d.role, &d.usename, &d.queryID, &d.instance, &d.relation, &d.object, &d.fork, &d.objectKind}, func() error {
		n.ids[d] = id
		n.last = max(n.last, uint16(id))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the dictionary of segment %d: %w", seg, err)
	}
	rows, err = s.conn.Query(ctx, `
		SELECT query_id, coalesce(datid, 0), coalesce(usesysid, 0) FROM lock_history.`+leafName("dim", seg)+`
		 WHERE node_id = $1::int AND kind = $2::smallint`, s.nodeID, textDim)
	if err != nil {
		return nil, fmt.Errorf("read which texts segment %d has: %w", seg, err)
	}
	var k textKey
	_, err = pgx.ForEachRow(rows, []any{&k.queryID, &k.database, &k.role}, func() error {
		n.texts[k] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read which texts segment %d has: %w", seg, err)
	}
	return n, nil
}

// rows returns what the table lacks.
func (n *dimensions) rows(r *rowSet) {
	first := n.last - uint16(len(n.added)) + 1
	for i := range n.added {
		d := &n.added[i]
		r.add("dim", nil, r.nodeID, number(first+uint16(i)), int16(d.kind), text(d.eventType), text(d.event), text(d.mode), text(d.backendType),
			nonZero(d.database), text(d.datname), nonZero(d.role), text(d.usename), nonZero(d.queryID),
			text(d.instance), nonZero(d.relation), text(d.object), text(d.fork), text(d.objectKind), nil, nil)
	}
}

// isNewSegment reports whether d opens one.
func isNewSegment(d ring.Decision) bool { return d.Action == ring.Advance }
