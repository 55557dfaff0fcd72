-- The servers whose history is here.
--
-- A server's own worker says how it is; of the others there is what they have
-- written, and when: an idle one writes every minute at the least (one that writes
-- to itself every 15 minutes).
CREATE VIEW lock_history.nodes AS
SELECT n.node, n.system_identifier, n.server_version_num,
       k.is_local, n.first_seen, s.last_seen, k.complete_until,
       CASE WHEN k.is_local THEN k.state
            WHEN s.run IS NULL THEN 'never wrote'
            WHEN s.silent_from < pg_catalog.statement_timestamp() THEN 'silent'
            ELSE 'recording' END AS state,
       CASE WHEN k.complete_until IS NOT NULL
            THEN greatest(pg_catalog.statement_timestamp() + coalesce(n.clock_offset, '0') - k.complete_until, interval '0') END AS lag,
       n.clock_offset, n.clock_error, n.clock_at AS clock_measured_at,
       r.rows, r.lives, s.flush_period
FROM lock_history.node AS n
JOIN lock_history.node_state AS s ON s.node_id = n.node_id
CROSS JOIN (SELECT pg_catalog.max(w.value) FILTER (WHERE w.key = 'node') AS node,
                   pg_catalog.max(w.value) FILTER (WHERE w.key = 'state') AS state,
                   nullif(pg_catalog.max(w.value) FILTER (WHERE w.key = 'last_flush'), '')::timestamptz AS last_flush
            FROM lock_history.worker_status() AS w) AS w
CROSS JOIN LATERAL (SELECT l.is_local, CASE WHEN l.is_local THEN w.state END AS state,
                           CASE WHEN l.is_local THEN greatest(s.heartbeat, w.last_flush) ELSE s.heartbeat END AS complete_until
                    FROM (SELECT (n.node = w.node) IS TRUE AS is_local) AS l) AS k
CROSS JOIN LATERAL (SELECT coalesce(pg_catalog.sum(l.rows), 0)::bigint AS rows, pg_catalog.count(*) AS lives
                    FROM lock_history.run AS l WHERE l.node_id = n.node_id) AS r;

GRANT SELECT ON lock_history.nodes TO pg_monitor;
COMMENT ON VIEW lock_history.nodes IS
    'The servers whose history is here: which are heard of, how far each is complete, and how its clock goes';
COMMENT ON COLUMN lock_history.nodes.node IS 'name of the server, as in all views (node_name, else host name and port)';
COMMENT ON COLUMN lock_history.nodes.system_identifier IS 'as in pg_control_system(); a primary and its standbys have the same';
COMMENT ON COLUMN lock_history.nodes.server_version_num IS 'version of the server, as in server_version_num';
COMMENT ON COLUMN lock_history.nodes.is_local IS 'it is the server that answers';
COMMENT ON COLUMN lock_history.nodes.first_seen IS 'since when it is recorded here, by its own clock';
COMMENT ON COLUMN lock_history.nodes.last_seen IS 'when it wrote last, by the clock of this server; an idle one writes every minute, or every 15 minutes when it writes to itself';
COMMENT ON COLUMN lock_history.nodes.complete_until IS 'up to when its history is complete, by its own clock';
COMMENT ON COLUMN lock_history.nodes.state IS 'recording; silent: longer than it should be; never wrote; of the server that answers what status() has as state';
COMMENT ON COLUMN lock_history.nodes.lag IS 'how far complete_until is behind now, on the clock of that server';
COMMENT ON COLUMN lock_history.nodes.clock_offset IS 'its clock less that of this server: positive when it is ahead; null: not measured. All times in rows of a server are by its own clock';
COMMENT ON COLUMN lock_history.nodes.clock_error IS 'how far off clock_offset may be: half of the round trip that measured it';
COMMENT ON COLUMN lock_history.nodes.clock_measured_at IS 'when it was measured, by the clock of this server: at each connect, and every 10 minutes';
COMMENT ON COLUMN lock_history.nodes.rows IS 'rows written by the lives of its worker that are remembered (twice the retention)';
COMMENT ON COLUMN lock_history.nodes.lives IS 'number of these lives';
COMMENT ON COLUMN lock_history.nodes.flush_period IS 'its flush_period';

-- Its rows go with the ring; without the node they are nobody's, and in no view.  A
-- writer that comes back finds its run row gone, and begins anew under another number.
CREATE FUNCTION lock_history.forget_node(node text)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    old record;
BEGIN
    PERFORM lock_history.check_change();
    SELECT s.node_id, s.last_seen, s.silent_from > pg_catalog.clock_timestamp() AS is_heard_of INTO old
    FROM lock_history.node_state AS s WHERE s.node = forget_node.node;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no node "%"', coalesce(forget_node.node, '')
            USING ERRCODE = 'undefined_object', HINT = 'SELECT node FROM lock_history.nodes lists them.';
    ELSIF old.is_heard_of THEN
        RAISE EXCEPTION 'node "%" may still write here', forget_node.node
            USING ERRCODE = 'object_in_use', DETAIL = pg_catalog.format('It wrote last at %s.', old.last_seen),
                  HINT = 'Stop it, or have it write elsewhere; its state in lock_history.nodes must be silent.';
    END IF;
    DELETE FROM lock_history.run AS r WHERE r.node_id = old.node_id;
    DELETE FROM lock_history.detector AS d WHERE d.node_id = old.node_id;
    DELETE FROM lock_history.minute_gap AS g WHERE g.node_id = old.node_id;
    DELETE FROM lock_history.node AS n WHERE n.node_id = old.node_id;
END
$$;
COMMENT ON FUNCTION lock_history.forget_node(text) IS 'Removes a server that is recorded here no more, with its history; kept incidents stay';
REVOKE ALL ON FUNCTION lock_history.forget_node(text) FROM PUBLIC;
