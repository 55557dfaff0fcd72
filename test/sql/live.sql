-- The live area: its records become rows for those who may see them, in every
-- encoding, and damaged ones become errors. What is published is not to be made
-- here: test/t/020_live.pl.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
-- nobody waits here
SELECT count(*) FROM lock_history.blocking_now;
SELECT count(*) FROM lock_history.recent_waits();
SELECT key, value FROM lock_history.status() WHERE key IN ('live_waits', 'live_left_out') ORDER BY key;
SELECT value::timestamptz > now() - interval '1 min' AS is_fresh FROM lock_history.status() WHERE key = 'live_as_of';
-- the columns that readers rely on
SELECT string_agg(a.attname, ' ' ORDER BY a.attnum) = (SELECT string_agg(b.attname, ' ' ORDER BY b.attnum) || ' taken_at' FROM pg_attribute AS b
                                                       WHERE b.attrelid = 'lock_history.blocking_tree'::regclass AND b.attnum > 0) AS as_blocking_tree
FROM pg_attribute AS a WHERE a.attrelid = 'lock_history.blocking_now'::regclass AND a.attnum > 0;
SELECT p.prorettype::regtype, p.proretset FROM pg_proc AS p WHERE p.oid = 'lock_history.recent_waits()'::regprocedure;

-- Records by hand, in the layout of extension/probe.h.
CREATE SCHEMA live_test;
GRANT USAGE ON SCHEMA live_test TO PUBLIC;
SET search_path = live_test;
CREATE FUNCTION decode_live(bytea) RETURNS SETOF lock_history.live_row LANGUAGE C STRICT AS 'pg_lock_history', 'plh_live_decode';
-- an integer in the machine's byte order
CREATE FUNCTION bytes(value bigint, n integer) RETURNS bytea LANGUAGE sql AS $$
    SELECT string_agg(set_byte('\x00', 0, (value >> (8 * i) & 255)::integer), '' ORDER BY i) FROM generate_series(0, n - 1) AS i
$$;
CREATE FUNCTION record(role oid, VARIADIC fields bytea[]) RETURNS bytea LANGUAGE sql AS $$
    SELECT bytes(24 + length(r.body), 4) || bytes(role::bigint, 4) || bytes(0, 8) || bytes(cardinality(fields), 4) || bytes(0, 4) || r.body
    FROM (SELECT string_agg(f.field, '' ORDER BY f.ord) AS body FROM unnest(fields) WITH ORDINALITY AS f(field, ord)) AS r
$$;
CREATE FUNCTION f_null(private boolean DEFAULT false) RETURNS bytea LANGUAGE sql AS $$ SELECT CASE WHEN private THEN '\x80'::bytea ELSE '\x00' END $$;
CREATE FUNCTION f_int(value bigint, private boolean DEFAULT false) RETURNS bytea LANGUAGE sql AS $$ SELECT CASE WHEN private THEN '\x81'::bytea ELSE '\x01' END || bytes(value, 8) $$;
CREATE FUNCTION f_ints(VARIADIC list integer[]) RETURNS bytea LANGUAGE sql AS $$
    SELECT '\x02'::bytea || bytes(cardinality(list), 4) || coalesce((SELECT string_agg(bytes(v, 4), '' ORDER BY o) FROM unnest(list) WITH ORDINALITY AS u(v, o)), '') $$;
