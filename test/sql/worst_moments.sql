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
-- bounds cut what they fall into: at 12.5 three were waiting already, the longest for 2.5 s
SELECT at, waiting, roots, longest FROM lock_history.worst_moments(pg_temp.t(12.5), pg_temp.t(20), node => 'n1');
SELECT at, waiting, roots, longest FROM lock_history.worst_moments(pg_temp.t(10), pg_temp.t(11), node => 'n1');
SELECT at, waiting, roots, longest FROM lock_history.worst_moments(pg_temp.t(20), pg_temp.t(30), node => 'n1');
