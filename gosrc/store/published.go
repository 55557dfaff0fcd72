package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/config"
)

// publishedError: a publication would send our rows to its subscribers. Those
// do not have the tables, and their replication would stop for good.
type publishedError struct{ publication string }

func (e *publishedError) Error() string {
	return fmt.Sprintf("publication %q sends the history to its subscribers", e.publication)
}

// querier is a connection, or a transaction on it.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// checkPublished fails with a publishedError when there is a publication of all
// tables, of the schema, or of one of its tables, and it is not allowed.
func checkPublished(ctx context.Context, q querier, c *config.Config) error {
	if c.AllowPublished {
		return nil
	}
	var name string
	err := q.QueryRow(ctx, `
		SELECT p.pubname
		  FROM pg_catalog.pg_publication AS p
		 WHERE p.puballtables
		    OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace AS pn
		                 JOIN pg_catalog.pg_namespace AS n ON n.oid = pn.pnnspid
		                WHERE pn.pnpubid = p.oid AND n.nspname = 'lock_history')
		    OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel AS pr
		                 JOIN pg_catalog.pg_class AS r ON r.oid = pr.prrelid
		                 JOIN pg_catalog.pg_namespace AS n ON n.oid = r.relnamespace
		                WHERE pr.prpubid = p.oid AND n.nspname = 'lock_history')
		 ORDER BY p.pubname LIMIT 1`).Scan(&name)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("look for publications: %w", err)
	}
	return &publishedError{publication: name}
}

// transact runs f in a transaction and commits unless a publication would
// send what f has changed. Every change of ours goes through here.
//
// The look is the last statement, with a snapshot of its own (read committed).
// Whether a change is sent is decided by the publications as of its place in
// the WAL: one whose commit comes after the change does not send it, whatever
// is committed later in that transaction. So what is not visible after the
// last change sends none of them, but for one case: between the commit record
// of a publication and its becoming visible (with synchronous replication, the
// wait for the standby) we do not see it. That matters only to a publication
// that had a subscriber before it came to have our tables, by ALTER
// PUBLICATION ... ADD.
func (s *session) transact(ctx context.Context, c *config.Config, f func(pgx.Tx) error) error {
	// Said with BEGIN, too: behind a pooler a session may not be as we would have it.
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	err := pgx.BeginTxFunc(ctx, s.conn, options, func(tx pgx.Tx) error {
		if s.params != nil {
			if err := setParams(ctx, tx, s.params, true); err != nil {
				return err
			}
		}
		if err := f(tx); err != nil {
			return err
		}
		return checkPublished(ctx, tx, c)
	})
	// An UPDATE of a published table may fail for the publication's own reasons
	// (its row filter or column list lacks the key).
	switch sqlState(err) {
	case "42P10", "55000":
		if published := checkPublished(ctx, s.conn, c); published != nil {
			return published
		}
	}
	return err
}
