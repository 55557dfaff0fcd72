-- Empties the ring.
--
-- Beside a running writer: it takes locks in the writer's own order (run rows,
-- ring rows, leaves) and never waits for one, so it can neither deadlock nor
-- make readers queue behind it; all or nothing is tried for two seconds.  A
-- writer that had read the ring before finds its batch number changed, and
-- starts anew: it opens segment 0 and hands out all open waits again.
CREATE FUNCTION lock_history.reset()
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET session_replication_role = replica  -- as keep()
SET pg_lock_history.incident = ''
AS $$
DECLARE
    leaves  text;
    give_up timestamptz;
    holders text;
    example integer;
BEGIN
    -- what happened before is not to be written after
    PERFORM lock_history.check_change();
    IF NOT lock_history.flush_local(lock_history.local_node(), pg_catalog.clock_timestamp()) THEN
        RAISE EXCEPTION 'the worker has facts that it cannot write now, nothing was removed'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = 'They would come into the history afterwards.', HINT = 'lock_history.status() says why it cannot.';
    END IF;

    SELECT pg_catalog.string_agg(pg_catalog.format('lock_history.%I', c.relname), ', ' ORDER BY c.relname) INTO leaves
    FROM pg_catalog.pg_class AS c
    WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relispartition AND c.relkind = 'r' AND c.relname ~ '_[0-7]$'
      -- not one that somebody has put into the schema, whose triggers he can have fired by replicas, too
      AND c.relowner = (SELECT e.extowner FROM pg_catalog.pg_extension AS e WHERE e.extname = 'pg_lock_history');

    give_up := pg_catalog.clock_timestamp() + interval '2 s';
    LOOP
        BEGIN
            PERFORM FROM lock_history.run FOR UPDATE NOWAIT;
            PERFORM FROM lock_history.ring FOR UPDATE NOWAIT;
            PERFORM FROM lock_history.minute_ring FOR UPDATE NOWAIT;
            EXECUTE 'LOCK TABLE ' || leaves || ' IN ACCESS EXCLUSIVE MODE NOWAIT';
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            NULL;  -- nothing is held now
        END;
        IF pg_catalog.clock_timestamp() > give_up THEN
            SELECT pg_catalog.string_agg(pg_catalog.format('%s (%s)', coalesce(h.pid::text, 'a prepared transaction'),
                       pg_catalog.concat_ws(', ', h.usename, nullif(h.application_name, ''), h.state)), '; ' ORDER BY h.pid),
                   pg_catalog.min(h.pid)
              INTO holders, example
            FROM (SELECT DISTINCT l.pid, a.usename, a.application_name, a.state
                  FROM pg_catalog.pg_locks AS l
                  JOIN pg_catalog.pg_class AS c ON c.oid = l.relation AND c.relnamespace = 'lock_history'::regnamespace
                  LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
                  WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
                    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
                    AND c.relkind = 'r' AND c.relname ~ '_[0-7]$') AS h;
            RAISE EXCEPTION 'the history is in use, nothing was removed'
                USING ERRCODE = 'lock_not_available',
                      DETAIL = 'Locks on its tables are held by ' || coalesce('process ' || holders, 'somebody who has just let go') || '.',
                      HINT = coalesce(pg_catalog.format('Try again when their transactions have ended, or end them: SELECT pg_terminate_backend(%s).', example),
                                      'Try again.');
        END IF;
        PERFORM pg_catalog.pg_sleep(0.02);
    END LOOP;

    EXECUTE 'TRUNCATE TABLE ' || leaves;
    UPDATE lock_history.ring SET round = round + 1, opened_at = NULL, closed_at = NULL, holds_until = NULL, is_empty = true, rolled_to = NULL, is_rolled = false;
    UPDATE lock_history.minute_ring SET round = round + 1, opened_at = NULL, closed_at = NULL, is_empty = true;
    DELETE FROM lock_history.minute_gap;
    DELETE FROM lock_history.run AS r
    WHERE EXISTS (SELECT FROM lock_history.run AS later WHERE later.node_id = r.node_id AND later.run > r.run);
    UPDATE lock_history.run SET batch = batch - 1;
END
$$;
COMMENT ON FUNCTION lock_history.reset() IS
    'Empties the ring; kept incidents stay, recording goes on';
REVOKE ALL ON FUNCTION lock_history.reset() FROM PUBLIC;
