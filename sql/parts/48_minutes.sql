-- Load as far back as there is any, for functions over a range: seconds as long
-- as they are in the ring, after that minutes.

-- What load is missing in a gap.  Seconds are handed over when they are complete, so
-- what is lost of load is lost by the second: with facts that were dropped the
-- seconds that were complete then, with a life of the worker that did not end in
-- order (it has a detail) the one that was not.  In gaps of any other kind the
-- seconds at both ends are there, with what was sampled of them.
CREATE FUNCTION lock_history.load_hole(reason text, detail text, began timestamptz, ended timestamptz)
RETURNS tstzrange
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT tstzrange(h.began, greatest(h.began, h.ended))
    FROM (SELECT CASE WHEN k.is_dropped OR (load_hole.reason = 'stopped' AND load_hole.detail IS NOT NULL)
                      THEN date_trunc('second', load_hole.began) ELSE load_hole.began END AS began,
                 CASE WHEN k.is_dropped THEN date_trunc('second', load_hole.ended) ELSE load_hole.ended END AS ended
          FROM (SELECT load_hole.reason IN ('writer blocked', 'ring held', 'elsewhere') AS is_dropped) AS k) AS h
$$;
COMMENT ON FUNCTION lock_history.load_hole(text, text, timestamptz, timestamptz) IS
    'internal: the time of which load is missing in a gap';