CREATE FUNCTION f_no_ints() RETURNS bytea LANGUAGE sql AS $$ SELECT '\x0200000000'::bytea $$;
CREATE FUNCTION f_text(value bytea, private boolean DEFAULT false) RETURNS bytea LANGUAGE sql AS $$ SELECT CASE WHEN private THEN '\x83'::bytea ELSE '\x03' END || bytes(length(value), 4) || value $$;
-- as gosrc/live makes them: place, wait_id, who, what, how
CREATE FUNCTION sample(role oid, query bytea DEFAULT 'SELECT ''caf' || '\xc3a9'::bytea || '''') RETURNS bytea LANGUAGE sql AS $$
    SELECT record(role,
        f_int(1), f_ints(2, 3), f_ints(-1, 2147483647, -2147483648), f_text('hard'), f_int(12), f_ints(13, 14), f_int(-4711),
        f_int(12), f_null(), f_int(0), f_int(11), f_text('client backend'), f_text('active'), f_int(1000000), f_text('shop'), f_text('al' || '\xc3af'::bytea || 'ce'),
        f_text('app'), f_int(2000000), f_int(3000000), f_text('10.1.2.3', true), f_int(9223372036854775807, true), f_text(query, true),
        f_text('tuple'), f_text('ShareLock'), f_text('tuple (7,9) of t'), f_text('shop'), f_int(5), f_int(4294967295), f_int(-7), f_int(9), f_text('3/4'),
        f_int(4000000000), f_int(1259), f_int(16384), f_int(2),
        f_int(4000000), f_int(5000000), f_int(0), f_text('failed'), f_int(6000), f_no_ints(), f_ints(30), f_ints(31), f_int(4), f_int(2), f_int(1))
$$;
SET timezone = 'UTC';
\x on
SELECT * FROM decode_live(sample(0));
\x off
-- who sees what: members of the role, readers of all statistics, nobody when the role is not known
CREATE ROLE regress_plh_own;
CREATE ROLE regress_plh_group;
CREATE ROLE regress_plh_reader IN ROLE regress_plh_group;
CREATE ROLE regress_plh_monitor IN ROLE pg_monitor;
CREATE ROLE regress_plh_nobody;
GRANT USAGE ON SCHEMA lock_history TO regress_plh_reader;
GRANT SELECT ON lock_history.blocking_now TO regress_plh_reader;
GRANT EXECUTE ON FUNCTION lock_history.live_rows(boolean, boolean), lock_history.forest(integer[], integer[], integer[], integer),
    lock_history.recent_waits() TO regress_plh_reader;
CREATE TABLE records AS
SELECT r.no, r.role, sample(r.oid) || record(r.oid, VARIADIC array_fill(f_null(), ARRAY[19]) || f_null(true) || f_null(true) || f_null(true) || array_fill(f_null(), ARRAY[24])) AS bytes
FROM (VALUES (1, 'own', 'regress_plh_own'::regrole::oid), (2, 'group', 'regress_plh_group'::regrole), (3, 'reader', 'regress_plh_reader'::regrole),
             (4, 'not known', 0), (5, 'dropped', 99)) AS r(no, role, oid);
GRANT SELECT ON records TO PUBLIC;
SET ROLE regress_plh_reader;
SELECT r.role, d.pid, d.usename, d.query, d.query_id, d.client_addr FROM records AS r CROSS JOIN LATERAL decode_live(r.bytes) AS d ORDER BY r.no, d.pid;
SELECT count(*) FROM lock_history.blocking_now;
SELECT count(*) FROM lock_history.recent_waits();
SET ROLE regress_plh_monitor;
SELECT r.role, d.pid, d.query, d.query_id, d.client_addr FROM records AS r CROSS JOIN LATERAL decode_live(r.bytes) AS d ORDER BY r.no, d.pid;
SELECT count(*) FROM lock_history.blocking_now;
SELECT count(*) FROM lock_history.recent_waits();
SET ROLE regress_plh_nobody;
SELECT count(*) FROM lock_history.blocking_now;
SELECT count(*) FROM lock_history.recent_waits();
SELECT count(*) FROM lock_history.live_rows(true, true);
RESET ROLE;

-- Damaged records: an error that says so, and no crash.
\set VERBOSITY terse
SELECT * FROM decode_live('\x01');
SELECT * FROM decode_live(bytes(3, 4) || bytes(0, 20));
SELECT * FROM decode_live(bytes(4294967295, 4) || bytes(0, 20));
SELECT * FROM decode_live(bytes(24, 4) || bytes(0, 20));
SELECT * FROM decode_live(record(0, f_int(1)));
SELECT * FROM decode_live(record(0, VARIADIC array_fill(f_null(), ARRAY[46]) || f_null()));
SELECT * FROM decode_live(set_byte(record(0, VARIADIC array_fill(f_null(), ARRAY[47])), 16, 46));
SELECT * FROM decode_live(record(0, VARIADIC '\x04'::bytea || array_fill(f_null(), ARRAY[45])));
SELECT * FROM decode_live(record(0, VARIADIC array_fill(f_null(), ARRAY[45]) || '\x01'::bytea));
SELECT * FROM decode_live(record(0, VARIADIC array_fill(f_null(), ARRAY[45]) || ('\x03'::bytea || bytes(4294967295, 4))));
SELECT * FROM decode_live(record(0, VARIADIC array_fill(f_null(), ARRAY[45]) || ('\x02'::bytea || bytes(1073741824, 4))));
SELECT * FROM decode_live(record(0, VARIADIC f_ints(1) || array_fill(f_null(), ARRAY[45])));
SELECT * FROM decode_live(record(0, VARIADIC f_text('1') || array_fill(f_null(), ARRAY[45])));
SELECT * FROM decode_live(record(0, VARIADIC array_fill(f_null(), ARRAY[19]) || f_text('no address') || array_fill(f_null(), ARRAY[26])));
\set VERBOSITY default
-- thousands of them, by chance: the number is printed when one is taken otherwise
DO $$
DECLARE
    seed    double precision := random();
    whole   bytea := sample(0) || sample(10);
    damaged bytea;
    rows    integer := 0;
    errors  integer := 0;
BEGIN
    RAISE LOG 'records damaged by seed %', seed;
    PERFORM setseed(seed);
    FOR i IN 1..3000 LOOP
        damaged := substr(whole, 1, CASE WHEN random() < 0.3 THEN (random() * length(whole))::integer ELSE length(whole) END);
        FOR j IN 1..1 + (random() * 3)::integer LOOP
            CONTINUE WHEN length(damaged) = 0;
            damaged := set_byte(damaged, (random() * (length(damaged) - 1))::integer, (random() * 255)::integer);
        END LOOP;
        BEGIN
            PERFORM row_to_json(d) FROM decode_live(damaged) AS d;
            rows := rows + 1;
        EXCEPTION
            -- an address or a time that is none is found by its own type
            WHEN data_corrupted OR invalid_text_representation OR datetime_field_overflow THEN errors := errors + 1;
            WHEN OTHERS THEN RAISE EXCEPTION 'seed %: % (%) for %', seed, SQLERRM, SQLSTATE, damaged;
        END;
    END LOOP;
    RAISE WARNING '%', CASE WHEN rows > 100 AND errors > 100 THEN 'rows or errors, no crash' ELSE format('seed %s: %s rows, %s errors', seed, rows, errors) END;
END
$$;

-- Other encodings: what they cannot hold for sure is shown as question marks.
CREATE DATABASE plh_latin1 ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;
CREATE DATABASE plh_ascii ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;
SELECT encode(sample(0), 'hex') AS bytes, encode(sample(0, '\xff00fe41'), 'hex') AS nonsense, current_database() AS here \gset
SELECT query FROM decode_live(decode(:'nonsense', 'hex'));
\c plh_latin1
SET client_min_messages = error;
CREATE EXTENSION pg_lock_history;
CREATE FUNCTION decode_live(bytea) RETURNS SETOF lock_history.live_row LANGUAGE C STRICT AS 'pg_lock_history', 'plh_live_decode';
SELECT usename, query FROM decode_live(decode(:'bytes', 'hex'));
SELECT count(*) FROM lock_history.blocking_now, lock_history.recent_waits();
\c plh_ascii
SET client_min_messages = error;
CREATE EXTENSION pg_lock_history;
CREATE FUNCTION decode_live(bytea) RETURNS SETOF lock_history.live_row LANGUAGE C STRICT AS 'pg_lock_history', 'plh_live_decode';
SELECT usename, query FROM decode_live(decode(:'bytes', 'hex'));
SELECT count(*) FROM lock_history.blocking_now, lock_history.recent_waits();
\c :here
DROP DATABASE plh_latin1;
DROP DATABASE plh_ascii;
SET client_min_messages = warning;
DROP SCHEMA live_test CASCADE;
DROP OWNED BY regress_plh_reader;
DROP ROLE regress_plh_own, regress_plh_group, regress_plh_reader, regress_plh_monitor, regress_plh_nobody;
