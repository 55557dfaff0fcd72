-- A writer without superuser: a role that may do to the tables what the worker's
-- session does, and nothing else (doc/security.md).

-- Statistics for the leaves of a segment that the writer has filled.  ANALYZE is
-- for the owner; whoever holds a lock on a leaf is not waited for.
CREATE FUNCTION lock_history.analyze_segment(segment integer)
RETURNS void
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET vacuum_cost_delay = 0
AS $$
DECLARE
    leaf regclass;
BEGIN
    FOR leaf IN
        SELECT c.oid::regclass
        FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relispartition AND c.relkind = 'r'
          AND c.relname ~ ('_' || analyze_segment.segment || '$') AND analyze_segment.segment BETWEEN 0 AND 7
          AND c.relowner = (SELECT e.extowner FROM pg_catalog.pg_extension AS e WHERE e.extname = 'pg_lock_history')
        ORDER BY c.oid
    LOOP
        EXECUTE pg_catalog.format('ANALYZE (SKIP_LOCKED) %s', leaf);
    END LOOP;
END
$$;
COMMENT ON FUNCTION lock_history.analyze_segment(integer) IS
    'internal: gives the tables of a segment of the ring their statistics, for a writer that does not own them';
REVOKE ALL ON FUNCTION lock_history.analyze_segment(integer) FROM PUBLIC;

-- The least that works: test/t/064_own_role.pl takes each away and sees the writer
-- fail.  Of texts it can read none: it needs no column that has one.
CREATE FUNCTION lock_history.change_writer(verb text, direction text, role text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    what text;
BEGIN
    IF change_writer.role IS NULL THEN
        RAISE EXCEPTION 'a role must be given' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = change_writer.role) THEN
        RAISE EXCEPTION 'role "%" does not exist', change_writer.role
            USING ERRCODE = 'undefined_object', HINT = 'The name is taken as it is written, without quotes.';
    END IF;
    IF change_writer.role LIKE 'pg\_%' THEN
        RAISE EXCEPTION 'role "%" belongs to the server and cannot be the writer', change_writer.role
            USING ERRCODE = 'reserved_name', HINT = 'Name a role of your own, with LOGIN.';
    END IF;

    -- The writer empties a segment at any time, and that writes their rows in the
    -- catalog as well: who comes second would fail.
    SELECT pg_catalog.string_agg(c.oid::regclass::text, ', ' ORDER BY c.oid) INTO what
    FROM pg_catalog.pg_class AS c
    WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relispartition AND c.relkind = 'r' AND c.relname ~ '_[0-7]$';
    EXECUTE 'LOCK TABLE ' || what || ' IN SHARE UPDATE EXCLUSIVE MODE';

    FOR what IN
        SELECT g.what
        FROM (SELECT 1 AS step, 'USAGE ON SCHEMA lock_history' AS what
              UNION ALL VALUES
                  (2, 'SELECT, INSERT, UPDATE ON lock_history.node'),
                  (2, 'SELECT, INSERT, UPDATE, DELETE ON lock_history.run'),
                  (2, 'SELECT, UPDATE ON lock_history.ring'),
                  (2, 'SELECT, INSERT, UPDATE ON lock_history.detector'),
                  (2, 'SELECT, UPDATE ON lock_history.minute_ring'),
                  (2, 'SELECT, INSERT, DELETE ON lock_history.minute_gap'),
                  (3, 'EXECUTE ON FUNCTION lock_history.roll_up(smallint, smallint, interval, integer)'),
                  (3, 'EXECUTE ON FUNCTION lock_history.analyze_segment(integer)')
              UNION ALL
              -- LOCK TABLE ... ACCESS EXCLUSIVE is for who may TRUNCATE, COPY for who may INSERT
              SELECT 4, pg_catalog.format('INSERT, TRUNCATE%s ON %s',
                                          CASE WHEN c.relname ~ '^dim_'
                                               -- all but the texts of statements
                                               THEN (SELECT pg_catalog.format(', SELECT (%s)', pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum))
                                                     FROM pg_catalog.pg_attribute AS a
                                                     WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'query')
                                               WHEN c.relname ~ '^actor_' THEN ', SELECT (actor_id, node_id)' END,
                                          c.oid::regclass)
              FROM pg_catalog.pg_class AS c
              WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relispartition AND c.relkind = 'r'
                AND c.relname ~ '_[0-7]$') AS g
        ORDER BY g.step, g.what
    LOOP
        EXECUTE pg_catalog.format('%s %s %s %I', change_writer.verb, what, change_writer.direction, change_writer.role);
    END LOOP;
END
$$;
COMMENT ON FUNCTION lock_history.change_writer(text, text, text) IS
    'internal: grants or revokes for a role what the worker''s session needs';
REVOKE ALL ON FUNCTION lock_history.change_writer(text, text, text) FROM PUBLIC;

CREATE FUNCTION lock_history.grant_writer(role text)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT lock_history.change_writer('GRANT', 'TO', grant_writer.role) $$;
COMMENT ON FUNCTION lock_history.grant_writer(text) IS
    'Lets a role write the history as the user in pg_lock_history.conninfo, and read no statement of it';
REVOKE ALL ON FUNCTION lock_history.grant_writer(text) FROM PUBLIC;

CREATE FUNCTION lock_history.revoke_writer(role text)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT lock_history.change_writer('REVOKE', 'FROM', revoke_writer.role) $$;
COMMENT ON FUNCTION lock_history.revoke_writer(text) IS 'Takes back what grant_writer() gave';
REVOKE ALL ON FUNCTION lock_history.revoke_writer(text) FROM PUBLIC;
