-- Which moments are worth looking at.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
SELECT pg_temp.add_node('n1') AS n \gset
SELECT pg_temp.add_actor(:n, k) FROM generate_series(100, 130) AS k \g /dev/null
-- three at once at 12 and again at 14, in one stretch; two at 102; waits that touch but do not overlap at 200; one that lasts 3 hours
SELECT pg_temp.add_wait('episode', :n, w, 100 + w, 8, s, e, ARRAY[(1,r,2,s,NULL), (3,r,0,s,NULL)]::pg_temp.edge[])
FROM (VALUES (1, 10, 20, 121), (2, 11, 13, 121), (3, 12, 13.5, 122), (4, 13.8, 15, 121), (5, 14, 15, 121),
             (6, 101, 105, 123), (7, 102, 103, 124),
             (8, 200, 201, 125), (9, 201, 202, 125),
             (10, 3600, 14400, 126)) AS v(w, s, e, r) \g /dev/null
SELECT at, waiting, roots, longest FROM lock_history.worst_moments(node => 'n1');
SELECT at, waiting, roots, longest FROM lock_history.worst_moments(n => 1, node => 'n1');
-- what stands there is what the tree shows
SELECT w.at, w.longest = max(t.waited) AS same_longest, count(t.waited) = w.waiting AS same_number
FROM lock_history.worst_moments(node => 'n1') AS w, lock_history.blocking_tree_at(w.at, 'n1') AS t
GROUP BY w.at, w.longest, w.waiting ORDER BY w.at;
-- bounds cut what they fall into: three were waiting from 12.5, where the look begins, until 13; the longest since 10
SELECT at, waiting, roots, longest FROM lock_history.worst_moments(pg_temp.t(12.5), pg_temp.t(20), node => 'n1');
SELECT at, waiting, roots, longest FROM lock_history.worst_moments(pg_temp.t(10), pg_temp.t(11), node => 'n1');
SELECT at, waiting, roots, longest FROM lock_history.worst_moments(pg_temp.t(20), pg_temp.t(30), node => 'n1');
-- a plateau of a microsecond: its begin, not its end
SELECT pg_temp.add_wait('episode', :n, w, 100 + w, 8, s, e, ARRAY[(3,121,0,s,NULL)]::pg_temp.edge[])
FROM (VALUES (11, 20000, 20001.000001), (12, 20001, 20002)) AS v(w, s, e) \g /dev/null
SELECT at, waiting, longest FROM lock_history.worst_moments(pg_temp.t(20000), pg_temp.t(20010), node => 'n1');
-- all still wait: nine tenths of the way to now, or to until
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period) VALUES (:n, 1, pg_temp.t(0), now(), 1, '1 h');
SELECT pg_temp.add_wait('open', :n, 13, 113, 8, 30000, NULL, ARRAY[(3,121,0,30000,NULL)]::pg_temp.edge[], run => 1) \g /dev/null
SELECT at, waiting, longest FROM lock_history.worst_moments(pg_temp.t(30000), pg_temp.t(30010), node => 'n1');
SELECT at BETWEEN pg_temp.t(30000) + 0.9 * (now() - pg_temp.t(30000)) - interval '1 hour' AND now() - interval '1 s' AS late_but_past,
       waiting, longest = at - pg_temp.t(30000) AS longest_fits
FROM lock_history.worst_moments(pg_temp.t(30000), node => 'n1');
-- refused
\set VERBOSITY terse
SELECT * FROM lock_history.worst_moments(n => -1);
SELECT * FROM lock_history.worst_moments(pg_temp.t(20), pg_temp.t(10));
SELECT * FROM lock_history.root_blockers(pg_temp.t(20), pg_temp.t(10));
SELECT * FROM lock_history.blocking_tree_at(pg_temp.t(12), 'n1', -1);
SELECT count(*) FROM lock_history.worst_moments(n => 0);
