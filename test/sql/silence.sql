-- An empty answer is not to pass for "nobody waited" where there is no history.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
\set VERBOSITY terse
SELECT pid FROM lock_history.blocking_tree_at(now());
SELECT at FROM lock_history.worst_moments();
SELECT pid FROM lock_history.root_blockers(now() - interval '1 hour');
SELECT lock_history.keep(now() - interval '1 min', now(), 'nothing');
-- nor before the history begins
SELECT pg_temp.add_node('here', true) AS n \gset
UPDATE lock_history.ring SET opened_at = pg_temp.t(0), is_empty = false WHERE seg = 0;
SET client_min_messages = notice;
SELECT pid FROM lock_history.blocking_tree_at(pg_temp.t(1));
SELECT pid FROM lock_history.blocking_tree_at(pg_temp.t(-1));
