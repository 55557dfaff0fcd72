-- Incidents of other shapes.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
SELECT pg_temp.add_node('n1') AS n \gset
-- two holders, one leaves: C waits for A and B, then for B alone; E waits for C
SELECT pg_temp.add_actor(:n, k) FROM generate_series(201, 205) AS k \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 2003, 203, 8, 1, 9, ARRAY[(1,201,2,1,5), (1,202,6,1,NULL), (3,201,0,1,5), (3,202,0,1,NULL)]::pg_temp.edge[], 1, lock => 2) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 2005, 205, 1, 2, 9, ARRAY[(2,203,256,2,NULL), (3,201,0,2,5), (3,202,0,2,NULL)]::pg_temp.edge[], 2, lock => 2, soft => '{203}') \g /dev/null
SELECT pid, hard_blockers, root_blockers FROM lock_history.waits WHERE wait_id = 2003;
SELECT blocker_pid, blocker_mode, first_seen, last_seen FROM lock_history.blocking WHERE wait_id = 2003 ORDER BY blocker_pid;
SELECT * FROM pg_temp.tree(3, 'n1');
SELECT * FROM pg_temp.tree(6, 'n1');
SELECT pid, sessions_blocked, blocked_time, first_seen, last_seen FROM lock_history.root_blockers ORDER BY pid;
-- hot row: the first waits for the transaction, the next for the tuple lock the first holds, the rest queue for that
SELECT pg_temp.add_actor(:n, k) FROM generate_series(301, 305) AS k \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 3002, 302, 5, 101, 110, ARRAY[(1,301,128,101,NULL), (3,301,0,101,NULL)]::pg_temp.edge[], 1, 'transactionid', 'transaction 740', 30) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 3003, 303, 7, 102, 110, ARRAY[(1,302,128,102,NULL), (3,301,0,102,NULL)]::pg_temp.edge[], 1, 'tuple', 'tuple (0,1) of public.t', 31) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 3004, 304, 7, 103, 110, ARRAY[(1,302,128,103,NULL), (3,301,0,103,NULL)]::pg_temp.edge[], 2, 'tuple', 'tuple (0,1) of public.t', 31, '{303}') \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 3005, 305, 7, 104, 110, ARRAY[(1,302,128,104,NULL), (3,301,0,104,NULL)]::pg_temp.edge[], 3, 'tuple', 'tuple (0,1) of public.t', 31, '{304,303}') \g /dev/null
SELECT * FROM pg_temp.tree(105, 'n1');
-- the queue for the tuple lock: all ahead conflict
SELECT blocker_pid, kind, blocker_mode, first_seen, last_seen FROM lock_history.blocking_all(3005);
-- soft blockers: only the nearest is stored; 402 left the queue before 410 came, 401 is behind it, 403 has become a holder, 405 does not conflict, 406 is of the same lock group
SELECT pg_temp.add_actor(:n, k) FROM generate_series(401, 405) AS k \g /dev/null
SELECT pg_temp.add_actor(:n, 406, leader => 410), pg_temp.add_actor(:n, 410, leader => 410), pg_temp.add_actor(:n, 407) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 4002, 402, 3, 200, 201, '{}', 1, lock => 4),
       pg_temp.add_wait('episode', :n, 4003, 403, 3, 200, 205, '{}', 2, lock => 4),
       pg_temp.add_wait('episode', :n, 4005, 405, 1, 200, 220, '{}', 3, lock => 4),
       pg_temp.add_wait('episode', :n, 4006, 406, 8, 200, 220, '{}', 4, lock => 4),
       pg_temp.add_wait('episode', :n, 4007, 407, 6, 201, 215, '{}', 5, lock => 4),
       pg_temp.add_wait('episode', :n, 4001, 401, 8, 202, 230, '{}', 9, lock => 4) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 4010, 410, 5, 202, 230, ARRAY[(2,407,64,202,212), (1,403,8,205,NULL)]::pg_temp.edge[], 6, lock => 4, soft => '{407,403}') \g /dev/null
