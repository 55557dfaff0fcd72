-- The fast path: how near sessions are to the end of the slots that each has
-- for its own relation locks.
CREATE VIEW lock_history.fast_path AS
SELECT n.node, f.at, d.datname, u.sessions, u.slots_max, f.slots AS slots_available, u.sessions_full,
       nullif(u.spilled_max, -1) AS spilled_locks_max, f.max_locks AS max_locks_per_transaction, f.server_version_num
FROM lock_history.fastpath AS f
JOIN lock_history.recorded AS n ON n.node_id = f.node_id
CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(f.dims), pg_catalog.unnest(f.sessions), pg_catalog.unnest(f.slots_max),
                              pg_catalog.unnest(f.sessions_full), pg_catalog.unnest(f.spilled_max))
                   AS u(dim_id, sessions, slots_max, sessions_full, spilled_max)
JOIN lock_history.dim AS d ON d.seg = f.seg AND d.dim_id = u.dim_id AND (d.node_id = f.node_id) IS TRUE
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
  AND f.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END);

GRANT SELECT ON lock_history.fast_path TO pg_monitor;
COMMENT ON VIEW lock_history.fast_path IS
    'Use of the fast path by second and database; no row where every session had over half of its slots free, and one a minute while nobody is active and nothing changes';
COMMENT ON COLUMN lock_history.fast_path.node IS 'server that was watched';
COMMENT ON COLUMN lock_history.fast_path.at IS 'begin of the second';
COMMENT ON COLUMN lock_history.fast_path.datname IS 'database of the sessions; null: none';
COMMENT ON COLUMN lock_history.fast_path.sessions IS 'processes that were seen with relation locks in their slots';
COMMENT ON COLUMN lock_history.fast_path.slots_max IS 'the most slots that one of them had in use';
COMMENT ON COLUMN lock_history.fast_path.slots_available IS 'slots that each process has';
COMMENT ON COLUMN lock_history.fast_path.sessions_full IS 'of sessions, those that were seen with no slot left; from version 18 on: with none left in one of the groups';
COMMENT ON COLUMN lock_history.fast_path.spilled_locks_max IS 'the most relation locks of one of these that found no slot and are in the shared lock table, at least; null: not looked for';
COMMENT ON COLUMN lock_history.fast_path.max_locks_per_transaction IS 'the setting; from version 18 on it gives the number of slots';
COMMENT ON COLUMN lock_history.fast_path.server_version_num IS 'version of the server then';

CREATE VIEW lock_history.lock_hungry_queries AS
SELECT n.node, h.at, h.last_at, d.datname, d.usename,
       CASE WHEN (SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'))
                 OR (d.node_id = ANY ((SELECT lock_history.own_nodes())::integer[]) AND pg_catalog.pg_has_role(d.usesysid, 'USAGE')) IS TRUE
            THEN d.query_id END AS query_id,
       u.locks_max, u.slots_max, h.slots AS slots_available, nullif(u.spilled_max, -1) AS spilled_locks_max,
       u.looks, u.looks_full, u.sessions, h.max_locks AS max_locks_per_transaction, h.server_version_num
FROM lock_history.hungry AS h
JOIN lock_history.recorded AS n ON n.node_id = h.node_id
CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(h.dims), pg_catalog.unnest(h.locks_max), pg_catalog.unnest(h.slots_max),
                              pg_catalog.unnest(h.spilled_max), pg_catalog.unnest(h.looks), pg_catalog.unnest(h.looks_full),
                              pg_catalog.unnest(h.sessions))
                   AS u(dim_id, locks_max, slots_max, spilled_max, looks, looks_full, sessions)
JOIN lock_history.dim AS d ON d.seg = h.seg AND d.dim_id = u.dim_id AND (d.node_id = h.node_id) IS TRUE
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
  AND h.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END);

GRANT SELECT ON lock_history.lock_hungry_queries TO pg_monitor;
COMMENT ON VIEW lock_history.lock_hungry_queries IS
    'Statements that were seen with half of the fast-path slots in use or more, by minute: the 50 with most relation locks';
