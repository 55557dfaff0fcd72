-- Pages: which one of which relation is fought over.
--
-- The time is that of load, as in lwlocks: what could not be found has a row
-- without a relation, so that nothing is missing.
CREATE VIEW lock_history.hot_pages AS
SELECT p.node, p.at, d.datname, d.relation, d.object, d.fork, p.block, d.lwlock_mode AS mode,
       p.wait_ms::double precision / nullif(p.sampled_ms, 0) AS waiters_avg, p.wait_ms::double precision AS wait_ms,
       d.object_kind AS kind, d.datid AS database, p.waiters_max::integer AS waiters_max,
       p.held_exclusive::double precision AS held_exclusive, p.shared_holders::double precision AS shared_holders_avg,
       p.waits::bigint AS waits
FROM (SELECT n.node, s.seg, s.node_id, s.at, s.sampled_ms, pg_catalog.unnest(s.dims) AS dim_id, pg_catalog.unnest(s.blocks) AS block,
             pg_catalog.unnest(s.wait_ms) AS wait_ms, pg_catalog.unnest(s.waits) AS waits, pg_catalog.unnest(s.waiters_max) AS waiters_max,
             pg_catalog.unnest(s.held_exclusive) AS held_exclusive, pg_catalog.unnest(s.shared_holders) AS shared_holders
      FROM lock_history.page AS s
      JOIN lock_history.recorded AS n ON n.node_id = s.node_id AND n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
      -- a kept incident is read without a look into the ring
      WHERE s.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END)) AS p
JOIN lock_history.dim AS d ON d.seg = p.seg AND d.dim_id = p.dim_id AND d.kind = 3 AND d.node_id = p.node_id;

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
COMMENT ON COLUMN lock_history.hot_pages.mode IS 'waited with: exclusive, shared, share exclusive (version 19: to write it while others read), or pin (for all others to have let go of the page)';
COMMENT ON COLUMN lock_history.hot_pages.waiters_avg IS 'average number of sessions that waited';
COMMENT ON COLUMN lock_history.hot_pages.wait_ms IS 'time they waited, added up, in milliseconds (estimated from samples)';
COMMENT ON COLUMN lock_history.hot_pages.kind IS 'table, index, sequence, toast table, toast index or materialized view; null: as for relation';
COMMENT ON COLUMN lock_history.hot_pages.database IS 'OID of the database; null: as for datname';
COMMENT ON COLUMN lock_history.hot_pages.waiters_max IS 'most waiters at one sample';
COMMENT ON COLUMN lock_history.hot_pages.held_exclusive IS 'share of that time in which the page was locked exclusively, as far as it was seen; null: not known';
COMMENT ON COLUMN lock_history.hot_pages.shared_holders_avg IS 'average number of sessions that had it locked shared; null: not known';
COMMENT ON COLUMN lock_history.hot_pages.waits IS 'waits that ended, estimated as in lwlocks';

-- The same as totals, by relation: a hot spot that moves has many pages.
CREATE FUNCTION lock_history.hot_pages(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, n integer DEFAULT 10, node text DEFAULT NULL)
RETURNS TABLE (datname text, object text, fork text, mode text, wait_ms double precision, share double precision,
               blocks bigint, busiest_block bigint, busiest_share double precision,
               waits bigint, seconds bigint, waiters_avg double precision, waiters_max integer,
               held_exclusive double precision, shared_holders_avg double precision, kind text, relation oid, database oid)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    wanted_node text := coalesce(hot_pages.node, lock_history.local_node());
