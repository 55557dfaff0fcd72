-- Load: average active sessions, by second.
--
-- The masks are those of pg_stat_activity: the statement of a role is for its
-- members and for readers of all statistics.

-- What the arrays of a second say.  One branch for each segment: a condition on
-- "at" gets into each of them, and those in which it leaves no second do not
-- read their dictionary, which may be large.  (As one query over the partitions
-- all dictionaries of the ring would be hashed first.)  So does one on "node", before
-- the arrays of all the others are taken apart.  Ring or kept incident is
-- decided once a query.
DO $do$
BEGIN
    EXECUTE 'CREATE VIEW lock_history.load_second AS '
        || (SELECT pg_catalog.string_agg(pg_catalog.format($sql$
            SELECT s.node, s.node_id, s.at, s.sampled_ms, d.wait_event_type, d.wait_event, d.lwlock_mode, d.datname, d.usename, d.backend_type,
                   CASE WHEN (SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'))
                             OR (d.node_id = ANY ((SELECT lock_history.own_nodes())::integer[])
                                 AND pg_catalog.pg_has_role(d.usesysid, 'USAGE')) IS TRUE
                        THEN d.query_id END AS query_id,
                   s.ms + 32768 * coalesce(s.carry, 0) AS load_ms
            FROM (SELECT n.node, x.node_id, x.at, x.sampled_ms, pg_catalog.unnest(x.dims) AS dim_id,
                         pg_catalog.unnest(x.load_ms) AS ms, pg_catalog.unnest(x.carry) AS carry
                  FROM lock_history.%1$I AS x
                  JOIN lock_history.%4$s) AS s
            JOIN lock_history.%2$I AS d ON d.dim_id = s.dim_id AND d.kind = 1 AND d.node_id = s.node_id
            WHERE (SELECT lock_history.incident()) IS %3$s
            $sql$,
            CASE WHEN g.seg < 8 THEN 'second_' || g.seg ELSE 'kept_second' END,
            CASE WHEN g.seg < 8 THEN 'dim_' || g.seg ELSE 'kept_dim' END,
            CASE WHEN g.seg < 8 THEN 'NULL' ELSE 'NOT NULL' END,
            CASE WHEN g.seg < 8 THEN 'node AS n ON n.node_id = x.node_id'
                 ELSE 'kept_incident AS n ON n.kept_id = -x.node_id AND n.name = (SELECT lock_history.incident())' END), ' UNION ALL ' ORDER BY g.seg)
            FROM pg_catalog.generate_series(0, 8) AS g(seg));
END
$do$;
COMMENT ON VIEW lock_history.load_second IS
    'internal: tables second and dim put together, of ring or kept incident, query_id masked as in pg_stat_activity';
GRANT SELECT ON lock_history.load_second TO pg_monitor;

CREATE VIEW lock_history.load AS
SELECT s.node, s.at, s.wait_event_type, s.wait_event, s.lwlock_mode, s.datname, s.usename, s.backend_type, s.query_id,
       s.load_ms::double precision / nullif(s.sampled_ms, 0) AS aas
FROM lock_history.load_second AS s;

GRANT SELECT ON lock_history.load TO pg_monitor;
COMMENT ON VIEW lock_history.load IS
    'Average active sessions by second, and what they waited for; seconds in which nobody was active have no row';
COMMENT ON COLUMN lock_history.load.node IS 'server that was watched';
COMMENT ON COLUMN lock_history.load.at IS 'begin of the second';
COMMENT ON COLUMN lock_history.load.wait_event_type IS 'type of the event waited for, as in pg_stat_activity; CPU: did not wait';
COMMENT ON COLUMN lock_history.load.wait_event IS 'the event waited for; CPU: did not wait';
COMMENT ON COLUMN lock_history.load.lwlock_mode IS 'LWLocks, and pages in version 19: exclusive, shared, share exclusive, or wait until free (for another one''s work to be done)';
COMMENT ON COLUMN lock_history.load.datname IS 'database of the sessions; null: none';
COMMENT ON COLUMN lock_history.load.usename IS 'their role; null: none';
COMMENT ON COLUMN lock_history.load.backend_type IS 'their kind, as in pg_stat_activity; null: not known yet';
COMMENT ON COLUMN lock_history.load.query_id IS 'query identifier of their statements; null: none, one of too many in that second, or insufficient privilege';
COMMENT ON COLUMN lock_history.load.aas IS 'average number of sessions';

-- Beside it: how many sessions there were.
CREATE VIEW lock_history.sessions AS
SELECT n.node, s.at, s.clients::double precision AS total, s.active::double precision AS active,
       s.idle_in_transaction::double precision AS idle_in_transaction, s.waiting::double precision AS waiting
FROM lock_history.second AS s
JOIN lock_history.recorded AS n ON n.node_id = s.node_id
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
  AND s.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END);

GRANT SELECT ON lock_history.sessions TO pg_monitor;
COMMENT ON VIEW lock_history.sessions IS
    'Sessions by second; while nobody is active and none comes or goes there is no new row';
COMMENT ON COLUMN lock_history.sessions.node IS 'server that was watched';
COMMENT ON COLUMN lock_history.sessions.at IS 'begin of the second';
COMMENT ON COLUMN lock_history.sessions.total IS 'client sessions, average';
COMMENT ON COLUMN lock_history.sessions.active IS 'of these, active';
COMMENT ON COLUMN lock_history.sessions.idle_in_transaction IS 'processes idle in a transaction that has not failed';
COMMENT ON COLUMN lock_history.sessions.waiting IS 'processes that waited for a heavyweight lock';