COMMENT ON COLUMN lock_history.lock_hungry_queries.node IS 'server that was watched';
COMMENT ON COLUMN lock_history.lock_hungry_queries.at IS 'first second of the minute, or of the part of it, in which any was seen';
COMMENT ON COLUMN lock_history.lock_hungry_queries.last_at IS 'and the last one';
COMMENT ON COLUMN lock_history.lock_hungry_queries.datname IS 'database of the sessions; null: none';
COMMENT ON COLUMN lock_history.lock_hungry_queries.usename IS 'their role; null: none';
COMMENT ON COLUMN lock_history.lock_hungry_queries.query_id IS 'query identifier of the statement that ran when its transaction was first seen with so many locks; null: none, or insufficient privilege';
COMMENT ON COLUMN lock_history.lock_hungry_queries.locks_max IS 'the most relation locks of one session: slots in use, and what was seen to have found none';
COMMENT ON COLUMN lock_history.lock_hungry_queries.slots_max IS 'the most slots that one session had in use';
COMMENT ON COLUMN lock_history.lock_hungry_queries.slots_available IS 'slots that each process has';
COMMENT ON COLUMN lock_history.lock_hungry_queries.spilled_locks_max IS 'the most relation locks of one session that found no slot, at least; null: not looked for';
COMMENT ON COLUMN lock_history.lock_hungry_queries.looks IS 'how often a session was seen so; each is looked at some ten times a second';
COMMENT ON COLUMN lock_history.lock_hungry_queries.looks_full IS 'of looks, those that found no slot left; from version 18 on: none left in one of the groups';
COMMENT ON COLUMN lock_history.lock_hungry_queries.sessions IS 'the most sessions that were seen so in one second';
COMMENT ON COLUMN lock_history.lock_hungry_queries.max_locks_per_transaction IS 'the setting; from version 18 on it gives the number of slots';
COMMENT ON COLUMN lock_history.lock_hungry_queries.server_version_num IS 'version of the server then';

-- Slots that a server of version 18 or later makes of the setting: groups of 16,
-- a power of two of them.
CREATE FUNCTION lock_history.fast_path_slots(max_locks integer)
RETURNS integer
LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT min(g.slots) FROM (SELECT 16 << e FROM generate_series(0, 10) AS p(e)) AS g(slots)
    WHERE g.slots >= least(max_locks, 16384)
$$;
COMMENT ON FUNCTION lock_history.fast_path_slots(integer) IS
    'internal: the least number of fast-path slots that there can be from version 18 on and that holds so many locks; as a setting of max_locks_per_transaction it gives just these';
