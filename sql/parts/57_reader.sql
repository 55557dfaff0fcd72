-- Readers with masks: roles that may ask all that pg_monitor may, and see of
-- others' statements and addresses what pg_stat_activity would show them.
--
-- Nothing is listed here: what pg_monitor was granted is what a reader gets.
-- These run with the caller's rights; only the owner of the objects can.
CREATE FUNCTION lock_history.change_reader(verb text, direction text, role text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    grantee oid;
    what    text;
BEGIN
    IF change_reader.role IS NULL THEN
        RAISE EXCEPTION 'a role must be given' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    SELECT r.oid INTO grantee FROM pg_catalog.pg_roles AS r WHERE r.rolname = change_reader.role;
    IF grantee IS NULL AND pg_catalog.lower(change_reader.role) = 'public' THEN
        RAISE EXCEPTION 'PUBLIC cannot be a reader'
            USING ERRCODE = 'invalid_grant_operation',
                  DETAIL = 'The history names objects, databases and roles that not everybody may see.',
                  HINT = 'Name a role; others can be made members of it.';
    END IF;
    IF grantee IS NULL THEN
        RAISE EXCEPTION 'role "%" does not exist', change_reader.role
            USING ERRCODE = 'undefined_object', HINT = 'The name is taken as it is written, without quotes.';
    END IF;
    IF change_reader.role LIKE 'pg\_%' THEN
        RAISE EXCEPTION 'role "%" belongs to the server and cannot be a reader', change_reader.role
            USING ERRCODE = 'reserved_name',
                  HINT = 'Members of pg_monitor read everything already; for anybody else name a role of your own.';
    END IF;

    FOR what IN
        SELECT g.what
        FROM (SELECT 1 AS step, pg_catalog.format('%s ON SCHEMA %I', a.privilege_type, n.nspname) AS what, a.grantee
              FROM pg_catalog.pg_namespace AS n, pg_catalog.aclexplode(n.nspacl) AS a
              WHERE n.nspname = 'lock_history'
              UNION ALL
              SELECT 2, pg_catalog.format('%s ON %s', a.privilege_type, c.oid::regclass), a.grantee
              FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a
              WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind <> 'c'
              UNION ALL
              SELECT 3, pg_catalog.format('%s ON ROUTINE %s', a.privilege_type, p.oid::regprocedure), a.grantee
              FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(p.proacl) AS a
              WHERE p.pronamespace = 'lock_history'::regnamespace
              UNION ALL
              SELECT 4, pg_catalog.format('%s ON TYPE %s', a.privilege_type, t.oid::regtype), a.grantee
              FROM pg_catalog.pg_type AS t, pg_catalog.aclexplode(t.typacl) AS a
              WHERE t.typnamespace = 'lock_history'::regnamespace) AS g
        WHERE g.grantee = 'pg_monitor'::regrole
        ORDER BY g.step, g.what
    LOOP
        EXECUTE pg_catalog.format('%s %s %s %I', change_reader.verb, what, change_reader.direction, change_reader.role);
    END LOOP;
END
$$;
COMMENT ON FUNCTION lock_history.change_reader(text, text, text) IS
    'internal: grants or revokes for a role all that pg_monitor was granted';
REVOKE ALL ON FUNCTION lock_history.change_reader(text, text, text) FROM PUBLIC;

CREATE FUNCTION lock_history.grant_reader(role text)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT lock_history.change_reader('GRANT', 'TO', grant_reader.role) $$;
COMMENT ON FUNCTION lock_history.grant_reader(text) IS
    'Lets a role read all views and call all functions that pg_monitor may; statements and addresses of other roles are masked';
REVOKE ALL ON FUNCTION lock_history.grant_reader(text) FROM PUBLIC;

CREATE FUNCTION lock_history.revoke_reader(role text)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT lock_history.change_reader('REVOKE', 'FROM', revoke_reader.role) $$;
COMMENT ON FUNCTION lock_history.revoke_reader(text) IS 'Takes back what grant_reader() gave';
REVOKE ALL ON FUNCTION lock_history.revoke_reader(text) FROM PUBLIC;
