-- Times as people say them.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
SET TimeZone = 'Europe/Berlin';
-- 14:00 in Berlin, 13:00 in UTC: today's time while it is not in the future, else yesterday's
SELECT s.spoken, lock_history.moment(s.spoken, '2026-03-01 14:00:00+01') AS moment
FROM (VALUES ('13:59'), ('14:00'), ('14:00:00.000001'), ('14:32'), (' 9:05 '), ('00:00'), ('24:00'), ('2:15 pm'), ('1:15PM')) AS s(spoken);
-- the day is the session's
SET TimeZone = 'Asia/Tokyo';
SELECT lock_history.moment('14:32', '2026-03-01 14:00:00+01') AS moment;
SET TimeZone = 'UTC';
SELECT lock_history.moment('12:30', '2026-03-01 14:00:00+01') AS moment;
-- anything else is what timestamptz makes of it
SELECT s.spoken, lock_history.moment(s.spoken, '2026-03-01 14:00:00+00') AS moment
FROM (VALUES ('2026-02-28 14:32'), ('2026-02-28 14:32:10.5+01'), ('2026-02-28'), ('infinity'), (NULL)) AS s(spoken);
SELECT lock_history.moment('yesterday 14:32', now()) = 'yesterday'::timestamptz + interval '14:32' AS yesterday;
\set VERBOSITY terse
SELECT lock_history.moment('half past two', now());
SELECT lock_history.moment('25:00', now());
SELECT lock_history.moment('', now());
-- a literal, a timestamptz and a parameter without a type give the same tree
SELECT pg_temp.add_node('n1') AS n \gset
SELECT pg_temp.add_actor(:n, k) FROM generate_series(100, 102) AS k \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 1, 101, 8, 0, 300, ARRAY[(1,100,2,0,NULL), (3,100,0,0,NULL)]::pg_temp.edge[]),
       pg_temp.add_wait('episode', :n, 2, 102, 1, 10, 300, ARRAY[(2,101,256,10,NULL), (3,100,0,10,NULL)]::pg_temp.edge[], 2) \g /dev/null
SELECT level, pid, kind, waited FROM lock_history.blocking_tree_at('2026-03-01 14:32', 'n1');
SELECT level, pid, kind, waited FROM lock_history.blocking_tree_at(timestamptz '2026-03-01 14:32', 'n1');
SELECT count(*) AS differ FROM (
    SELECT t FROM lock_history.blocking_tree_at(at => '2026-03-01 14:32', node => 'n1', max_siblings => 1) AS t
    EXCEPT ALL
    SELECT t FROM lock_history.blocking_tree_at(at => pg_temp.t(120), node => 'n1', max_siblings => 1) AS t) AS d;
PREPARE tree AS SELECT level, pid FROM lock_history.blocking_tree_at($1, 'n1');
EXECUTE tree('2026-03-01 14:32');
-- as one types it; nobody waited at three in the night of any day
SELECT count(*) AS waiting FROM lock_history.blocking_tree_at('03:00');
SELECT count(*) AS waiting FROM lock_history.blocking_tree_at(now());