REVOKE ALL ON FUNCTION lock_history.fast_path_slots(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.fast_path_slots(integer) TO pg_monitor;

-- What the figures mean, and what to do.  Told is the last size of the fast path
-- in the range: what was seen before it was changed says nothing about it.
CREATE FUNCTION lock_history.fast_path_advice(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, node text DEFAULT NULL)
RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    wanted_node text := coalesce(fast_path_advice.node, lock_history.local_node());
    lower_bound timestamptz := coalesce(fast_path_advice.since, '-infinity');
    upper_bound timestamptz := coalesce(fast_path_advice.until, 'infinity');
    size        record;
    seen        record;
    worst       record;
    enough      integer;
    setting_now integer;
BEGIN
    PERFORM lock_history.warn_if_nothing_is_here();
    IF fast_path_advice.since > fast_path_advice.until THEN
        RAISE EXCEPTION 'since (%) is after until (%)', fast_path_advice.since, fast_path_advice.until
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    SELECT p.node, p.server_version_num / 10000 AS version, p.slots_available AS slots, p.max_locks_per_transaction AS max_locks
      INTO size
    FROM lock_history.fast_path AS p
    WHERE p.at BETWEEN lower_bound AND upper_bound AND (wanted_node IS NULL OR p.node = wanted_node)
    ORDER BY p.at DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN NEXT 'Nothing is wrong: as far as load was sampled, no session was seen with half of its fast-path slots in use.';
        RETURN;
    END IF;

    SELECT count(DISTINCT p.at) FILTER (WHERE p.sessions_full > 0) AS seconds_full, max(p.sessions_full) AS sessions_full,
           max(p.slots_max) AS slots_max, max(p.spilled_locks_max) AS spilled,
           date_trunc('second', min(p.at) FILTER (WHERE p.sessions_full > 0)) AS first_full,
           date_trunc('second', max(p.at) FILTER (WHERE p.sessions_full > 0)) AS last_full
      INTO seen
    FROM lock_history.fast_path AS p
    WHERE p.at BETWEEN lower_bound AND upper_bound AND p.node = size.node
      AND p.slots_available = size.slots AND p.server_version_num / 10000 = size.version;
    IF seen.seconds_full = 0 THEN
        RETURN NEXT format('Nothing is wrong: no session ran out of fast-path slots. Version %s with max_locks_per_transaction = %s has %s for each session, and at most %s of them were in use.',
                           size.version, size.max_locks, size.slots, seen.slots_max);
        RETURN;
    END IF;

    SELECT h.query_id, h.datname, h.usename, h.locks_max, h.looks, h.at, h.spilled_locks_max IS NULL AND h.looks_full > 0 AS at_least
      INTO worst
    FROM (SELECT l.query_id, l.datname, l.usename, l.locks_max, l.looks_full, l.spilled_locks_max, l.at,
                 sum(l.looks) OVER (PARTITION BY l.query_id, l.datname, l.usename) AS looks
          FROM lock_history.lock_hungry_queries AS l
          WHERE l.at <= upper_bound AND l.last_at >= lower_bound AND l.node = size.node
            AND l.slots_available = size.slots AND l.server_version_num / 10000 = size.version AND l.looks_full > 0) AS h
    ORDER BY h.locks_max DESC, h.looks DESC, h.at DESC LIMIT 1;

    IF size.version < 18 THEN
        RETURN NEXT format('Version %s gives each session %s fast-path slots for its relation locks; no setting changes that (from version 18 on max_locks_per_transaction does).',
                           size.version, size.slots);
    ELSE
        RETURN NEXT format('Version %s makes %s fast-path slots for each session of max_locks_per_transaction = %s, in %s groups of 16. A relation belongs to one group by its OID; a session is full when one group is.',
                           size.version, size.slots, size.max_locks, size.slots / 16);
    END IF;
    RETURN NEXT format('Seconds in which sessions were full: %s, from %s to %s, with up to %s such sessions. %s',
                       seen.seconds_full, seen.first_full, seen.last_full, seen.sessions_full,
                       CASE WHEN seen.spilled IS NULL THEN 'How many of their relation locks found no slot was not looked for.'
                            ELSE format('Up to %s relation locks of one session found no slot.', seen.spilled) END);
    RETURN NEXT 'A lock without a slot goes to the shared lock table, through one of its 16 partitions in exclusive mode, and again when it is released: with many sessions they wait there for each other (LWLock LockManager in load).';
    IF worst.locks_max IS NULL THEN
        RETURN NEXT 'Which statement it was is not written yet: lock_history.flush() has it written.';
    ELSE
        RETURN NEXT format('The most locks: %s%s relations (tables, indexes, partitions) locked in one transaction, by %s %s, seen %s times.',
                           CASE WHEN worst.at_least THEN 'at least ' ELSE '' END, worst.locks_max,
                           coalesce('query_id ' || worst.query_id, 'a statement without query_id, or not yours to see,'),
                           concat_ws(' ', 'of ' || worst.usename, 'in database ' || worst.datname), worst.looks);
    END IF;

    -- A group may be full while there are fewer locks than slots: then they are not spread evenly.
    enough := lock_history.fast_path_slots(greatest(worst.locks_max, seen.slots_max + coalesce(seen.spilled, 1)));
    IF size.version >= 18 THEN
        IF enough <= size.slots AND size.slots < 16384 THEN
            RETURN NEXT format('max_locks_per_transaction = %s: %s slots would do if the relations were spread evenly over the groups; they are not, and more groups spread them better. It takes a restart (of standbys first) and shared memory.',
                               2 * size.slots, size.slots);
            enough := 2 * size.slots;
        ELSIF enough <= size.slots THEN
            RETURN NEXT 'More slots than that there cannot be.';
        ELSE
            RETURN NEXT format('max_locks_per_transaction = %s holds so many when they are spread evenly over its %s groups, as relations made one after the other are; %s holds them nearly always. It takes a restart (of standbys first) and shared memory.',
                               enough, enough / 16, least(2 * enough, 16384));
        END IF;
        IF lock_history.incident() IS NULL
           AND EXISTS (SELECT FROM lock_history.worker_status() AS w WHERE w.key = 'node' AND w.value = size.node) THEN
            setting_now := current_setting('max_locks_per_transaction')::integer;
            IF setting_now <> size.max_locks THEN
                RETURN NEXT format('By now max_locks_per_transaction is %s: %s slots.', setting_now, lock_history.fast_path_slots(setting_now));
            END IF;
        END IF;
    END IF;
    RETURN NEXT 'Fewer locks: planning a statement locks every index of its tables, used or not, so drop those without use (pg_stat_user_indexes.idx_scan); and every partition that conditions on the partition key do not rule out.';
    RETURN NEXT 'Prepared statements: a generic plan locks of the indexes only those that it uses, but all partitions; plan_cache_mode = force_custom_plan leaves out the partitions that are not needed, and locks all indexes. Choose by what the statement has many of.';
    RETURN NEXT 'Fewer sessions at work at a time (a connection pool) shorten the queue for the partitions.';
    IF size.version < 18 THEN
        RETURN NEXT format('From version 18 on max_locks_per_transaction = %s would hold so many.', enough);
    END IF;
END
$$;
COMMENT ON FUNCTION lock_history.fast_path_advice(timestamptz, timestamptz, text) IS
    'In words: whether sessions ran out of fast-path slots, which statement needs most, and what helps on this version (since, until: default all; node: default this server)';
REVOKE ALL ON FUNCTION lock_history.fast_path_advice(timestamptz, timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.fast_path_advice(timestamptz, timestamptz, text) TO pg_monitor;