BEGIN
    IF hot_pages.n < 0 THEN
        RAISE EXCEPTION 'n must not be negative, but is %', hot_pages.n
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is the number of rows to list; NULL lists all.';
    END IF;
    PERFORM lock_history.warn_if_nothing_is_here();
    IF hot_pages.since > hot_pages.until THEN
        RAISE EXCEPTION 'since (%) is after until (%)', hot_pages.since, hot_pages.until
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY
        WITH page AS MATERIALIZED (
            SELECT pg_catalog.dense_rank() OVER (ORDER BY p.node, p.database, p.datname, p.relation, p.object, p.kind, p.fork, p.mode) AS no,
                   p.at, p.datname, p.object, p.fork, p.mode, p.kind, p.relation, p.database, p.block, p.wait_ms, p.waits,
                   p.waiters_avg, p.waiters_max, p.held_exclusive, p.shared_holders_avg
            FROM lock_history.hot_pages AS p
            WHERE (wanted_node IS NULL OR p.node = wanted_node)
              AND p.at >= coalesce(hot_pages.since, '-infinity') AND p.at < coalesce(hot_pages.until, 'infinity')
        ), total AS (
            SELECT g.no, g.datname, g.object, g.fork, g.mode, g.kind, g.relation, g.database,
                   pg_catalog.sum(g.wait_ms) AS wait_ms, pg_catalog.sum(pg_catalog.sum(g.wait_ms)) OVER () AS all_ms,
                   pg_catalog.count(DISTINCT g.block) AS blocks, pg_catalog.sum(g.waits)::bigint AS waits,
                   pg_catalog.max(g.waiters_max) AS waiters_max,
                   -- by time, where it is known, as in lwlock_profile()
                   pg_catalog.sum(g.held_exclusive * g.wait_ms)
                       / nullif(pg_catalog.sum(g.wait_ms) FILTER (WHERE g.held_exclusive IS NOT NULL), 0) AS held_exclusive,
                   pg_catalog.sum(g.shared_holders_avg * g.wait_ms)
                       / nullif(pg_catalog.sum(g.wait_ms) FILTER (WHERE g.shared_holders_avg IS NOT NULL), 0) AS shared_holders
            FROM page AS g
            GROUP BY g.no, g.datname, g.object, g.fork, g.mode, g.kind, g.relation, g.database
            ORDER BY pg_catalog.sum(g.wait_ms) DESC, g.no
            LIMIT hot_pages.n
        ), second AS (
            -- has a row for each of its pages, and was sampled once
            SELECT x.no, pg_catalog.count(*) AS seconds, pg_catalog.sum(x.sampled_ms) AS sampled_ms
            FROM (SELECT p.no, pg_catalog.max(p.wait_ms / nullif(p.waiters_avg, 0)) AS sampled_ms FROM page AS p GROUP BY p.no, p.at) AS x
            GROUP BY x.no
        ), busiest AS (
            SELECT DISTINCT ON (x.no) x.no, x.block, x.wait_ms
            FROM (SELECT p.no, p.block, pg_catalog.sum(p.wait_ms) AS wait_ms FROM page AS p WHERE p.block IS NOT NULL GROUP BY p.no, p.block) AS x
            ORDER BY x.no, x.wait_ms DESC
        )
        SELECT t.datname, t.object, t.fork, t.mode, t.wait_ms, t.wait_ms / nullif(t.all_ms, 0),
               t.blocks, b.block, b.wait_ms / nullif(t.wait_ms, 0), t.waits, s.seconds,
               t.wait_ms / nullif(s.sampled_ms, 0), t.waiters_max, t.held_exclusive, t.shared_holders, t.kind, t.relation, t.database
        FROM total AS t
        JOIN second AS s ON s.no = t.no
        LEFT JOIN busiest AS b ON b.no = t.no AND b.wait_ms > t.wait_ms / 2
        ORDER BY t.wait_ms DESC, t.no;
END
$$;
COMMENT ON FUNCTION lock_history.hot_pages(timestamptz, timestamptz, integer, text) IS
    'Relations whose pages sessions waited for in a range, longest first: time, its share of all waits for pages, how many pages, and which one it was where one has over half of it (since, until: default all; n: 10, null: all; node: default this server)';
REVOKE ALL ON FUNCTION lock_history.hot_pages(timestamptz, timestamptz, integer, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.hot_pages(timestamptz, timestamptz, integer, text) TO pg_monitor;