REVOKE ALL ON FUNCTION lock_history.load_hole(text, text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.load_hole(text, text, timestamptz, timestamptz) TO pg_monitor;

-- Rolling up: a closed segment's seconds become minutes, step by step.
--
-- Whoever of the writers comes first does it (the row of the segment is locked,
-- nobody waits for it), for all nodes.  Of a minute the "most" largest
-- combinations stay as they are; the others lose their statement and are added
-- up, and what is then over that loses database and role.  The sum is never
-- changed.  Numbers come from the dictionary of the segment of minutes; a hash
-- finds them, so that it can be joined (null is equal to null in it).
CREATE FUNCTION lock_history.roll_up(seg smallint, into_seg smallint, step interval, most integer DEFAULT 200)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER -- for a writer that may not read
SET search_path = pg_catalog, pg_temp
SET session_replication_role = replica  -- as keep()
SET plan_cache_mode = force_custom_plan
SET jit = off
SET timezone = 'UTC'
AS $$
#variable_conflict use_column
DECLARE
    closed  record;
    source  bigint;
    began   timestamptz;
    ended   timestamptz;
    known   bigint;
BEGIN
    SELECT r.round, r.opened_at, r.closed_at, r.rolled_to INTO closed
    FROM lock_history.ring AS r
    WHERE r.seg = roll_up.seg AND r.closed_at IS NOT NULL AND NOT r.is_empty AND NOT r.is_rolled
    FOR UPDATE NOWAIT;
    IF NOT FOUND THEN
        RETURN true;  -- nothing to do, or another writer has done it
    END IF;
    source := closed.round * 8 + roll_up.seg;
    -- A writer that has found the segment open may still be at it: not now, then.
    EXECUTE pg_catalog.format('LOCK TABLE lock_history.%I, lock_history.%I IN SHARE MODE NOWAIT', 'second_' || roll_up.seg, 'gap_' || roll_up.seg);
    -- time in which there is nothing is passed over
    SELECT pg_catalog.min(s.at) INTO began FROM lock_history.second AS s
    WHERE s.seg = roll_up.seg AND s.at >= coalesce(closed.rolled_to, '-infinity');
    IF began IS NULL THEN
        -- gaps that touch are one; of very many the longest
        INSERT INTO lock_history.minute_gap (node_id, source, began, ended)
        SELECT g.node_id, source, lower(g.part), upper(g.part)
        FROM (SELECT m.node_id, pg_catalog.unnest(pg_catalog.range_agg(lock_history.load_hole(m.reason, m.detail, m.began, m.ended))) AS part
              FROM lock_history.gap AS m WHERE m.seg = roll_up.seg AND m.part IS DISTINCT FROM 'waits'
              GROUP BY m.node_id) AS g
        ORDER BY upper(g.part) - lower(g.part) DESC LIMIT 1000;
        UPDATE lock_history.ring AS r SET rolled_to = r.closed_at, is_rolled = true WHERE r.seg = roll_up.seg;
        RETURN true;
    END IF;
    ended := pg_catalog.date_bin('1 min', began, 'epoch') + step;

    -- As in package store: numbers fit two bytes.  When they run out, statements
    -- are not told apart any more.
    SELECT coalesce(pg_catalog.max(n.count), 0) INTO known
    FROM (SELECT pg_catalog.count(*) FROM lock_history.minute_dim AS d
          WHERE d.seg = into_seg AND d.kind = 1 GROUP BY d.node_id) AS n;

    WITH part AS MATERIALIZED (
        SELECT s.node_id, pg_catalog.date_bin('1 min', s.at, 'epoch') AS at, l.dim_id,
               pg_catalog.sum(l.ms + 32768 * coalesce(l.carry, 0)) AS ms
        FROM lock_history.second AS s
        CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(s.dims), pg_catalog.unnest(s.load_ms), pg_catalog.unnest(s.carry)) AS l(dim_id, ms, carry)
        WHERE s.seg = roll_up.seg AND s.at >= began AND s.at < ended
        GROUP BY 1, 2, 3
    ), told AS (
        SELECT p.node_id, p.at, p.ms, d.wait_event_type, d.wait_event, d.lwlock_mode, d.backend_type, d.datid, d.datname, d.usesysid, d.usename,
               CASE WHEN pg_catalog.row_number() OVER (PARTITION BY p.node_id, p.at ORDER BY p.ms DESC, p.dim_id)
                         <= CASE WHEN known < 50000 THEN most ELSE 0 END
                    THEN d.query_id END AS query_id
        FROM part AS p
        JOIN lock_history.dim AS d ON d.seg = roll_up.seg AND d.kind = 1 AND d.dim_id = p.dim_id AND d.node_id = p.node_id
    ), fewer AS (
        SELECT t.node_id, t.at, t.wait_event_type, t.wait_event, t.lwlock_mode, t.backend_type, t.datid, t.datname, t.usesysid, t.usename, t.query_id,
               pg_catalog.sum(t.ms) AS ms,
               pg_catalog.row_number() OVER (PARTITION BY t.node_id, t.at ORDER BY t.query_id IS NULL, pg_catalog.sum(t.ms) DESC) > 2 * most AS is_over
        FROM told AS t
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    ), combination AS MATERIALIZED (
        SELECT f.node_id, f.at, f.wait_event_type, f.wait_event, f.lwlock_mode, f.backend_type, o.datid, o.datname, o.usesysid, o.usename, f.query_id,
               pg_catalog.sum(f.ms) AS ms,
               pg_catalog.hash_record_extended(ROW(f.wait_event_type, f.wait_event, f.lwlock_mode, f.backend_type, o.datid, o.datname,
                                                   o.usesysid, o.usename, f.query_id), 0) AS dim_key
        FROM fewer AS f
        CROSS JOIN LATERAL (SELECT CASE WHEN NOT f.is_over THEN f.datid END AS datid, CASE WHEN NOT f.is_over THEN f.datname END AS datname,
                                   CASE WHEN NOT f.is_over THEN f.usesysid END AS usesysid, CASE WHEN NOT f.is_over THEN f.usename END AS usename) AS o
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    ), named AS MATERIALIZED (
        SELECT d.node_id, d.dim_key, d.dim_id FROM lock_history.minute_dim AS d WHERE d.seg = into_seg AND d.kind = 1
    ), fresh AS MATERIALIZED (
        SELECT c.node_id, c.dim_key, c.wait_event_type, c.wait_event, c.lwlock_mode, c.backend_type, c.datid, c.datname, c.usesysid, c.usename, c.query_id,
               coalesce((SELECT pg_catalog.count(*) FROM named AS n WHERE n.node_id = c.node_id), 0)
               + pg_catalog.row_number() OVER (PARTITION BY c.node_id ORDER BY c.dim_key) AS number
        FROM (SELECT DISTINCT ON (a.node_id, a.dim_key)
                     a.node_id, a.dim_key, a.wait_event_type, a.wait_event, a.lwlock_mode, a.backend_type, a.datid, a.datname, a.usesysid, a.usename, a.query_id
              FROM combination AS a
              WHERE NOT EXISTS (SELECT FROM named AS n WHERE n.node_id = a.node_id AND n.dim_key = a.dim_key)
              ORDER BY a.node_id, a.dim_key) AS c
    ), added AS (
        INSERT INTO lock_history.minute_dim (
            seg, node_id, dim_id, kind, wait_event_type, wait_event, lwlock_mode, backend_type, datid, datname, usesysid, usename, query_id, dim_key)
        SELECT into_seg, f.node_id, CASE WHEN f.number < 32768 THEN f.number ELSE f.number - 65536 END, 1,
               f.wait_event_type, f.wait_event, f.lwlock_mode, f.backend_type, f.datid, f.datname, f.usesysid, f.usename, f.query_id, f.dim_key
        FROM fresh AS f WHERE f.number < 65536
        RETURNING node_id, dim_key, dim_id
    ), text AS (
        INSERT INTO lock_history.minute_dim (
            seg, node_id, dim_id, kind, datid, datname, usesysid, usename, query_id, query, seen_at)
        SELECT into_seg, t.node_id, t.dim_id, t.kind, t.datid, t.datname, t.usesysid, t.usename, t.query_id, t.query, t.seen_at
        FROM lock_history.dim AS t
        WHERE t.seg = roll_up.seg AND t.kind = 5
          AND (t.node_id, t.query_id) IN (SELECT c.node_id, c.query_id FROM combination AS c WHERE c.query_id IS NOT NULL)
          AND NOT EXISTS (SELECT FROM lock_history.minute_dim AS d
                          WHERE d.seg = into_seg AND d.kind = 5 AND d.node_id = t.node_id AND d.query_id = t.query_id
                            AND coalesce(d.datid, 0) = coalesce(t.datid, 0) AND coalesce(d.usesysid, 0) = coalesce(t.usesysid, 0))
    ), loaded AS (
        SELECT c.node_id, c.at, pg_catalog.array_agg(n.dim_id::smallint ORDER BY c.ms DESC) AS dims,
               pg_catalog.array_agg(least(c.ms, 2147483647)::integer ORDER BY c.ms DESC) AS load_ms
        FROM combination AS c
        JOIN (SELECT k.node_id, k.dim_key, k.dim_id FROM named AS k
              UNION ALL
              SELECT a.node_id, a.dim_key, a.dim_id FROM added AS a) AS n ON n.node_id = c.node_id AND n.dim_key = c.dim_key
        GROUP BY c.node_id, c.at
    ), shown AS (
        SELECT s.node_id, pg_catalog.date_bin('1 min', s.at, 'epoch') AS at, pg_catalog.sum(s.sampled_ms) AS sampled_ms,
               pg_catalog.min(s.at) AS first, pg_catalog.max(s.at) + interval '1 s' AS last,
               pg_catalog.sum(s.clients * s.sampled_ms) AS clients, pg_catalog.sum(s.active * s.sampled_ms) AS active,
               pg_catalog.sum(s.idle_in_transaction * s.sampled_ms) AS idle_in_transaction, pg_catalog.sum(s.waiting * s.sampled_ms) AS waiting
        FROM lock_history.second AS s
        WHERE s.seg = roll_up.seg AND s.at >= began AND s.at < ended
        GROUP BY 1, 2
    )
    INSERT INTO lock_history.minute (
        seg, node_id, source, at, began, ended, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms)
    SELECT into_seg, s.node_id, source, s.at, e.began, e.ended, w.ms, s.clients / greatest(s.sampled_ms, 1), s.active / w.ms,
           s.idle_in_transaction / greatest(s.sampled_ms, 1), s.waiting / w.ms, coalesce(l.dims, '{}'), coalesce(l.load_ms, '{}')
    FROM shown AS s
    LEFT JOIN loaded AS l ON l.node_id = s.node_id AND l.at = s.at
    -- Segments change between two seconds.  A segment may have been opened for a fact
    -- that is older than seconds of the one before.
    CROSS JOIN LATERAL (SELECT least(s.first, greatest(s.at, pg_catalog.date_trunc('second', closed.opened_at),
                                                       (SELECT pg_catalog.date_trunc('second', n.first_seen) FROM lock_history.node AS n WHERE n.node_id = s.node_id),
                                                       (SELECT pg_catalog.max(o.at) + interval '1 s' FROM lock_history.second AS o
                                                        WHERE o.seg = (roll_up.seg + 7) % 8 AND o.node_id = s.node_id AND o.at >= s.at AND o.at < s.first))) AS began,
                               greatest(s.last, least(s.at + interval '1 min', pg_catalog.date_trunc('second', closed.closed_at))) AS ended) AS e
    -- seconds without a row were sampled too, but for gaps
    CROSS JOIN LATERAL (SELECT greatest(s.sampled_ms, 1, 1000 * extract(epoch FROM
                                   e.ended - e.began
                                   - coalesce((SELECT pg_catalog.sum(upper(h.hole) - lower(h.hole))
                                               FROM (SELECT pg_catalog.unnest(pg_catalog.range_agg(lock_history.load_hole(g.reason, g.detail, g.began, g.ended)
                                                                                                   * pg_catalog.tstzrange(e.began, e.ended))) AS hole
                                                     FROM lock_history.gap AS g
                                                     WHERE g.seg = roll_up.seg AND g.node_id = s.node_id AND g.part IS DISTINCT FROM 'waits'
                                                       -- it may begin up to a second earlier
                                                       AND g.began < e.ended + interval '1 s' AND g.ended > e.began) AS h), '0')))::integer AS ms) AS w;

    UPDATE lock_history.ring AS r SET rolled_to = ended WHERE r.seg = roll_up.seg;
    RETURN false;
