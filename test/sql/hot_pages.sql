-- Hot pages by second, from rows of several segments; what was not found has a
-- row, too; and kept.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
\set SHOW_CONTEXT never
SELECT pg_temp.add_node('n1', true) AS n \gset
INSERT INTO lock_history.dim_0 (seg, node_id, dim_id, kind, lwlock_mode, datid, datname, relation, object, fork, object_kind) VALUES
    (0, :n, 1, 3, 'exclusive', 16384, 'lab', 16385, 'right-most leaf of index public.t_pkey', 'main', 'index'),
    (0, :n, 2, 3, 'shared', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO lock_history.dim_3 (seg, node_id, dim_id, kind, lwlock_mode, datid, datname, relation, object, fork, object_kind) VALUES
    (3, :n, 1, 3, 'pin', 16384, 'lab', 16386, 'public.t', 'main', 'table');
INSERT INTO lock_history.page_0 (seg, node_id, run, at, sampled_ms, dims, blocks, wait_ms, waits, waiters_max, held_exclusive, shared_holders) VALUES
    (0, :n, 1, pg_temp.t(0), 1000, '{1,1,2}', '{7,NULL,NULL}', '{3000,1000,20}', '{30,5,2}', '{7,2,1}', '{0.5,0,NULL}', '{0,3,NULL}');
INSERT INTO lock_history.page_3 (seg, node_id, run, at, sampled_ms, dims, blocks, wait_ms, waits, waiters_max, held_exclusive, shared_holders) VALUES
    (3, :n, 1, pg_temp.t(1), 500, '{1}', '{4294967294}', '{250}', '{1}', '{1}', '{NULL}', '{NULL}');
SELECT node, extract(second FROM at)::int AS second, datname, relation, object, fork, block, mode, waiters_avg, wait_ms FROM lock_history.hot_pages ORDER BY at, wait_ms DESC;
SELECT wait_ms, kind, database, waiters_max, held_exclusive, shared_holders_avg, waits FROM lock_history.hot_pages ORDER BY at, wait_ms DESC;
-- as totals: the busiest page where one has over half of the time
INSERT INTO lock_history.dim_3 (seg, node_id, dim_id, kind, lwlock_mode, datid, datname, relation, object, fork, object_kind) VALUES
    (3, :n, 2, 3, 'exclusive', 16384, 'lab', 16385, 'right-most leaf of index public.t_pkey', 'main', 'index'),
    (3, :n, 3, 3, 'exclusive', 16384, 'lab', 16385, 'right-most leaf of index public.t_pkey', 'fsm', 'index');
INSERT INTO lock_history.page_3 (seg, node_id, run, at, sampled_ms, dims, blocks, wait_ms, waits, waiters_max, held_exclusive, shared_holders) VALUES
    (3, :n, 1, pg_temp.t(2), 1000, '{2,2,2,3,3}', '{7,8,9,1,2}', '{1000,900,100,30,30}', '{3,2,1,1,1}', '{3,2,1,1,1}', '{1,1,1,0,0}', '{0,0,0,0,0}');
SELECT datname, object, fork, mode, wait_ms, round(share::numeric, 3) AS share, blocks, busiest_block AS busiest, round(busiest_share::numeric, 3) AS its_share
FROM lock_history.hot_pages(node => 'n1');
SELECT fork, mode, waits, seconds, round(waiters_avg::numeric, 3) AS waiters, waiters_max AS most, round(held_exclusive::numeric, 3) AS held_exclusive, round(shared_holders_avg::numeric, 3) AS shared_holders, kind, relation, database
FROM lock_history.hot_pages(NULL, NULL, NULL);
SELECT fork, mode, wait_ms, blocks, busiest_block FROM lock_history.hot_pages(pg_temp.t(0), pg_temp.t(2), 1);
SELECT fork, mode, wait_ms FROM lock_history.hot_pages(pg_temp.t(2.1), pg_temp.t(3));
SELECT lock_history.hot_pages(n => -1);
SELECT lock_history.hot_pages(pg_temp.t(1), pg_temp.t(0));
-- a reader without rights on statements sees it, since it shows none; somebody else does not
CREATE ROLE regress_plh_reader;
SET ROLE regress_plh_reader;
SELECT count(*) FROM lock_history.hot_pages();
RESET ROLE;
SELECT lock_history.grant_reader('regress_plh_reader');
SET ROLE regress_plh_reader;
SELECT count(*) FROM lock_history.hot_pages();
RESET ROLE;
SELECT lock_history.revoke_reader('regress_plh_reader');
DROP ROLE regress_plh_reader;
DELETE FROM lock_history.page_3 WHERE at = pg_temp.t(2);
SELECT lock_history.keep(pg_temp.t(0.5), pg_temp.t(1.5), 'pages', 'n1');
SELECT lock_history.keep(pg_temp.t(1), pg_temp.t(1.5), 'one', 'n1');
SET pg_lock_history.incident = 'pages';
SELECT object, block, mode, wait_ms FROM lock_history.hot_pages ORDER BY at, wait_ms DESC;
SET pg_lock_history.incident = 'one';
SELECT object, block, mode, wait_ms FROM lock_history.hot_pages ORDER BY at, wait_ms DESC;
RESET pg_lock_history.incident;
SELECT lock_history.forget('pages');
SELECT (SELECT count(*) FROM lock_history.kept_page) AS pages, (SELECT count(*) FROM lock_history.kept_dim) AS dims;