SELECT blocker_pid, kind, blocker_mode, first_seen, last_seen FROM lock_history.blocking_all(4010);
-- deadlock: 502 and 503 wait for each other, 504 for 503, and 501 holds up 504 too
SELECT pg_temp.add_actor(:n, k) FROM generate_series(501, 504) AS k \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 5003, 503, 5, 300, 302, ARRAY[(1,502,128,300,NULL)]::pg_temp.edge[], 1, 'transactionid', 'transaction 1', 51, cycle => true) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 5002, 502, 5, 301, 302, ARRAY[(1,503,128,301,NULL)]::pg_temp.edge[], 1, 'transactionid', 'transaction 2', 52, cycle => true, outcome => 'failed') \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 5004, 504, 8, 301.2, 302, ARRAY[(1,503,4,301.2,NULL), (1,501,2,301.2,NULL), (3,501,0,301.2,NULL)]::pg_temp.edge[], 1, 'relation', 'public.u', 53) \g /dev/null
SELECT pid, granted, outcome, in_cycle, hard_blockers, root_blockers FROM lock_history.waits WHERE wait_id IN (5002, 5003) ORDER BY pid;
SELECT * FROM pg_temp.tree(300.5, 'n1');
SELECT * FROM pg_temp.tree(301.5, 'n1');
-- prepared transactions: no pid, counted, named by gid
SELECT pg_temp.add_actor(:n, 9001, gid => 'pay-1'), pg_temp.add_actor(:n, 9002, gid => 'pay-2'),
       pg_temp.add_actor(:n, 601), pg_temp.add_actor(:n, 602), pg_temp.add_actor(:n, 603) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 6001, 601, 8, 400, 410, ARRAY[(1,9002,8,400,NULL), (1,602,2,401,NULL), (1,9001,6,400.5,NULL), (3,9002,0,400,NULL), (3,602,0,401,NULL), (3,9001,0,400.5,NULL)]::pg_temp.edge[], 1, lock => 6) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 6003, 603, 1, 402, 410, ARRAY[(1,9001,256,402,NULL), (3,9001,0,402,NULL)]::pg_temp.edge[], 1, lock => 7) \g /dev/null
SELECT pid, hard_blockers, root_blockers FROM lock_history.waits WHERE wait_id IN (6001, 6003) ORDER BY pid;
SELECT pid, blocker_pid, blocker_gid, blocker_backend_start, blocker_mode FROM lock_history.blocking WHERE wait_id IN (6001, 6003) ORDER BY pid, first_seen;
SELECT * FROM pg_temp.tree(405, 'n1');
SELECT pid, gid, sessions_blocked, blocked_time FROM lock_history.root_blockers WHERE gid IS NOT NULL ORDER BY pid DESC;
-- lock group: 702 waits for the leader 700, of whose group the worker 701 is what waits: shown as 700
SELECT pg_temp.add_actor(:n, 699), pg_temp.add_actor(:n, 700, leader => 700), pg_temp.add_actor(:n, 701, leader => 700), pg_temp.add_actor(:n, 702) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 7001, 701, 1, 500, 510, ARRAY[(1,699,256,500,NULL), (3,699,0,500,NULL)]::pg_temp.edge[], 1, lock => 8) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 7002, 702, 8, 501, 510, ARRAY[(1,700,2,501,NULL), (3,699,0,501,NULL)]::pg_temp.edge[], 1, lock => 9) \g /dev/null
SELECT * FROM pg_temp.tree(505, 'n1');
-- leader and workers in one queue: one row, the leader's wait; 705 holds with two workers that hold too
SELECT pg_temp.add_actor(:n, 705), pg_temp.add_actor(:n, 710), pg_temp.add_actor(:n, 711, leader => 710), pg_temp.add_actor(:n, 712, leader => 710) \g /dev/null
UPDATE lock_history.actor SET members = '{706,707}' WHERE pid = 705;
SELECT pg_temp.add_wait('episode', :n, 7011, 711, 1, 550, 560, ARRAY[(1,705,256,550,NULL), (3,705,0,550,NULL)]::pg_temp.edge[], 1, lock => 13),
       pg_temp.add_wait('episode', :n, 7012, 712, 1, 551, 560, ARRAY[(1,705,256,551,NULL), (3,705,0,551,NULL)]::pg_temp.edge[], 2, lock => 13),
       pg_temp.add_wait('episode', :n, 7010, 710, 1, 552, 560, ARRAY[(1,705,256,552,NULL), (3,705,0,552,NULL)]::pg_temp.edge[], 3, lock => 13) \g /dev/null
SELECT level, pid, members, blocked_by, backend_type, wait_id, waited FROM lock_history.blocking_tree_at(pg_temp.t(551.5), 'n1');
SELECT level, pid, members, blocked_by, backend_type, wait_id, waited FROM lock_history.blocking_tree_at(pg_temp.t(555), 'n1');
-- two waits of one process overlap by a tick: the later one counts
SELECT pg_temp.add_actor(:n, 801), pg_temp.add_actor(:n, 802) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 8001, 801, 1, 600, 601.01, ARRAY[(1,802,256,600,NULL)]::pg_temp.edge[], 1, lock => 10, object => 'public.first'),
       pg_temp.add_wait('episode', :n, 8002, 801, 1, 601.005, 602, ARRAY[(1,802,256,601.005,NULL)]::pg_temp.edge[], 1, lock => 11, object => 'public.second') \g /dev/null
SELECT * FROM pg_temp.tree(601.007, 'n1');
-- a process that could not be described still shows
SELECT pg_temp.add_wait('episode', :n, 8009, 809, 1, 700, 702, '{}', 1, lock => 12) \g /dev/null
SELECT * FROM pg_temp.tree(701, 'n1');
SELECT wait_id, pid, object FROM lock_history.waits WHERE wait_id = 8009;
