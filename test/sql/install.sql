-- Objects are commented, granted on purpose and safe to call.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
-- nothing is without a comment: relations, functions, types, columns of views and row types
SELECT c.oid::regclass AS relation
FROM pg_class AS c
WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'c') AND NOT c.relispartition
  AND CASE WHEN c.relkind = 'c' THEN obj_description(c.reltype, 'pg_type') ELSE obj_description(c.oid, 'pg_class') END IS NULL;
SELECT a.attrelid::regclass AS relation, a.attname AS "column"
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind IN ('v', 'c')
  AND coalesce(CASE WHEN c.relkind = 'c' THEN obj_description(c.reltype, 'pg_type') ELSE obj_description(c.oid, 'pg_class') END, '') NOT LIKE 'internal%'
  AND a.attnum > 0 AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL
ORDER BY 1, a.attnum;
SELECT p.oid::regprocedure AS function
FROM pg_proc AS p
WHERE p.pronamespace = 'lock_history'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL;
-- each function has a search_path of its own
SELECT p.oid::regprocedure AS function
FROM pg_proc AS p
WHERE p.pronamespace = 'lock_history'::regnamespace
  AND NOT coalesce(p.proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}';
-- and runs with its caller's rights, but for these, which nobody may call unless granted on purpose
SELECT p.oid::regprocedure AS function, array_length(p.proacl, 1) AS grantees
FROM pg_proc AS p
WHERE p.pronamespace = 'lock_history'::regnamespace AND p.prosecdef
ORDER BY 1;
-- nothing is granted to PUBLIC
SELECT c.oid::regclass AS relation
FROM pg_class AS c, aclexplode(c.relacl) AS a
WHERE c.relnamespace = 'lock_history'::regnamespace AND a.grantee = 0;
SELECT p.oid::regprocedure AS function
FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
WHERE p.pronamespace = 'lock_history'::regnamespace AND a.grantee = 0;
SELECT a.privilege_type
FROM pg_namespace AS n, aclexplode(n.nspacl) AS a
WHERE n.nspname = 'lock_history' AND a.grantee = 0;
-- what pg_monitor may read and call: views, no table
SELECT c.relname AS relation, c.relkind AS kind, string_agg(a.privilege_type, ', ') AS privileges
FROM pg_class AS c, aclexplode(c.relacl) AS a
WHERE c.relnamespace = 'lock_history'::regnamespace AND a.grantee = 'pg_monitor'::regrole
GROUP BY 1, 2 ORDER BY 1;
SELECT p.proname AS function
FROM pg_proc AS p, aclexplode(p.proacl) AS a
WHERE p.pronamespace = 'lock_history'::regnamespace AND a.grantee = 'pg_monitor'::regrole
ORDER BY 1;
-- a schema that somebody else made ready is not used
SET client_min_messages = error;
DROP EXTENSION pg_lock_history;
CREATE SCHEMA lock_history;
-- from version 18 on the line of the script would be told
\set SHOW_CONTEXT never
CREATE EXTENSION pg_lock_history;
DROP SCHEMA lock_history;
CREATE EXTENSION pg_lock_history;
DROP EXTENSION pg_lock_history;
-- nor does it matter what its creator gives to others by default
CREATE ROLE regress_plh_app;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO regress_plh_app, PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO regress_plh_app, PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO regress_plh_app;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TYPES TO regress_plh_app;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO regress_plh_app, PUBLIC;
CREATE EXTENSION pg_lock_history;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM regress_plh_app, PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON SEQUENCES FROM regress_plh_app, PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM regress_plh_app;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TYPES FROM regress_plh_app;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON SCHEMAS FROM regress_plh_app, PUBLIC;
SELECT a.kind, a.grantee::regrole AS granted_to, count(*) > 0 AS some
FROM (SELECT 'schema' AS kind, x.grantee, x.grantor FROM pg_namespace AS n, aclexplode(n.nspacl) AS x WHERE n.nspname = 'lock_history'
      UNION ALL SELECT 'relation', x.grantee, x.grantor FROM pg_class AS c, aclexplode(c.relacl) AS x WHERE c.relnamespace = 'lock_history'::regnamespace
      UNION ALL SELECT 'routine', x.grantee, x.grantor FROM pg_proc AS p, aclexplode(p.proacl) AS x WHERE p.pronamespace = 'lock_history'::regnamespace
      UNION ALL SELECT 'type', x.grantee, x.grantor FROM pg_type AS t, aclexplode(t.typacl) AS x WHERE t.typnamespace = 'lock_history'::regnamespace) AS a
WHERE a.grantee <> a.grantor
GROUP BY 1, 2 ORDER BY 1, 2;
DROP EXTENSION pg_lock_history;
DROP ROLE regress_plh_app;
-- nor are operators and functions that somebody else made ready: they would run with the rights of each reader
CREATE FUNCTION public.times(integer, interval) RETURNS interval LANGUAGE sql AS $$ SELECT $2 $$;
CREATE OPERATOR public.* (LEFTARG = integer, RIGHTARG = interval, FUNCTION = public.times);
CREATE FUNCTION public.minus(timestamptz, interval) RETURNS timestamptz LANGUAGE sql AS $$ SELECT $1 $$;
CREATE OPERATOR public.- (LEFTARG = timestamptz, RIGHTARG = interval, FUNCTION = public.minus);
SET search_path = public, pg_catalog;
CREATE EXTENSION pg_lock_history;
SHOW search_path;
RESET search_path;
SELECT DISTINCT d.classid::regclass AS kind, d.refclassid::regclass AS needs, d.refobjid
FROM pg_depend AS d
LEFT JOIN pg_proc AS p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
LEFT JOIN pg_operator AS o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
WHERE coalesce(p.pronamespace, o.oprnamespace) = 'public'::regnamespace AND d.objid <> 'public.*(integer,interval)'::regoperator
  AND d.objid <> 'public.-(timestamptz,interval)'::regoperator;
DROP EXTENSION pg_lock_history;
DROP OPERATOR public.* (integer, interval);
DROP OPERATOR public.- (timestamptz, interval);
DROP FUNCTION public.times(integer, interval), public.minus(timestamptz, interval);
SELECT count(*) AS left_over FROM pg_namespace WHERE nspname = 'lock_history';