END
$$;
COMMENT ON FUNCTION lock_history.roll_up(smallint, smallint, interval, integer) IS
    'internal: adds up the next step of a closed segment''s seconds by minute; true when all of it is done';
REVOKE ALL ON FUNCTION lock_history.roll_up(smallint, smallint, interval, integer) FROM PUBLIC;

-- load_history: each row is a combination, by its number, and the session time that
-- went into it from "began" to "ended", within "length" from "at" on: of a row that
-- is in a range in part, take a part of what was sampled of it.  Where nobody was active there is no row, nor where nothing
-- was sampled: see sampled_ms().  Seconds as long as they are there, minutes of what
-- is gone: in the moment in which a segment is emptied its minutes begin to count,
-- so that nothing is counted twice or not at all.
--
-- load_by_minute: the same for who needs no seconds.  Minutes of all segments that
-- are rolled up, seconds of the others; a range of days is read 60 times as fast.
--
-- load_dictionary: what the numbers stand for.  Whoever adds up many seconds does so
-- by number, and joins it last.  Segments of minutes have numbers from 10.
--
-- The node is looked up in each branch, so that a condition on it is met before the
-- arrays of all the others are taken apart, which are read by way of it ("n.node >= ''").
--
-- All are made of leaves: each parent, and each view between, would be another of
-- the 64 relation locks a reader may take.
DO $do$
DECLARE
    -- [1] the view, [2] which seconds count, [3] whose minutes do not
    made text[];
