-- Incidents that outlive the ring.
--
-- keep() copies what touches a range into segment 8, where the views find it
-- when pg_lock_history.incident says its name.  The waits are copied as
-- wait_episode shows them, so that all is settled that is settled by the state
-- of the ring: which row of a wait counts, and how it ended.
--
-- These run with their owner's rights, so that EXECUTE can be granted.  The
-- incident setting is off inside: what is kept comes out of the ring.  As replicas
-- they fire no trigger that somebody has made who was granted TRIGGER on the tables:
-- it would run with those rights.
-- What keep(), forget() and reset() ask before they change anything.
--
-- With an old snapshot they would not see what the worker writes while they
-- wait for it.  And a publication would send their changes to subscribers that
-- do not have the tables: the writer looks for it, so they do (published.go).
CREATE FUNCTION lock_history.check_change()
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    publication text;
BEGIN
    IF pg_catalog.current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'the history cannot be changed in a transaction that is %', pg_catalog.current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction',
                  DETAIL = 'It would not see what the worker writes meanwhile.', HINT = 'Use READ COMMITTED.';
    END IF;
    IF coalesce(pg_catalog.current_setting('pg_lock_history.allow_published', true), 'off')::boolean THEN
        RETURN;
    END IF;
    SELECT p.pubname INTO publication
    FROM pg_catalog.pg_publication AS p
    WHERE p.puballtables
       OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace AS pn
                  WHERE pn.pnpubid = p.oid AND pn.pnnspid = 'lock_history'::regnamespace)
       OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel AS pr
                  JOIN pg_catalog.pg_class AS r ON r.oid = pr.prrelid
                  WHERE pr.prpubid = p.oid AND r.relnamespace = 'lock_history'::regnamespace)
    ORDER BY p.pubname LIMIT 1;
    IF publication IS NOT NULL THEN
        RAISE EXCEPTION 'publication "%" sends the history to its subscribers, nothing is changed', publication
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Drop it or have it name its tables, or set pg_lock_history.allow_published when the subscribers have the tables.';
    END IF;
END
$$;
COMMENT ON FUNCTION lock_history.check_change() IS
    'internal: fails where a change of the history would go wrong, by an old snapshot or a publication';
REVOKE ALL ON FUNCTION lock_history.check_change() FROM PUBLIC;

-- Numbers of the dictionary are those of a segment, and fit two bytes; these are
-- those of all segments, and do not.
CREATE FUNCTION lock_history.kept_numbers(seg smallint, numbers integer[])
RETURNS integer[]
LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ARRAY(SELECT (kept_numbers.seg + 1) * 16777216 + n.number
                 FROM unnest(kept_numbers.numbers) WITH ORDINALITY AS n(number, place)
                 ORDER BY n.place)
$$;
COMMENT ON FUNCTION lock_history.kept_numbers(smallint, integer[]) IS
    'internal: numbers of the dictionary as keep() stores them';
REVOKE ALL ON FUNCTION lock_history.kept_numbers(smallint, integer[]) FROM PUBLIC;

