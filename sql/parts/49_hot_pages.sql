-- Pages: which one of which relation is fought over.
--
-- The time is that of load, as in lwlocks: what could not be found has a row
-- without a relation, so that nothing is missing.
CREATE VIEW lock_history.hot_pages AS
SELECT n.node, p.at, d.datname, d.relation, d.object, d.fork, w.block, d.lwlock_mode AS mode,
       w.wait_ms::double precision / nullif(p.sampled_ms, 0) AS waiters_avg, w.wait_ms::double precision AS wait_ms,
       d.object_kind AS kind, d.datid AS database, w.waiters_max::integer AS waiters_max,
       w.held_exclusive::double precision AS held_exclusive, w.shared_holders::double precision AS shared_holders_avg,
       w.waits::bigint AS waits
FROM lock_history.page AS p
JOIN lock_history.recorded AS n ON n.node_id = p.node_id
CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(p.dims), pg_catalog.unnest(p.blocks), pg_catalog.unnest(p.wait_ms), pg_catalog.unnest(p.waits),
                              pg_catalog.unnest(p.waiters_max), pg_catalog.unnest(p.held_exclusive), pg_catalog.unnest(p.shared_holders))
           AS w(dim_id, block, wait_ms, waits, waiters_max, held_exclusive, shared_holders)
JOIN lock_history.dim AS d ON d.seg = p.seg AND d.dim_id = w.dim_id AND (d.node_id = p.node_id) IS TRUE
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
  -- a kept incident is read without a look into the ring
  AND p.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END);

GRANT SELECT ON lock_history.hot_pages TO pg_monitor;
COMMENT ON VIEW lock_history.hot_pages IS
    'Waits for pages by second: which page of which relation, in which mode, how long; waits whose page was not found have a row without object';
COMMENT ON COLUMN lock_history.hot_pages.node IS 'server that was watched';
COMMENT ON COLUMN lock_history.hot_pages.at IS 'begin of the second';
COMMENT ON COLUMN lock_history.hot_pages.datname IS 'database of the relation; null: shared, or the page was not found';
COMMENT ON COLUMN lock_history.hot_pages.relation IS 'OID of the relation; null: not found, or it was gone before it could be looked up';
COMMENT ON COLUMN lock_history.hot_pages.object IS 'the relation by the name it had then, with what else it is than a table, and of a btree index what kind of page: right-most leaf of index public.t_pkey; null: not found';
COMMENT ON COLUMN lock_history.hot_pages.fork IS 'main, fsm (free space map), vm (visibility map) or init; null: not found';
COMMENT ON COLUMN lock_history.hot_pages.block IS 'number of the page in it; null: not found, or several that were added up';
COMMENT ON COLUMN lock_history.hot_pages.mode IS 'waited with: exclusive, shared, or pin (for all others to have let go of the page)';
COMMENT ON COLUMN lock_history.hot_pages.waiters_avg IS 'average number of sessions that waited';
COMMENT ON COLUMN lock_history.hot_pages.wait_ms IS 'time they waited, added up, in milliseconds (estimated from samples)';
COMMENT ON COLUMN lock_history.hot_pages.kind IS 'table, index, sequence, toast table, toast index or materialized view; null: as for relation';
COMMENT ON COLUMN lock_history.hot_pages.database IS 'OID of the database; null: as for datname';
COMMENT ON COLUMN lock_history.hot_pages.waiters_max IS 'most waiters at one sample';
COMMENT ON COLUMN lock_history.hot_pages.held_exclusive IS 'share of that time in which the page was locked exclusively, as far as it was seen; null: not known';
COMMENT ON COLUMN lock_history.hot_pages.shared_holders_avg IS 'average number of sessions that had it locked shared; null: not known';
COMMENT ON COLUMN lock_history.hot_pages.waits IS 'waits that ended, estimated as in lwlocks';
