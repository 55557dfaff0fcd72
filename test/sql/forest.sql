-- How trees are arranged, apart from all data.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
-- pids as listed; edges as child > parent; [c] in a cycle, (n) n collapsed
CREATE FUNCTION pg_temp.draw(pids integer[], edges text[], max_siblings integer DEFAULT 50) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(repeat('.', f.level) || coalesce(pids[f.member]::text, '(' || f.collapsed_count || ')')
                      || CASE WHEN f.in_cycle THEN 'c' ELSE '' END, ' ' ORDER BY f.ordinal)
    FROM lock_history.forest(pids,
             ARRAY(SELECT array_position(pids, split_part(e, '>', 1)::integer) FROM unnest(edges) WITH ORDINALITY AS u(e, o) ORDER BY 1, o),
             ARRAY(SELECT array_position(pids, split_part(e, '>', 2)::integer) FROM unnest(edges) WITH ORDINALITY AS u(e, o)
                   ORDER BY array_position(pids, split_part(e, '>', 1)::integer), o),
             max_siblings) AS f
$$;
SELECT c.name, pg_temp.draw(c.pids, c.edges, c.max_siblings) AS tree
FROM (VALUES
    (1, 'nobody', '{}'::integer[], '{}'::text[], 50),
    (2, 'one waiter whose blocker is not known', '{7}', '{}', 50),
    (3, 'chain', '{1,2,3,4}', '{2>1,3>2,4>3}', 50),
    (4, 'siblings in their order', '{1,4,2,3}', '{2>1,3>1,4>1}', 50),
    (5, 'two blockers: expanded below the first, a leaf below the other', '{1,2,3,4}', '{3>1,3>2,4>3}', 50),
    (6, 'two blockers, the later pid first', '{1,2,3,4}', '{3>2,3>1,4>3}', 50),
    (7, 'two trees', '{1,2,3,4}', '{3>1,4>2}', 50),
    (8, 'cycle of two begins at the smallest pid', '{9,5}', '{9>5,5>9}', 50),
    (9, 'cycle of three with somebody behind it', '{6,5,4,1}', '{6>5,5>4,4>6,1>5}', 50),
    (10, 'cycle that a root holds up too', '{1,2,3}', '{2>1,2>3,3>2}', 50),
    (11, 'cycle first, root second', '{1,2,3}', '{2>3,2>1,3>2}', 50),
    (12, 'between two cycles, in neither', '{1,2,3,4,5}', '{1>2,2>1,3>1,4>3,4>5,5>4}', 50),
    (13, 'as many siblings as may be', '{1,2,3}', '{2>1,3>1}', 2),
    (14, 'one more is collapsed', '{1,2,3,4}', '{2>1,3>1,4>1}', 2),
    (15, 'who blocks somebody is never collapsed', '{1,2,3,4,5,6}', '{2>1,3>1,4>1,5>1,6>5}', 1),
    (16, 'nothing but collapsed', '{1,2,3}', '{2>1,3>1}', 0)
) AS c(no, name, pids, edges, max_siblings)
ORDER BY c.no;
-- path and root
SELECT f.ordinal, f.tree, f.level, f.path, f.member, f.root, f.in_cycle, f.collapsed_count
FROM lock_history.forest('{10,20,30,40}', '{2,3,4}', '{1,2,2}', 1) AS f;
-- a queue of 3 000, each behind the one before, does not recurse and is linear
SELECT count(*), max(level), max(cardinality(path))
FROM lock_history.forest(ARRAY(SELECT generate_series(1, 3000)), ARRAY(SELECT generate_series(2, 3000)),
                         ARRAY(SELECT generate_series(1, 2999)), 50);
-- a process that nobody described has no pid
SELECT f.path, f.member FROM lock_history.forest(ARRAY[NULL, 20, NULL], '{2,3}', '{1,2}', 50) AS f;
SELECT f.path, f.root FROM lock_history.forest(ARRAY[NULL, 20], '{1,2}', '{2,1}', 50) AS f;
-- nothing is collapsed when no number is given
SELECT count(*) FROM lock_history.forest(ARRAY(SELECT generate_series(1, 100)), ARRAY(SELECT generate_series(2, 100)), array_fill(1, ARRAY[99]), NULL);
-- a cycle of all members closes one below the last of them
SELECT level, path, in_cycle FROM lock_history.forest('{11,12}', '{1,2}', '{2,1}', 50) ORDER BY ordinal;
SELECT n.n, (SELECT max(f.level) = n.n AND count(*) = n.n + 1 FROM lock_history.forest(
           ARRAY(SELECT generate_series(1, n.n)), ARRAY(SELECT generate_series(1, n.n)), ARRAY(SELECT 1 + g % n.n FROM generate_series(1, n.n) AS g), 50) AS f) AS closes
FROM (VALUES (2048), (2049), (2058), (2072)) AS n(n);
-- an edge that is given twice shows its child twice, and below it nobody twice
SELECT level, path FROM lock_history.forest('{1,2,3}', '{2,2,3}', '{1,1,2}', 50) ORDER BY ordinal;
-- arguments are checked
\set VERBOSITY terse
SELECT * FROM lock_history.forest('{1,2}', '{2}', '{3}', 50);
SELECT * FROM lock_history.forest('{1,2}', '{0}', '{1}', 50);
SELECT * FROM lock_history.forest('{1,2,3}', '{3,2}', '{1,1}', 50);
SELECT * FROM lock_history.forest('{1,2}', '{2}', '{1,1}', 50);
SELECT * FROM lock_history.forest('{1,2}', '{NULL}', '{1}', 50);
SELECT * FROM lock_history.forest('{{1,2}}', '{2}', '{1}', 50);
SELECT * FROM lock_history.forest('{1,2}', '{2}', '{1}', -1);
SELECT * FROM lock_history.forest(NULL, '{1}', '{1}', 50);
SELECT * FROM lock_history.forest(NULL, NULL, NULL, 50);
