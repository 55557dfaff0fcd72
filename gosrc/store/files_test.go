package store

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/snapshot"
)

func TestPageTexts(t *testing.T) {
	file := snapshot.File{Tablespace: 1663, Database: 5, Relfile: 16384}
	for _, c := range []struct {
		name, known string
		role        snapshot.PageRole
		want        string
	}{
		{"a table", "16384|table|public.t", 0, "public.t"},
		{"a name with bars", `16384|table|public."a|b"`, 0, `public."a|b"`},
		{"a table that looks like a btree", "16384|table|public.t", snapshot.RoleRoot, "public.t"},
		{"another index that looks like a btree", "16384|index|public.i", snapshot.RoleRoot, "index public.i"},
		{"an index", "16384|index (btree)|public.i", 0, "index public.i"},
		{"its right-most leaf", "16384|index (btree)|public.i", snapshot.RoleRightmostLeaf, "right-most leaf of index public.i"},
		{"its only leaf", "16384|index (btree)|public.i", snapshot.RoleOnlyLeaf, "only leaf of index public.i"},
		{"its root", "16384|index (btree)|public.i", snapshot.RoleRoot, "root of index public.i"},
		{"its metapage", "16384|index (btree)|public.i", snapshot.RoleMeta, "metapage of index public.i"},
		{"a sequence", "16384|sequence|public.s", 0, "sequence public.s"},
		{"toast", "16384|toast table|public.t", 0, "toast table of public.t"},
		{"its index", "16384|toast index (btree)|public.t", snapshot.RoleLeaf, "leaf of toast index of public.t"},
		{"not known", "", snapshot.RoleLeaf, "file 16384 of tablespace 1663"},
		{"nonsense", "x|y", 0, "file 16384 of tablespace 1663"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parseRelationFile(c.known).text(file, c.role); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// Each kind of relation is found by its file, mapped and shared catalogs too.
func TestFilesAreNamed(t *testing.T) {
	ctx := context.Background()
	dsn := os.Getenv("PLH_TEST_DSN")
	if dsn == "" {
		t.Skip("PLH_TEST_DSN is not set")
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, `
		DROP SCHEMA IF EXISTS files_test CASCADE;
		CREATE SCHEMA files_test;
		CREATE TABLE files_test.t (id serial PRIMARY KEY, v text);
		CREATE INDEX h ON files_test.t USING hash (id);
		CREATE MATERIALIZED VIEW files_test.m AS SELECT 1 AS i;
		TRUNCATE files_test.t`) // another file than the OID says
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = conn.Exec(ctx, "DROP SCHEMA files_test CASCADE") }()
	for _, c := range []struct{ name, relation, want string }{
		{"table", "'files_test.t'::regclass", "table|files_test.t"},
		{"btree index", "'files_test.t_pkey'::regclass", "index (btree)|files_test.t_pkey"},
		{"another index", "'files_test.h'::regclass", "index|files_test.h"},
		{"sequence", "'files_test.t_id_seq'::regclass", "sequence|files_test.t_id_seq"},
		{"materialized view", "'files_test.m'::regclass", "materialized view|files_test.m"},
		{"toast table", "(SELECT reltoastrelid FROM pg_class WHERE oid = 'files_test.t'::regclass)", "toast table|files_test.t"},
		{"toast index", "(SELECT i.indexrelid FROM pg_index AS i JOIN pg_class AS c ON c.reltoastrelid = i.indrelid WHERE c.oid = 'files_test.t'::regclass)", "toast index (btree)|files_test.t"},
		{"mapped catalog", "'pg_class'::regclass", "table|pg_catalog.pg_class"},
		{"shared catalog", "'pg_database'::regclass", "table|pg_catalog.pg_database"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f snapshot.File
			err := conn.QueryRow(ctx, `
				SELECT CASE WHEN c.relisshared THEN 1664 ELSE coalesce(nullif(c.reltablespace, 0), d.dattablespace) END,
				       CASE WHEN c.relisshared THEN 0 ELSE d.oid END, pg_relation_filenode(c.oid)
				  FROM pg_class AS c, pg_database AS d WHERE c.oid = `+c.relation+` AND d.datname = current_database()`).
				Scan(&f.Tablespace, &f.Database, &f.Relfile)
			if err != nil {
				t.Fatal(err)
			}
			found := make(map[nameKey]string)
			unknown := snapshot.File{Tablespace: 1663, Database: f.Database, Relfile: 1}
			if err := files(ctx, conn, []nameKey{fileKey(unknown), fileKey(f)}, found); err != nil {
				t.Fatal(err)
			}
			if _, got, _ := strings.Cut(found[fileKey(f)], "|"); got != c.want {
				t.Errorf("%q, want %q", found[fileKey(f)], c.want)
			}
			if text, ok := found[fileKey(unknown)]; ok {
				t.Errorf("a file that is not there is %q", text)
			}
		})
	}
}