CREATE FUNCTION lock_history.keep(since timestamptz, until timestamptz, name text, node text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET session_replication_role = replica
SET plan_cache_mode = force_custom_plan
SET jit = off
SET pg_lock_history.incident = ''
AS $$
#variable_conflict use_column
DECLARE
    kept_now    timestamptz := pg_catalog.clock_timestamp();
    wanted_node text := coalesce(keep.node, lock_history.local_node());
    source      record;
    segments    smallint[];
    new_id      integer;
    waits       bigint;
    short_waits bigint;
    seconds     bigint;
    begins      timestamptz;
    first_second timestamptz := pg_catalog.date_trunc('second', keep.since);
    complete_until timestamptz;
    bytes       bigint;
BEGIN
    IF keep.since IS NULL OR keep.until IS NULL THEN
        RAISE EXCEPTION 'since and until must be given'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'As in SELECT lock_history.keep(now() - interval ''10 min'', now(), ''lunch time'').';
    END IF;
    IF pg_catalog.octet_length(keep.name) > 200 THEN
        RAISE EXCEPTION 'the name of an incident may have at most 200 bytes'
            USING ERRCODE = 'name_too_long', DETAIL = pg_catalog.format('This one has %s.', pg_catalog.octet_length(keep.name));
    END IF;
    IF coalesce(pg_catalog.btrim(keep.name), '') = '' THEN
        RAISE EXCEPTION 'an incident must have a name'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is kept and read by that name.';
    END IF;
    IF keep.since > keep.until THEN
        RAISE EXCEPTION 'since (%) is after until (%)', keep.since, keep.until
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF keep.until > kept_now THEN
        RAISE EXCEPTION 'until (%) is in the future', keep.until
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use now() for what happened so far.';
    END IF;
    PERFORM lock_history.check_change();
    SELECT r.node_id, r.node, r.system_identifier INTO source FROM lock_history.recorded AS r WHERE r.incident IS NULL AND r.node = wanted_node;
    IF NOT EXISTS (SELECT FROM lock_history.recorded AS r WHERE r.incident IS NULL) THEN
        RAISE EXCEPTION 'nothing is recorded in this database'
            USING ERRCODE = 'no_data_found',
                  HINT = coalesce((SELECT w.value FROM lock_history.worker_status() AS w WHERE w.key = 'hint'),
                                  'lock_history.status() says whether the worker runs.');
    END IF;
    IF source.node_id IS NULL THEN
        RAISE EXCEPTION '%', coalesce(pg_catalog.format('server "%s" is not recorded here', wanted_node), 'this server is not recorded here')
            USING ERRCODE = 'undefined_object',
                  HINT = 'Give one of these as node: ' || coalesce(
                      (SELECT pg_catalog.string_agg(pg_catalog.format('"%s"', n.node), ', ' ORDER BY n.node)
                       FROM lock_history.recorded AS n WHERE n.incident IS NULL), 'there are none yet') || '.';
    END IF;

    -- before anything is locked: the writer may need it
    IF NOT lock_history.flush_local(source.node, keep.until) THEN
        RAISE WARNING 'the history may not be complete up to %', keep.until
            USING DETAIL = 'The worker did not write what it has within 10 s.', HINT = 'lock_history.status() says why.';
    END IF;

    -- One at a time, readers are not in the way: names and numbers are given out here.
    LOCK TABLE lock_history.kept_incident IN SHARE ROW EXCLUSIVE MODE;
    -- as of before the seconds are read
    SELECT CASE WHEN pg_catalog.upper(w.holes) = 'infinity'
                THEN (SELECT pg_catalog.max(lower(h.hole)) FROM pg_catalog.unnest(w.holes) AS h(hole)) ELSE 'infinity' END INTO complete_until
    FROM lock_history.watched AS w WHERE w.node_id = source.node_id;
    IF EXISTS (SELECT FROM lock_history.kept_incident AS k WHERE k.name = keep.name) THEN
        RAISE EXCEPTION 'incident "%" is kept already', keep.name
            USING ERRCODE = 'duplicate_object',
                  HINT = 'Choose another name, or remove the old one with SELECT lock_history.forget(' || pg_catalog.quote_literal(keep.name) || ').';
    END IF;
    -- At random: incidents of several servers may come together in one archive.
    LOOP
        new_id := 1 + pg_catalog.floor(pg_catalog.random() * 2147483646);
        EXIT WHEN NOT EXISTS (SELECT FROM lock_history.kept_incident AS k WHERE k.kept_id = new_id);
    END LOOP;
    segments := ARRAY(SELECT r.seg FROM lock_history.ring_segment AS r
                      -- a minute for clocks that were set back
                      WHERE r.closed_at IS NULL OR r.closed_at > keep.since - interval '1 min');

    WITH wait AS MATERIALIZED (
        SELECT w.seg, w.wait_id, w.proc_key, w.actor_id, w.is_open AND w.wait_end IS NULL AS goes_on,
               w.wait_start, w.wait_end, w.granted, w.outcome, w.samples,
               w.locktype, w.mode, w.mode_number, w.object, w.database, w.datname, w.relation, w.page, w.tuple,
               w.virtualxid, w.transactionid, w.classid, w.objid, w.objsubid,
               w.lock_key, w.queue_key, w.in_cycle, w.hard_count, w.soft_count, w.soft_pids,
               w.edge_kind, w.edge_proc, w.edge_pid, w.edge_actor, w.edge_modes, w.edge_from, w.edge_to
        FROM lock_history.wait_episode AS w
        WHERE w.wait_start <= keep.until AND w.node_id = source.node_id
          AND (w.is_open OR w.wait_end >= keep.since) AND (w.is_open OR w.seg = ANY (segments))
          AND (NOT w.is_open OR w.wait_end IS NULL OR w.wait_end >= keep.since)
    ), dead AS MATERIALIZED (
        SELECT d.seg, d.run, d.at, d.deadlock_id, d.member, d.pid, d.is_victim, d.waits_for, d.wait_id, d.actor_id,
               d.locktype, d.object, d.mode, d.held_mode, d.held_object, d.database, d.relation, d.transactionid
        FROM lock_history.deadlock AS d
        WHERE d.seg < 8 AND d.node_id = source.node_id AND d.at BETWEEN keep.since AND keep.until
    ), circle AS (
        INSERT INTO lock_history.kept_deadlock (
            seg, node_id, run, at, deadlock_id, member, pid, is_victim, waits_for, wait_id, actor_id,
            locktype, object, mode, held_mode, held_object, database, relation, transactionid)
        SELECT 8, -new_id, d.run, d.at, d.deadlock_id, d.member, d.pid, d.is_victim, d.waits_for, d.wait_id, d.actor_id,
               d.locktype, d.object, d.mode, d.held_mode, d.held_object, d.database, d.relation, d.transactionid
        FROM dead AS d
    ), hit AS MATERIALIZED (
        SELECT c.seg, c.run, c.at, c.conflict, c.ended_session, c.pid, c.actor_id
        FROM lock_history.conflict AS c
        WHERE c.seg < 8 AND c.node_id = source.node_id AND c.at BETWEEN keep.since AND keep.until
    ), replay AS (
        INSERT INTO lock_history.kept_conflict (seg, node_id, run, at, conflict, ended_session, pid, actor_id)
        SELECT 8, -new_id, c.run, c.at, c.conflict, c.ended_session, c.pid, c.actor_id
        FROM hit AS c
    ), who AS (
        -- An actor may be in several segments, and says the same in each.
        INSERT INTO lock_history.kept_actor (
            seg, node_id, actor_id, proc_key, seen_at, pid, leader_pid, gid, backend_start, backend_type, datid, datname,
            usesysid, usename, application_name, client_addr, state, state_change, xact_start, query_start, query_id, query,
            members, stmt_first_seen, stmt_last_seen, stmt_samples, stmt_state, stmt_wait_event_type, stmt_wait_event,
            stmt_query_start, stmt_query_id, stmt_query, stmt_left_out)
        SELECT DISTINCT ON (a.actor_id)
               8, -new_id, a.actor_id, a.proc_key, a.seen_at, a.pid, a.leader_pid, a.gid, a.backend_start, a.backend_type,
               a.datid, a.datname, a.usesysid, a.usename, a.application_name, a.client_addr, a.state, a.state_change,
               a.xact_start, a.query_start, a.query_id, a.query, a.members,
               a.stmt_first_seen, a.stmt_last_seen, a.stmt_samples, a.stmt_state, a.stmt_wait_event_type, a.stmt_wait_event,
               a.stmt_query_start, a.stmt_query_id, a.stmt_query, a.stmt_left_out
        FROM (SELECT w.seg, w.actor_id FROM wait AS w
              UNION
              SELECT w.seg, e.actor FROM wait AS w CROSS JOIN LATERAL pg_catalog.unnest(w.edge_actor) AS e(actor)
              UNION
              SELECT d.seg, d.actor_id FROM dead AS d
              UNION
              SELECT c.seg, c.actor_id FROM hit AS c) AS named
        JOIN lock_history.actor AS a
             ON a.seg = named.seg AND a.actor_id = named.actor_id AND (a.node_id = source.node_id) IS TRUE
        ORDER BY a.actor_id, a.seen_at DESC
    )
    INSERT INTO lock_history.kept_episode (
        seg, node_id, run, wait_id, proc_key, actor_id, written_at, wait_start, wait_end, granted, outcome, samples,
        locktype, mode, mode_number, object, database, datname, relation, page, tuple,
        virtualxid, transactionid, classid, objid, objsubid,
        lock_key, queue_key, in_cycle, hard_count, soft_count, soft_pids,
        edge_kind, edge_proc, edge_pid, edge_actor, edge_modes, edge_from, edge_to)
    SELECT 8, -new_id, 0, w.wait_id, w.proc_key, w.actor_id, kept_now, w.wait_start,
           -- not before it began: clocks may differ
           CASE WHEN w.goes_on THEN greatest(kept_now, w.wait_start) ELSE w.wait_end END,
           w.granted, CASE WHEN w.goes_on THEN 'unknown' ELSE w.outcome END, w.samples,
           w.locktype, w.mode, w.mode_number, w.object, w.database, w.datname, w.relation, w.page, w.tuple,
           w.virtualxid, w.transactionid, w.classid, w.objid, w.objsubid,
           w.lock_key, w.queue_key, w.in_cycle, w.hard_count, w.soft_count, w.soft_pids,
           w.edge_kind, w.edge_proc, w.edge_pid, w.edge_actor, w.edge_modes, w.edge_from, w.edge_to
    FROM wait AS w;
    GET DIAGNOSTICS waits = ROW_COUNT;

    INSERT INTO lock_history.kept_short_wait (
        seg, node_id, at, datname, locktype, database, relation, object, mode, query_id, text_hash, root_pid,
        root_backend_start, waits, total_ms, max_ms, failed)
    SELECT 8, -new_id, s.at, s.datname, s.locktype, s.database, s.relation, s.object, s.mode, s.query_id, s.text_hash,
           s.root_pid, s.root_backend_start, s.waits, s.total_ms, s.max_ms, s.failed
    FROM lock_history.short_wait AS s
    WHERE s.seg < 8 AND s.node_id = source.node_id AND s.at BETWEEN keep.since - interval '1 s' AND keep.until;
    GET DIAGNOSTICS short_waits = ROW_COUNT;

    -- The numbers of several segments come together in one dictionary: what is the
    -- same in several is one, and all fit two bytes.
    WITH loaded AS MATERIALIZED (
        SELECT s.seg, s.run, s.at, s.sampled_ms, s.clients, s.active, s.idle_in_transaction, s.waiting, s.dims, s.load_ms, s.carry
        FROM lock_history.second AS s
        WHERE s.seg < 8 AND s.node_id = source.node_id AND s.at BETWEEN first_second AND keep.until
    ), word AS MATERIALIZED (
        SELECT n.seg, n.dim_id,
               (CASE WHEN n.number > 65535 THEN 0 WHEN n.number < 32768 THEN n.number ELSE n.number - 65536 END)::smallint AS kept_dim_id
        FROM (SELECT d.seg, d.dim_id,
                     pg_catalog.dense_rank() OVER (ORDER BY pg_catalog.hash_record_extended(
                         ROW(d.wait_event_type, d.wait_event, d.lwlock_mode, d.backend_type, d.datid, d.datname, d.usesysid, d.usename, d.query_id), 0)) AS number
              FROM (SELECT DISTINCT l.seg, e.dim_id FROM loaded AS l CROSS JOIN LATERAL pg_catalog.unnest(l.dims) AS e(dim_id)) AS u
              JOIN lock_history.dim AS d ON d.seg = u.seg AND d.dim_id = u.dim_id AND d.kind = 1 AND (d.node_id = source.node_id) IS TRUE) AS n
    ), dictionary AS (
        INSERT INTO lock_history.kept_dim (
            seg, node_id, dim_id, kind, wait_event_type, wait_event, lwlock_mode, backend_type, datid, datname,
            usesysid, usename, query_id, instance, relation, object, fork, object_kind)
        SELECT DISTINCT ON (w.kept_dim_id)
               8, -new_id, w.kept_dim_id, d.kind, d.wait_event_type, d.wait_event, d.lwlock_mode, d.backend_type, d.datid, d.datname,
               d.usesysid, d.usename, d.query_id, d.instance, d.relation, d.object, d.fork, d.object_kind
        FROM word AS w
        JOIN lock_history.dim AS d ON d.seg = w.seg AND d.dim_id = w.dim_id AND d.kind = 1 AND (d.node_id = source.node_id) IS TRUE
        WHERE w.kept_dim_id <> 0
    )
    INSERT INTO lock_history.kept_second (
        seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms, carry)
    SELECT 8, -new_id, l.run, l.at, l.sampled_ms, l.clients, l.active, l.idle_in_transaction, l.waiting,
           ARRAY(SELECT w.kept_dim_id
                 FROM pg_catalog.unnest(l.dims) WITH ORDINALITY AS e(dim_id, place)
                 JOIN word AS w ON w.seg = l.seg AND w.dim_id = e.dim_id
                 ORDER BY e.place), l.load_ms, l.carry
    FROM loaded AS l;
    GET DIAGNOSTICS seconds = ROW_COUNT;

    INSERT INTO lock_history.kept_lwlock (seg, node_id, run, at, sampled_ms, dims, wait_ms, waits, waiters_max, held_exclusive, shared_holders)
    SELECT 8, -new_id, l.run, l.at, l.sampled_ms, lock_history.kept_numbers(l.seg, l.dims),
           l.wait_ms, l.waits, l.waiters_max, l.held_exclusive, l.shared_holders
    FROM lock_history.lwlock AS l
    WHERE l.seg < 8 AND l.node_id = source.node_id AND l.at BETWEEN first_second AND keep.until;

    INSERT INTO lock_history.kept_page (seg, node_id, run, at, sampled_ms, dims, blocks, wait_ms, waits, waiters_max, held_exclusive, shared_holders)
    SELECT 8, -new_id, p.run, p.at, p.sampled_ms, lock_history.kept_numbers(p.seg, p.dims),
           p.blocks, p.wait_ms, p.waits, p.waiters_max, p.held_exclusive, p.shared_holders
    FROM lock_history.page AS p
    WHERE p.seg < 8 AND p.node_id = source.node_id AND p.at BETWEEN first_second AND keep.until;

    INSERT INTO lock_history.kept_wait_length (seg, node_id, run, at, dims, buckets, waits, total_ms)
    SELECT 8, -new_id, w.run, w.at, lock_history.kept_numbers(w.seg, w.dims), w.buckets, w.waits, w.total_ms
    FROM lock_history.wait_length AS w
    WHERE w.seg < 8 AND w.node_id = source.node_id AND w.at > keep.since - interval '1 min' AND w.at <= keep.until;

    INSERT INTO lock_history.kept_fastpath (
        seg, node_id, run, at, server_version_num, max_locks, slots, dims, sessions, slots_max, sessions_full, spilled_max)
    SELECT 8, -new_id, f.run, f.at, f.server_version_num, f.max_locks, f.slots, lock_history.kept_numbers(f.seg, f.dims),
           f.sessions, f.slots_max, f.sessions_full, f.spilled_max
    FROM lock_history.fastpath AS f
    WHERE f.seg < 8 AND f.node_id = source.node_id AND f.at BETWEEN first_second AND keep.until;

    INSERT INTO lock_history.kept_hungry (
        seg, node_id, run, at, last_at, server_version_num, max_locks, slots, dims, locks_max, slots_max, spilled_max, looks, looks_full, sessions)
    SELECT 8, -new_id, h.run, h.at, h.last_at, h.server_version_num, h.max_locks, h.slots, lock_history.kept_numbers(h.seg, h.dims),
           h.locks_max, h.slots_max, h.spilled_max, h.looks, h.looks_full, h.sessions
    FROM lock_history.hungry AS h
    WHERE h.seg < 8 AND h.node_id = source.node_id AND h.at <= keep.until AND h.last_at >= first_second;

    INSERT INTO lock_history.kept_dim (
        seg, node_id, dim_id, kind, wait_event_type, wait_event, lwlock_mode, backend_type, datid, datname, usesysid, usename, query_id,
        instance, relation, object, fork, object_kind)
    SELECT 8, -new_id, n.kept_id, d.kind, d.wait_event_type, d.wait_event, d.lwlock_mode, d.backend_type, d.datid, d.datname,
           d.usesysid, d.usename, d.query_id, d.instance, d.relation, d.object, d.fork, d.object_kind
    FROM lock_history.dim AS d
    CROSS JOIN LATERAL pg_catalog.unnest(lock_history.kept_numbers(d.seg, ARRAY[d.dim_id])) AS n(kept_id)
    WHERE d.seg < 8 AND d.node_id = source.node_id
      AND n.kept_id IN (SELECT pg_catalog.unnest(l.dims) FROM lock_history.kept_lwlock AS l WHERE l.node_id = -new_id
                        UNION ALL
                        SELECT pg_catalog.unnest(p.dims) FROM lock_history.kept_page AS p WHERE p.node_id = -new_id
                        UNION ALL
                        SELECT pg_catalog.unnest(w.dims) FROM lock_history.kept_wait_length AS w WHERE w.node_id = -new_id
                        UNION ALL
                        SELECT pg_catalog.unnest(f.dims) FROM lock_history.kept_fastpath AS f WHERE f.node_id = -new_id
                        UNION ALL
                        SELECT pg_catalog.unnest(h.dims) FROM lock_history.kept_hungry AS h WHERE h.node_id = -new_id);

    -- as shown, with those that last
    INSERT INTO lock_history.kept_anomaly (
        seg, node_id, run, written_at, started_at, detected_at, ended_at, ended_as, wait_event_type,
        observed, expected, band, leading_event, root_pid)
    SELECT 8, -new_id, 0, kept_now, a.started_at, a.detected_at, coalesce(a.ended_at, greatest(kept_now, a.detected_at)),
           coalesce(a.ended_as, 'unknown'), a.wait_event_type, a.observed, a.expected, a.band, a.leading_event, a.root_pid
    FROM lock_history.anomalies AS a
    WHERE a.node = source.node AND a.started_at <= keep.until AND (a.ended_at IS NULL OR a.ended_at >= keep.since);

    IF waits = 0 AND short_waits = 0 AND seconds = 0
       AND NOT EXISTS (SELECT FROM lock_history.kept_lwlock AS l WHERE l.node_id = -new_id)
       AND NOT EXISTS (SELECT FROM lock_history.kept_page AS p WHERE p.node_id = -new_id)
       AND NOT EXISTS (SELECT FROM lock_history.kept_deadlock AS d WHERE d.node_id = -new_id)
       AND NOT EXISTS (SELECT FROM lock_history.kept_conflict AS c WHERE c.node_id = -new_id)
       AND NOT EXISTS (SELECT FROM lock_history.kept_fastpath AS f WHERE f.node_id = -new_id)
       AND NOT EXISTS (SELECT FROM lock_history.kept_anomaly AS a WHERE a.node_id = -new_id) THEN
        IF EXISTS (SELECT FROM lock_history.minute AS m
                   WHERE m.node_id = source.node_id AND m.at > keep.since - interval '1 min' AND m.began <= keep.until AND m.ended > keep.since) THEN
            RAISE EXCEPTION 'nothing to keep: from % to % only load by minute is left', keep.since, keep.until
                USING ERRCODE = 'no_data_found',
                      HINT = 'Minutes are not copied; lock_history.load_by() and lock_history.top_queries() read them.';
        END IF;
        -- nobody was active, or nobody was looking
        SELECT greatest(n.first_seen, (SELECT pg_catalog.min(r.opened_at) FROM lock_history.ring AS r WHERE NOT r.is_empty)) INTO begins
        FROM lock_history.node AS n WHERE n.node_id = source.node_id;
        IF begins >= keep.until THEN
            RAISE EXCEPTION 'nothing to keep: nothing was recorded then, the history of server "%" begins at %', source.node, begins
                USING ERRCODE = 'no_data_found',
                      DETAIL = pg_catalog.format('Asked for was the time from %s to %s.', keep.since, keep.until),
                      HINT = 'What is older is thrown away by retention and max_size; lock_history.kept lists what was kept.';
        ELSIF (SELECT isempty(tstzmultirange(tstzrange(greatest(begins, keep.since), keep.until, '[]'))
                              - coalesce(pg_catalog.range_agg(tstzrange(g.began, coalesce(g.ended, 'infinity'), '[]')), '{}'))
               FROM lock_history.gaps AS g
               WHERE g.node = source.node AND g.part IS NULL AND g.began <= keep.until AND (g.ended IS NULL OR g.ended >= keep.since)) THEN
            RAISE EXCEPTION 'nothing to keep: nothing was recorded on server "%" from % to %', source.node, keep.since, keep.until
                USING ERRCODE = 'no_data_found', HINT = 'lock_history.gaps says why nobody was looking.';
        END IF;
        RAISE EXCEPTION 'nothing to keep: nobody was active on server "%" from % to %', source.node, keep.since, keep.until
            USING ERRCODE = 'no_data_found',
                  HINT = 'lock_history.worst_moments() lists when sessions waited, lock_history.gaps when nobody was looking.';
    END IF;

    -- as shown, with the one that lasts
    INSERT INTO lock_history.kept_gap (seg, node_id, run, began, ended, reason, lost, detail, part)
    SELECT 8, -new_id, 0, g.began, coalesce(g.ended, greatest(kept_now, g.began)), g.reason, coalesce(g.lost, 0), g.detail, g.part
    FROM lock_history.gaps AS g
    WHERE g.node = source.node AND g.began <= keep.until AND (g.ended IS NULL OR g.ended >= keep.since);

    INSERT INTO lock_history.kept_health_minute (
        seg, node_id, run, minute, ticks_due, ticks_done, ticks_late, ticks_missed, period_ms,
        probe_us_p50, probe_us_p99, probe_us_max, hold_us_p99, hold_us_max, partitions_taken, partitions_busy,
        cpu_ms, rows_written, rows_merged, rows_dropped, errors)
    SELECT 8, -new_id, h.run, h.minute, h.ticks_due, h.ticks_done, h.ticks_late, h.ticks_missed, h.period_ms,
           h.probe_us_p50, h.probe_us_p99, h.probe_us_max, h.hold_us_p99, h.hold_us_max, h.partitions_taken, h.partitions_busy,
           h.cpu_ms, h.rows_written, h.rows_merged, h.rows_dropped, h.errors
    FROM lock_history.health_minute AS h
    WHERE h.seg < 8 AND h.node_id = source.node_id AND h.minute BETWEEN keep.since - interval '1 min' AND keep.until;

    -- texts of the statements that load and lock_hungry_queries of the range tell of;
    -- the one text may stand in an earlier segment, or be left with minutes only
    INSERT INTO lock_history.kept_dim (
        seg, node_id, dim_id, kind, datid, datname, usesysid, usename, query_id, query, seen_at)
    SELECT DISTINCT ON (t.query_id, t.datid, t.usesysid)
           8, -new_id, t.dim_id, t.kind, t.datid, t.datname, t.usesysid, t.usename, t.query_id, t.query, t.seen_at
    FROM (SELECT d.node_id, d.dim_id, d.kind, d.datid, d.datname, d.usesysid, d.usename, d.query_id, d.query, d.seen_at
          FROM lock_history.dim AS d WHERE d.seg < 8 AND d.kind = 5
          UNION ALL
          SELECT m.node_id, m.dim_id, m.kind, m.datid, m.datname, m.usesysid, m.usename, m.query_id, m.query, m.seen_at
          FROM lock_history.minute_dim AS m WHERE m.kind = 5) AS t
    WHERE t.node_id = source.node_id
      AND t.query_id IN (SELECT h.query_id FROM lock_history.load_second AS h
                         WHERE h.node_id = source.node_id AND h.at BETWEEN keep.since - interval '1 s' AND keep.until
                         UNION ALL
                         SELECT q.query_id FROM lock_history.kept_dim AS q WHERE q.node_id = -new_id AND q.kind = 4)
    ORDER BY t.query_id, t.datid, t.usesysid, t.seen_at DESC;

    SELECT pg_catalog.sum(l.bytes) INTO bytes
    FROM (SELECT pg_catalog.pg_column_size(e) AS bytes FROM lock_history.kept_episode AS e WHERE e.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(a) FROM lock_history.kept_actor AS a WHERE a.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(s) FROM lock_history.kept_short_wait AS s WHERE s.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(d) FROM lock_history.kept_deadlock AS d WHERE d.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(c) FROM lock_history.kept_conflict AS c WHERE c.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(m) FROM lock_history.kept_dim AS m WHERE m.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(l) FROM lock_history.kept_second AS l WHERE l.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(f) FROM lock_history.kept_fastpath AS f WHERE f.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(o) FROM lock_history.kept_lwlock AS o WHERE o.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(p) FROM lock_history.kept_page AS p WHERE p.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(w) FROM lock_history.kept_wait_length AS w WHERE w.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(u) FROM lock_history.kept_hungry AS u WHERE u.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(a) FROM lock_history.kept_anomaly AS a WHERE a.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(g) FROM lock_history.kept_gap AS g WHERE g.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(w) FROM lock_history.kept_lwlock AS w WHERE w.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(p) FROM lock_history.kept_page AS p WHERE p.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(l) FROM lock_history.kept_wait_length AS l WHERE l.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(m) FROM lock_history.kept_dim AS m WHERE m.node_id = -new_id
          UNION ALL
          SELECT pg_catalog.pg_column_size(h) FROM lock_history.kept_health_minute AS h WHERE h.node_id = -new_id) AS l;

    INSERT INTO lock_history.kept_incident (
        name, kept_id, node, system_identifier, since, until, complete_until, kept_at, kept_by, waits, short_waits, size_bytes)
    VALUES (keep.name, new_id, source.node, source.system_identifier, keep.since, keep.until,
            greatest(pg_catalog.date_trunc('second', complete_until),
                     (SELECT pg_catalog.max(l.at) + interval '1 s' FROM lock_history.kept_second AS l WHERE l.node_id = -new_id)), kept_now,
            session_user, waits, short_waits, bytes);
    RETURN waits;
END
$$;
COMMENT ON FUNCTION lock_history.keep(timestamptz, timestamptz, text, text) IS
    'Copies all that the ring tells of the time from since to until, waits as well as load, to be read by name with pg_lock_history.incident; returns the number of waits (node: default this server)';
REVOKE ALL ON FUNCTION lock_history.keep(timestamptz, timestamptz, text, text) FROM PUBLIC;

-- For keep() and reset(): what this server saw up to a moment is in the tables
-- when it returns true.  Only where there is a worker that writes to this database;
-- anything else is a history of before, and complete as it is.
CREATE FUNCTION lock_history.flush_local(node text, until timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    recording boolean;
BEGIN
    SELECT pg_catalog.count(*) = 2 INTO recording
    FROM lock_history.worker_status() AS w
    WHERE (w.key = 'node' AND w.value = flush_local.node)
       OR (w.key = 'database' AND w.value = pg_catalog.current_database());
    IF NOT recording OR pg_catalog.current_setting('pg_lock_history.conninfo', true) <> ''
       OR EXISTS (SELECT FROM lock_history.worker_status() AS w
                  WHERE w.key = 'last_flush' AND w.value::timestamptz > flush_local.until) THEN
        RETURN true;
    END IF;
    RETURN lock_history.flush(interval '10 s');  -- of that type, or one that takes text would be called
END
$$;
COMMENT ON FUNCTION lock_history.flush_local(text, timestamptz) IS
    'internal: flush() where the worker of this server writes to this database, and has not written what happened up to then';
REVOKE ALL ON FUNCTION lock_history.flush_local(text, timestamptz) FROM PUBLIC;

CREATE FUNCTION lock_history.forget(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET session_replication_role = replica
AS $$
#variable_conflict use_column
DECLARE
    old_id integer;
BEGIN
    PERFORM lock_history.check_change();
    LOCK TABLE lock_history.kept_incident IN SHARE ROW EXCLUSIVE MODE;  -- as keep() does
    DELETE FROM lock_history.kept_incident AS k WHERE k.name = forget.name RETURNING k.kept_id INTO old_id;
    IF old_id IS NULL THEN
        RAISE EXCEPTION 'there is no kept incident "%"', coalesce(forget.name, '')
            USING ERRCODE = 'undefined_object', HINT = 'SELECT name FROM lock_history.kept lists them.';
    END IF;
    DELETE FROM lock_history.kept_episode AS e WHERE e.node_id = -old_id;
    DELETE FROM lock_history.kept_actor AS a WHERE a.node_id = -old_id;
    DELETE FROM lock_history.kept_short_wait AS s WHERE s.node_id = -old_id;
    DELETE FROM lock_history.kept_deadlock AS d WHERE d.node_id = -old_id;
    DELETE FROM lock_history.kept_conflict AS c WHERE c.node_id = -old_id;
    DELETE FROM lock_history.kept_dim AS m WHERE m.node_id = -old_id;
    DELETE FROM lock_history.kept_second AS l WHERE l.node_id = -old_id;
    DELETE FROM lock_history.kept_fastpath AS f WHERE f.node_id = -old_id;
    DELETE FROM lock_history.kept_hungry AS u WHERE u.node_id = -old_id;
    DELETE FROM lock_history.kept_anomaly AS a WHERE a.node_id = -old_id;
    DELETE FROM lock_history.kept_lwlock AS w WHERE w.node_id = -old_id;
    DELETE FROM lock_history.kept_page AS p WHERE p.node_id = -old_id;
    DELETE FROM lock_history.kept_wait_length AS g WHERE g.node_id = -old_id;
    DELETE FROM lock_history.kept_gap AS g WHERE g.node_id = -old_id;
    DELETE FROM lock_history.kept_health_minute AS h WHERE h.node_id = -old_id;
END
$$;
COMMENT ON FUNCTION lock_history.forget(text) IS 'Removes a kept incident';
REVOKE ALL ON FUNCTION lock_history.forget(text) FROM PUBLIC;

CREATE VIEW lock_history.kept AS
SELECT k.name, k.node, k.since, k.until, k.kept_at, k.kept_by, k.waits, k.short_waits, k.size_bytes
FROM lock_history.kept_incident AS k;

GRANT SELECT ON lock_history.kept TO pg_monitor;
COMMENT ON VIEW lock_history.kept IS
    'Incidents that keep() copied out of the ring; SET pg_lock_history.incident = name reads one';
COMMENT ON COLUMN lock_history.kept.name IS 'name to read it by, with pg_lock_history.incident, and to forget() it';
COMMENT ON COLUMN lock_history.kept.node IS 'server on which it was seen';
COMMENT ON COLUMN lock_history.kept.since IS 'begin of the range that was kept';
COMMENT ON COLUMN lock_history.kept.until IS 'end of the range that was kept';
COMMENT ON COLUMN lock_history.kept.kept_at IS 'when it was kept; waits that went on then end there, with outcome unknown';
COMMENT ON COLUMN lock_history.kept.kept_by IS 'role that kept it';
COMMENT ON COLUMN lock_history.kept.waits IS 'number of rows in waits';
COMMENT ON COLUMN lock_history.kept.short_waits IS 'number of rows in short_waits';
COMMENT ON COLUMN lock_history.kept.size_bytes IS 'size of its rows; it does not count for max_size';
