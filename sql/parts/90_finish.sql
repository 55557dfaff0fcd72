-- Default privileges of whoever creates the extension may have given objects
-- to others, or to PUBLIC; what is granted here is granted on purpose.
DO $do$
DECLARE
    what text;
BEGIN
    FOR what IN
        SELECT pg_catalog.format('ALL ON %s FROM %s', g.object,
                                 CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END)
        FROM (SELECT DISTINCT pg_catalog.format('SCHEMA %I', n.nspname) AS object, a.grantee, n.nspowner AS owner
              FROM pg_catalog.pg_namespace AS n, pg_catalog.aclexplode(n.nspacl) AS a
              WHERE n.nspname = 'lock_history'
              UNION
              SELECT pg_catalog.format('%s %s', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass), a.grantee, c.relowner
              FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a
              WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
              UNION
              SELECT pg_catalog.format('ROUTINE %s', p.oid::regprocedure), a.grantee, p.proowner
              FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(p.proacl) AS a
              WHERE p.pronamespace = 'lock_history'::regnamespace
              UNION
              SELECT pg_catalog.format('TYPE %s', t.oid::regtype), a.grantee, t.typowner
              FROM pg_catalog.pg_type AS t, pg_catalog.aclexplode(t.typacl) AS a
              WHERE t.typnamespace = 'lock_history'::regnamespace) AS g
        WHERE g.grantee NOT IN (g.owner, 'pg_monitor'::regrole)
        ORDER BY 1
    LOOP
        EXECUTE 'REVOKE ' || what;
    END LOOP;
END
$do$;

-- The worker begins to record when this transaction commits.
SELECT lock_history.announce();
