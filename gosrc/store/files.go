package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/snapshot"
)

// relationFile is the relation that a file belongs to. Its text, kept among the
// names, is "OID|kind|name".
type relationFile struct {
	oid  uint32 // 0 = not known
	kind string // table, index, sequence, toast table, ...
	name string // qualified; of a toast table that of its owner

	btree bool
}

func parseRelationFile(text string) relationFile {
	part := strings.SplitN(text, "|", 3)
	if len(part) != 3 {
		return relationFile{}
	}
	oid, err := strconv.ParseUint(part[0], 10, 32)
	if err != nil {
		return relationFile{}
	}
	kind, isBtree := strings.CutSuffix(part[1], " (btree)")
	return relationFile{oid: uint32(oid), kind: kind, name: part[2], btree: isBtree}
}

// text names the relation, and what the page is of it where that is known.
func (r relationFile) text(f snapshot.File, role snapshot.PageRole) string {
	if r.oid == 0 {
		return fmt.Sprintf("file %d of tablespace %d", f.Relfile, f.Tablespace)
	}
	name := r.name
	switch {
	case strings.HasPrefix(r.kind, "toast"):
		name = r.kind + " of " + name
	case r.kind != "table":
		name = r.kind + " " + name
	}
	if !r.btree {
		return name
	}
	switch role {
	case snapshot.RoleMeta:
		return "metapage of " + name
	case snapshot.RoleRoot:
		return "root of " + name
	case snapshot.RoleInner:
		return "inner page of " + name
	case snapshot.RoleLeaf:
		return "leaf of " + name
	case snapshot.RoleRightmostLeaf:
		return "right-most leaf of " + name
	case snapshot.RoleOnlyLeaf:
		return "only leaf of " + name
	default:
		return name
	}
}

// forkName is the server's name of a fork.
func forkName(fork int32) string {
	switch fork {
	case 0:
		return "main"
	case 1:
		return "fsm"
	case 2:
		return "vm"
	case 3:
		return "init"
	default:
		return strconv.Itoa(int(fork))
	}
}

// files looks up, in the database that conn is in, which relations files belong
// to. It reads catalogs only: the size of a relation, say, would need a lock.
func files(ctx context.Context, conn *pgx.Conn, keys []nameKey, found map[nameKey]string) error {
	var spaces, numbers []uint32
	asked := make(map[[2]uint32]nameKey) // shared ones and others have different tablespaces
	for _, k := range keys {
		if k.kind == fileName {
			spaces, numbers = append(spaces, k.a), append(numbers, k.b)
			asked[[2]uint32{k.a, k.b}] = k
		}
	}
	if len(asked) == 0 {
		return nil
	}
	rows, err := conn.Query(ctx, `
		SELECT f.space, f.number, c.oid,
		       CASE WHEN n.nspname = 'pg_toast' AND o.oid IS NOT NULL THEN 'toast ' ELSE '' END ||
		       CASE c.relkind WHEN 'r' THEN 'table' WHEN 't' THEN 'table' WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence'
		            WHEN 'm' THEN 'materialized view' ELSE 'relation' END ||
		       CASE WHEN m.amname = 'btree' THEN ' (btree)' ELSE '' END,
		       pg_catalog.format('%I.%I', coalesce(s.nspname, n.nspname), coalesce(o.relname, c.relname))
		  FROM ROWS FROM (pg_catalog.unnest($1::oid[]), pg_catalog.unnest($2::oid[])) AS f(space, number)
		  JOIN pg_catalog.pg_class AS c ON c.oid = pg_catalog.pg_filenode_relation(f.space, f.number)
		  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
		  LEFT JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
		  LEFT JOIN pg_catalog.pg_index AS i ON i.indexrelid = c.oid AND n.nspname = 'pg_toast'
		  LEFT JOIN pg_catalog.pg_class AS t ON t.oid = coalesce(i.indrelid, c.oid) AND t.relkind = 't'
		       -- a toast table has the OID of its owner in its name; the owner must agree
		  LEFT JOIN pg_catalog.pg_class AS o ON o.oid = pg_catalog.substring(t.relname, '^pg_toast_([0-9]+)$')::oid AND o.reltoastrelid = t.oid
		  LEFT JOIN pg_catalog.pg_namespace AS s ON s.oid = o.relnamespace`, spaces, numbers)
	if err != nil {
		return fmt.Errorf("look up %d files: %w", len(asked), err)
	}
	var space, number, oid uint32
	var kind, name string
	_, err = pgx.ForEachRow(rows, []any{&space, &number, &oid, &kind, &name}, func() error {
		if k, ok := asked[[2]uint32{space, number}]; ok {
			found[k] = fmt.Sprintf("%d|%s|%s", oid, kind, clean(name))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look up %d files: %w", len(asked), err)
	}
	return nil
}
