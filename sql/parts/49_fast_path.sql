-- The fast path: how near sessions are to the end of the slots that each has
-- for its own relation locks.
CREATE VIEW lock_history.fast_path AS
SELECT f.node, f.at, d.datname, f.sessions, f.slots_max, f.slots AS slots_available, f.sessions_full,
       nullif(f.spilled_max, -1) AS spilled_locks_max, f.max_locks AS max_locks_per_transaction, f.server_version_num
FROM (SELECT n.node, s.seg, s.node_id, s.at, s.slots, s.max_locks, s.server_version_num, pg_catalog.unnest(s.dims) AS dim_id,
             pg_catalog.unnest(s.sessions) AS sessions, pg_catalog.unnest(s.slots_max) AS slots_max,
             pg_catalog.unnest(s.sessions_full) AS sessions_full, pg_catalog.unnest(s.spilled_max) AS spilled_max
      FROM lock_history.fastpath AS s
      JOIN lock_history.recorded AS n ON n.node_id = s.node_id AND n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
      WHERE s.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END)) AS f
JOIN lock_history.dim AS d ON d.seg = f.seg AND d.dim_id = f.dim_id AND d.kind = 7 AND d.node_id = f.node_id;

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
SELECT h.node, h.at, h.last_at, d.datname, d.usename,
       CASE WHEN (SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'))
                 OR (d.node_id = ANY ((SELECT lock_history.own_nodes())::integer[]) AND pg_catalog.pg_has_role(d.usesysid, 'USAGE')) IS TRUE
            THEN d.query_id END AS query_id,
       h.locks_max, h.slots_max, h.slots AS slots_available, nullif(h.spilled_max, -1) AS spilled_locks_max,
       h.looks, h.looks_full, h.sessions, h.max_locks AS max_locks_per_transaction, h.server_version_num,
       CASE WHEN (SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'))
                 OR (d.node_id = ANY ((SELECT lock_history.own_nodes())::integer[]) AND pg_catalog.pg_has_role(d.usesysid, 'USAGE')) IS TRUE
            THEN t.query ELSE '<insufficient privilege>' END AS query
FROM (SELECT n.node, s.seg, s.node_id, s.at, s.last_at, s.slots, s.max_locks, s.server_version_num, pg_catalog.unnest(s.dims) AS dim_id,
             pg_catalog.unnest(s.locks_max) AS locks_max, pg_catalog.unnest(s.slots_max) AS slots_max,
             pg_catalog.unnest(s.spilled_max) AS spilled_max, pg_catalog.unnest(s.looks) AS looks,
             pg_catalog.unnest(s.looks_full) AS looks_full, pg_catalog.unnest(s.sessions) AS sessions
      FROM lock_history.hungry AS s
      JOIN lock_history.recorded AS n ON n.node_id = s.node_id AND n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
      WHERE s.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END)) AS h
JOIN lock_history.dim AS d ON d.seg = h.seg AND d.dim_id = h.dim_id AND d.kind = 4 AND d.node_id = h.node_id
-- Not through the view of texts, which reads minutes too: a segment has the texts
-- of its own statements.  Who does not ask for the text does not pay for it.
LEFT JOIN (SELECT x.node_id, x.query_id, x.datid, x.usesysid, (pg_catalog.array_agg(x.query ORDER BY x.seen_at DESC))[1] AS query
           FROM lock_history.dim AS x
           WHERE x.kind = 5
           GROUP BY x.node_id, x.query_id, x.datid, x.usesysid) AS t
       ON t.node_id = d.node_id AND t.query_id = d.query_id AND t.datid = d.datid AND t.usesysid = d.usesysid;

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
COMMENT ON COLUMN lock_history.lock_hungry_queries.query IS 'text of the statement, as in queries; null: not caught while it ran, or not kept';

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

-- A sentence as lines that fit a terminal; those that go on are set in.
CREATE FUNCTION lock_history.fold(sentence text, width integer)
RETURNS SETOF text
LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN m.no > 1 THEN '  ' ELSE '' END || m.part[1]
    -- a word that is longer than a line stays whole
    FROM regexp_matches(fold.sentence, format('(\S{%1$s,}|.{1,%1$s})(?:\s+|$)', fold.width - 2), 'g') WITH ORDINALITY AS m(part, no)
    ORDER BY m.no
$$;
COMMENT ON FUNCTION lock_history.fold(text, integer) IS 'internal: a sentence as lines of at most so many characters';
REVOKE ALL ON FUNCTION lock_history.fold(text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.fold(text, integer) TO pg_monitor;

-- What the figures mean, and what to do.  Told is the last size of the fast path
-- in the range: what was seen before it was changed says nothing about it.
CREATE FUNCTION lock_history.fast_path_advice(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, node text DEFAULT NULL)
RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    width       CONSTANT integer := 100;
    most        CONSTANT integer := 3;      -- statements that are named
    wanted_node text := coalesce(fast_path_advice.node, lock_history.local_node());
    lower_bound timestamptz := coalesce(fast_path_advice.since, '-infinity');
    upper_bound timestamptz := coalesce(fast_path_advice.until, 'infinity');
    size        record;
    seen        record;
    worst       record;
    statement   record;
    named       integer := 0;
    locks_max   integer;
    own         bigint;
    share       double precision;
    said        text[] := '{}';
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
    WHERE p.at >= lower_bound AND p.at < upper_bound AND (wanted_node IS NULL OR p.node = wanted_node)
    ORDER BY p.at DESC LIMIT 1;
    IF NOT FOUND THEN
        -- no row where all was well, and none where nobody looked
        RETURN NEXT CASE WHEN (SELECT coalesce(sum(lock_history.sampled_ms(n.node, lower_bound, least(upper_bound, statement_timestamp()))), 0)
                               FROM lock_history.recorded AS n
                               WHERE n.incident IS NOT DISTINCT FROM lock_history.incident() AND (wanted_node IS NULL OR n.node = wanted_node)) > 0
                         THEN 'Nothing is wrong: in what was sampled no session had half of its fast-path slots in use.'
                         ELSE 'Nothing was sampled in this range.' END;
        RETURN;
    END IF;

    SELECT count(DISTINCT p.at) FILTER (WHERE p.sessions_full > 0) AS seconds_full,
           max(p.slots_max) AS slots_max, max(p.spilled_locks_max) AS spilled,
           date_trunc('second', min(p.at) FILTER (WHERE p.sessions_full > 0)) AS first_full,
           date_trunc('second', max(p.at) FILTER (WHERE p.sessions_full > 0)) AS last_full
      INTO seen
    FROM lock_history.fast_path AS p
    WHERE p.at >= lower_bound AND p.at < upper_bound AND p.node = size.node
      AND p.slots_available = size.slots AND p.server_version_num / 10000 = size.version;
    IF seen.seconds_full = 0 THEN
        RETURN QUERY SELECT f FROM lock_history.fold(format(
            'Nothing is wrong: in what was sampled no session ran out of fast-path slots. Version %s with max_locks_per_transaction = %s has %s for each session, and at most %s of them were in use.',
            size.version, size.max_locks, size.slots, seen.slots_max), width) AS f;
        RETURN;
    END IF;

    SELECT p.at, sum(p.sessions_full) AS full_, sum(p.sessions) AS sessions
      INTO worst
    FROM lock_history.fast_path AS p
    WHERE p.at >= seen.first_full AND p.at <= seen.last_full AND p.node = size.node
      AND p.slots_available = size.slots AND p.server_version_num / 10000 = size.version
    GROUP BY p.at
    ORDER BY sum(p.sessions_full) DESC, sum(p.sessions), p.at LIMIT 1;

    -- Undone at once: together with those of load it would be more than 64
    -- relation locks.  Variables keep what they were set to.
    BEGIN
        EXECUTE format($sql$
            WITH number AS MATERIALIZED (
                SELECT l.seg, l.node_id, l.dim_id, sum(l.load_ms) AS ms
                FROM lock_history.%I AS l
                WHERE l.node = $1 AND l.at > $2 - interval '1 min' AND l.at + l.length > $2 AND l.at <= $3
                GROUP BY l.seg, l.node_id, l.dim_id)
            SELECT (sum(u.ms) FILTER (WHERE d.wait_event_type = 'LWLock' AND d.wait_event = 'LockManager') / nullif(sum(u.ms), 0))::double precision
            FROM number AS u
            JOIN lock_history.load_dictionary AS d ON d.seg = u.seg AND d.dim_id = u.dim_id AND d.node_id = u.node_id$sql$,
            -- as in top_queries()
            CASE WHEN seen.last_full - seen.first_full > interval '2 h' THEN 'load_by_minute' ELSE 'load_history' END)
        INTO share USING size.node, seen.first_full, seen.last_full;
        RAISE EXCEPTION USING ERRCODE = 'PLH01';
    EXCEPTION WHEN SQLSTATE 'PLH01' THEN
        NULL;
    END;

    IF size.version < 18 THEN
        said := said || format('Version %s gives each session %s fast-path slots for its relation locks; no setting changes that (from version 18 on max_locks_per_transaction does).',
                               size.version, size.slots);
    ELSE
        said := said || format('Version %s makes %s fast-path slots for each session of max_locks_per_transaction = %s, in %s groups of 16. A relation belongs to one group by its OID; a session is full when one group is.',
                               size.version, size.slots, size.max_locks, size.slots / 16);
    END IF;
    said := said || format('Seconds in which sessions were full: %s, from %s to %s. Worst second: %s of %s sessions full at %s. %s',
                           seen.seconds_full, seen.first_full, seen.last_full, worst.full_, worst.sessions, worst.at::time(0),
                           CASE WHEN seen.spilled IS NULL THEN 'How many of their relation locks found no slot was not looked for.'
                                ELSE format('Up to %s relation locks of one session found no slot.', seen.spilled) END)::text;
    said := said || 'A lock without a slot goes to the shared lock table, through one of its 16 partitions in exclusive mode, and again when it is released: with many sessions they wait there for each other (LWLock LockManager).'::text;
    said := said || CASE WHEN share IS NULL THEN 'Nobody was seen waiting there meanwhile.'
                         ELSE format('Did it hurt? Waiting there was %s %% of the load from the first of these seconds to the last%s.', round((100 * share)::numeric, 1),
                                     CASE WHEN share < 0.01 THEN ': no' WHEN share < 0.1 THEN ': a little' ELSE ': yes' END) END;

    -- A look is a session at one time, so those that found it full say for how
    -- long, and in how many sessions.
    FOR statement IN
        SELECT h.query_id, h.datname, h.usename, h.query, sum(h.looks_full) AS looks_full, max(h.sessions) AS sessions, max(h.locks_max) AS locks,
               max(h.locks_max) FILTER (WHERE h.spilled_locks_max IS NOT NULL) IS DISTINCT FROM max(h.locks_max) AS at_least
        FROM lock_history.lock_hungry_queries AS h
        WHERE h.at < upper_bound AND h.last_at >= lower_bound AND h.node = size.node
          AND h.slots_available = size.slots AND h.server_version_num / 10000 = size.version AND h.looks_full > 0
        GROUP BY h.query_id, h.datname, h.usename, h.query
        ORDER BY sum(h.looks_full) DESC, max(h.locks_max) DESC, h.query_id
    LOOP
        -- who reads the history of locks takes many: no news
        IF statement.query ~ 'lock_history' THEN
            own := coalesce(own, 0) + statement.looks_full;
            CONTINUE;
        END IF;
        named := named + 1;
        CONTINUE WHEN named > most;
        IF named = 1 THEN
            said := said || 'By statement, those first that were seen full most often (tables, indexes and partitions locked in one transaction):'::text;
        END IF;
        locks_max := greatest(locks_max, statement.locks);
        said := said || format('%s. %s %s: full in %s looks and up to %s sessions a second, %s%s locks%s', named,
                               coalesce('query_id ' || statement.query_id, 'a statement without query_id, or not yours to see,'),
                               concat_ws(' ', 'of ' || statement.usename, 'in database ' || statement.datname),
                               statement.looks_full, statement.sessions, CASE WHEN statement.at_least THEN 'at least ' ELSE 'up to ' END, statement.locks,
                               coalesce(': ' || left(regexp_replace(nullif(statement.query, '<insufficient privilege>'), '\s+', ' ', 'g'), 120), ''))::text;
    END LOOP;
    IF own IS NOT NULL THEN
        said := said || format('Left out: statements that read this history itself, full in %s looks.', own);
    END IF;
    IF named = 0 AND own IS NOT NULL THEN
        said := said || 'No other statement was seen full, as far as it is written.'::text;
    ELSIF named = 0 THEN
        said := said || 'Which statement it was is not written yet: lock_history.flush() has it written.'::text;
    END IF;

    IF named > 0 OR own IS NULL THEN
        -- A group may be full while there are fewer locks than slots: then they are not spread evenly.
        enough := lock_history.fast_path_slots(coalesce(locks_max, seen.slots_max + coalesce(seen.spilled, 1)));
        IF size.version >= 18 THEN
            IF enough <= size.slots AND size.slots < 16384 THEN
                said := said || format('max_locks_per_transaction = %s: %s slots would do if the relations were spread evenly over the groups; they are not, and more groups spread them better. It takes a restart (of standbys first) and shared memory.',
                                       2 * size.slots, size.slots);
                enough := 2 * size.slots;
            ELSIF enough <= size.slots THEN
                said := said || 'More slots than that there cannot be.'::text;
            ELSE
                said := said || format('max_locks_per_transaction = %s holds so many when they are spread evenly over its %s groups, as relations made one after the other are; %s holds them nearly always. It takes a restart (of standbys first) and shared memory.',
                                       enough, enough / 16, least(2 * enough, 16384));
            END IF;
            IF lock_history.incident() IS NULL
               AND EXISTS (SELECT FROM lock_history.worker_status() AS w WHERE w.key = 'node' AND w.value = size.node) THEN
                setting_now := current_setting('max_locks_per_transaction')::integer;
                IF setting_now <> size.max_locks THEN
                    said := said || format('By now max_locks_per_transaction is %s: %s slots.', setting_now, lock_history.fast_path_slots(setting_now));
                END IF;
            END IF;
        END IF;
        said := said || 'Fewer locks: planning a statement locks every index of its tables, used or not, so drop those without use (pg_stat_user_indexes.idx_scan); and every partition that conditions on the partition key do not rule out.'::text;
        said := said || 'Prepared statements: a generic plan locks of the indexes only those that it uses, but all partitions; plan_cache_mode = force_custom_plan leaves out the partitions that are not needed, and locks all indexes. Choose by what the statement has many of.'::text;
        said := said || 'Fewer sessions at work at a time (a connection pool) shorten the queue for the partitions.'::text;
        IF size.version < 18 THEN
            said := said || format('From version 18 on max_locks_per_transaction = %s would hold so many.', enough);
        END IF;
    END IF;
    RETURN QUERY SELECT f.line FROM unnest(said) WITH ORDINALITY AS s(sentence, no), lock_history.fold(s.sentence, width) WITH ORDINALITY AS f(line, no)
                 ORDER BY s.no, f.no;
END
$$;
COMMENT ON FUNCTION lock_history.fast_path_advice(timestamptz, timestamptz, text) IS
    'In words: whether sessions ran out of fast-path slots, whether it hurt, which statements did it, and what helps on this version (since, until: default all; node: default this server)';
REVOKE ALL ON FUNCTION lock_history.fast_path_advice(timestamptz, timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.fast_path_advice(timestamptz, timestamptz, text) TO pg_monitor;