BEGIN
    FOREACH made SLICE 1 IN ARRAY ARRAY[
        ['load_history', 'true', 'NOT r.is_empty'],
        ['load_by_minute', '%s <> ALL (ARRAY(SELECT r.seg FROM lock_history.ring AS r WHERE r.is_rolled))', 'NOT r.is_empty AND NOT r.is_rolled']] LOOP
        EXECUTE pg_catalog.format($sql$
            CREATE VIEW lock_history.%I AS
            SELECT h.node_id, h.node, h.seg, h.at, h.length, h.sampled_ms, h.dim_id, h.load_ms, h.began, h.ended
            FROM (%s) AS h$sql$,
            made[1],
            (SELECT pg_catalog.string_agg(CASE WHEN g.seg < 9 THEN pg_catalog.format($sql$
                        SELECT s.node_id, n.node, %2$s AS seg, s.at, interval '1 s' AS length, s.sampled_ms, l.dim_id, l.ms + 32768 * coalesce(l.carry, 0) AS load_ms,
                               s.at AS began, s.at + interval '1 s' AS ended
                        FROM lock_history.%1$I AS s
                        JOIN lock_history.%5$s
                        CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(CASE WHEN n.node >= '' THEN s.dims END), pg_catalog.unnest(s.load_ms), pg_catalog.unnest(s.carry)) AS l(dim_id, ms, carry)
                        WHERE (SELECT lock_history.incident()) IS %3$s AND %4$s$sql$,
                        CASE WHEN g.seg < 8 THEN 'second_' || g.seg ELSE 'kept_second' END, g.seg,
                        CASE WHEN g.seg < 8 THEN 'NULL' ELSE 'NOT NULL' END, pg_catalog.format(made[2], g.seg),
                        CASE WHEN g.seg < 8 THEN 'node AS n ON n.node_id = s.node_id'
                             ELSE 'kept_incident AS n ON n.kept_id = -s.node_id AND n.name = (SELECT lock_history.incident())' END)
                    ELSE pg_catalog.format($sql$
                        SELECT m.node_id, n.node, %2$s, m.at, interval '1 min', m.sampled_ms, l.dim_id, l.ms, m.began, m.ended
                        FROM lock_history.%1$I AS m
                        JOIN lock_history.node AS n ON n.node_id = m.node_id
                        CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(CASE WHEN n.node >= '' THEN m.dims END), pg_catalog.unnest(m.load_ms)) AS l(dim_id, ms)
                        WHERE (SELECT lock_history.incident()) IS NULL
                          AND m.source <> ALL (ARRAY(SELECT r.round * 8 + r.seg FROM lock_history.ring AS r WHERE %3$s))$sql$,
                        'minute_' || g.seg - 10, g.seg, made[3]) END, ' UNION ALL ' ORDER BY g.seg)
             FROM pg_catalog.generate_series(0, 13) AS g(seg) WHERE g.seg <> 9));
    END LOOP;
    EXECUTE 'CREATE VIEW lock_history.load_dictionary AS '
        || (SELECT pg_catalog.string_agg(pg_catalog.format($sql$
                SELECT %2$s AS seg, d.node_id, d.dim_id, d.wait_event_type, d.wait_event, d.lwlock_mode, d.backend_type, d.datname, d.usename,
                       CASE WHEN (SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'))
                                 OR (d.node_id = ANY ((SELECT lock_history.own_nodes())::integer[])
                                     AND pg_catalog.pg_has_role(d.usesysid, 'USAGE')) IS TRUE
                            THEN d.query_id END AS query_id
                FROM lock_history.%1$I AS d WHERE d.kind = 1$sql$,
                CASE WHEN g.seg < 8 THEN 'dim_' || g.seg WHEN g.seg = 8 THEN 'kept_dim' ELSE 'minute_dim_' || g.seg - 10 END, g.seg),
                ' UNION ALL ' ORDER BY g.seg)
            FROM pg_catalog.generate_series(0, 13) AS g(seg) WHERE g.seg <> 9);
END
$do$;
COMMENT ON VIEW lock_history.load_history IS
    'internal: load by second, of older times by minute, as session time in ms by number in load_dictionary';
GRANT SELECT ON lock_history.load_history TO pg_monitor;
COMMENT ON VIEW lock_history.load_by_minute IS
    'internal: load by minute, of what is not rolled up by second, as session time in ms by number in load_dictionary';
GRANT SELECT ON lock_history.load_by_minute TO pg_monitor;
COMMENT ON VIEW lock_history.load_dictionary IS
    'internal: what the numbers of load_history and load_by_minute stand for, query_id masked as in pg_stat_activity; to be joined by seg, node_id and dim_id';
GRANT SELECT ON lock_history.load_dictionary TO pg_monitor;

-- The time about which the history of each server can say something: from
-- since, until null (it goes on) or the end of what was kept, but for the holes.
-- Of the leaves, as above.
DO $do$
BEGIN
    EXECUTE pg_catalog.format($sql$
CREATE VIEW lock_history.watched AS
SELECT n.node_id, n.node,
       greatest(n.first_seen, least((SELECT pg_catalog.min(r.opened_at) FROM lock_history.ring AS r WHERE NOT r.is_empty),
                                    (SELECT pg_catalog.min(m.opened_at) FROM lock_history.minute_ring AS m WHERE NOT m.is_empty))) AS since,
       NULL::timestamptz AS until,
       (SELECT coalesce(pg_catalog.range_agg(h.hole), '{}')
        FROM (%s
              UNION ALL
              SELECT pg_catalog.tstzrange(o.began, o.ended) FROM lock_history.minute_gap AS o
              WHERE o.node_id = n.node_id AND o.source <> ALL (ARRAY(SELECT r.round * 8 + r.seg FROM lock_history.ring AS r WHERE NOT r.is_empty))
              UNION ALL
              -- Up to when: its worker knows best.  Of another server the heartbeat is all
              -- there is, and an idle one has one in each heartbeat_every; now is by its own clock.
              SELECT pg_catalog.tstzrange(
                         CASE WHEN w.node = n.node THEN pg_catalog.date_trunc('second', greatest(e.heartbeat, w.last_flush))
                              WHEN coalesce(e.written_at, e.heartbeat) < pg_catalog.statement_timestamp() - 3 * e.flush_period - e.heartbeat_every - interval '1 min'
                              THEN pg_catalog.date_trunc('second', e.heartbeat)
                              ELSE greatest(e.heartbeat, pg_catalog.statement_timestamp() + coalesce(n.clock_offset, '0')) END, 'infinity')
              FROM (SELECT l.node_id, l.heartbeat, l.flush_period, l.written_at, l.heartbeat_every FROM lock_history.run AS l
                    WHERE l.node_id = n.node_id ORDER BY l.run DESC LIMIT 1) AS e
              CROSS JOIN (SELECT pg_catalog.max(k.value) FILTER (WHERE k.key = 'node') AS node,
                                 nullif(pg_catalog.max(k.value) FILTER (WHERE k.key = 'last_flush'), '')::timestamptz AS last_flush
                          FROM lock_history.worker_status() AS k) AS w) AS h) AS holes
FROM lock_history.node AS n
WHERE (SELECT lock_history.incident()) IS NULL
UNION ALL
SELECT -k.kept_id, k.node, k.since, least(k.until, k.complete_until),
       (SELECT coalesce(pg_catalog.range_agg(lock_history.load_hole(g.reason, g.detail, g.began, g.ended)), '{}')
        FROM lock_history.kept_gap AS g WHERE g.node_id = -k.kept_id AND g.part IS DISTINCT FROM 'waits')
FROM lock_history.kept_incident AS k
WHERE k.name = (SELECT lock_history.incident())$sql$,
        (SELECT pg_catalog.string_agg(pg_catalog.format(
                    'SELECT lock_history.load_hole(g.reason, g.detail, g.began, g.ended) AS hole FROM lock_history.%I AS g WHERE g.node_id = n.node_id AND g.part IS DISTINCT FROM ''waits''', 'gap_' || l.seg), ' UNION ALL ')
         FROM pg_catalog.generate_series(0, 7) AS l(seg)));
END
$do$;
COMMENT ON VIEW lock_history.watched IS
    'internal: the time about which the history of each server can say something, and the holes in it';
GRANT SELECT ON lock_history.watched TO pg_monitor;

-- What load of a range is divided by.
CREATE FUNCTION lock_history.sampled_ms(node text, since timestamptz, until timestamptz)
RETURNS double precision
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 1000.0 * coalesce(extract(epoch FROM sum(upper(p.part) - lower(p.part))), 0)
    FROM lock_history.watched AS w
    CROSS JOIN LATERAL unnest(
        tstzmultirange(tstzrange(greatest(w.since, sampled_ms.since),
                                 greatest(w.since, sampled_ms.since, least(w.until, sampled_ms.until))))
        - w.holes) AS p(part)
    WHERE w.node = sampled_ms.node
$$;
COMMENT ON FUNCTION lock_history.sampled_ms(text, timestamptz, timestamptz) IS
    'internal: how much of a time was sampled, in ms';
REVOKE ALL ON FUNCTION lock_history.sampled_ms(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.sampled_ms(text, timestamptz, timestamptz) TO pg_monitor;

-- For status().
CREATE VIEW lock_history.minutes_state AS
SELECT (SELECT pg_catalog.min(m.opened_at) FROM lock_history.minute_ring AS m WHERE NOT m.is_empty) AS since,
       -- what is closed and not rolled up begins there
       (SELECT coalesce(pg_catalog.min(coalesce(r.rolled_to, r.opened_at)) FILTER (WHERE NOT r.is_rolled), pg_catalog.max(r.closed_at))
        FROM lock_history.ring AS r WHERE r.closed_at IS NOT NULL AND NOT r.is_empty) AS rolled_to,
       (SELECT pg_catalog.sum(pg_catalog.pg_total_relation_size(c.oid)) FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^minute_(dim_)?[0-3]$') AS bytes;
COMMENT ON VIEW lock_history.minutes_state IS 'internal: how far minutes reach, and their size';
GRANT SELECT ON lock_history.minutes_state TO pg_monitor;
