-- Turns "who is blocked by whom" into rows of an indented tree.  Pure: no
-- table is read.
--
-- Members are numbered 1..n in the order in which siblings are to be shown;
-- pids[m] is the pid of member m.  An edge says that children[i] is blocked by
-- parents[i]; edges are sorted by child, and the first of a child is the one
-- under which it is expanded, so each member is expanded once and everything
-- below is linear in members and edges.
--
-- Roots are members that nobody blocks.  What no root leads to hangs on a
-- cycle; it is shown from the smallest pid of that cycle on.
CREATE FUNCTION lock_history.forest(pids integer[], children integer[], parents integer[], max_siblings integer)
RETURNS TABLE (ordinal integer, tree integer, level integer, path integer[], member integer, root integer,
               in_cycle boolean, collapsed_count integer)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    n           integer := coalesce(cardinality(pids), 0);
    n_edges     integer := coalesce(cardinality(children), 0);
    zeros       integer[] := array_fill(0, ARRAY[n + 2]);
    first_up    integer[] := zeros;   -- edges of child c: first_up[c] .. first_up[c + 1] - 1
    first_down  integer[] := zeros;   -- same for parents, into down
    fill        integer[];
    down        integer[] := array_fill(0, ARRAY[n_edges + 1]);  -- children by parent, in their order
    seen        integer[] := zeros;   -- 1: shown expanded
    starts      integer[] := '{}';
    mark        integer[] := zeros;   -- walk that came by, to find the cycle of a component
    -- Tarjan
    counter     integer := 0;
    index_of    integer[] := zeros;
    low         integer[] := zeros;
    on_stack    integer[] := zeros;
    in_loop     integer[] := zeros;   -- 1: in a component of several members
    scc         integer[] := zeros;
    scc_top     integer := 0;
    call        integer[] := zeros;
    call_edge   integer[] := zeros;
    -- rows still to be shown, the next one on top
    todo        integer[] := zeros;   -- member, 0: a collapsed row
    todo_level  integer[] := zeros;
    todo_fresh  boolean[];            -- to be expanded
    todo_count  integer[] := zeros;
    top         integer;
    kids        integer[];
    kids_fresh  boolean[];
    left_out    integer;
    leaves      integer;
    pid_path    integer[] := '{}';
    m           integer;
    c           integer;
    p           integer;
    i           integer;
    k           integer;
    fresh       boolean;
    smallest    integer;
BEGIN
    IF n = 0 THEN
        RETURN;
    END IF;

    -- Both directions as ranges (counting sort).
    FOR i IN 1..n_edges LOOP
        first_up[children[i] + 1] := first_up[children[i] + 1] + 1;
        first_down[parents[i] + 1] := first_down[parents[i] + 1] + 1;
    END LOOP;
    first_up[1] := 1;
    first_down[1] := 1;
    FOR m IN 2..n + 1 LOOP
        first_up[m] := first_up[m] + first_up[m - 1];
        first_down[m] := first_down[m] + first_down[m - 1];
    END LOOP;
    fill := first_down;
    FOR i IN 1..n_edges LOOP
        p := parents[i];
        down[fill[p]] := children[i];
        fill[p] := fill[p] + 1;
    END LOOP;

    -- Cycles: strongly connected components of several members (Tarjan,
    -- without recursion).
    FOR s IN 1..n LOOP
        CONTINUE WHEN index_of[s] <> 0 OR first_up[s] = first_up[s + 1];
        top := 1;
        call[1] := s;
        call_edge[1] := first_up[s];
        counter := counter + 1;
        index_of[s] := counter;
        low[s] := counter;
        scc_top := scc_top + 1;
        scc[scc_top] := s;
        on_stack[s] := 1;
        WHILE top > 0 LOOP
            m := call[top];
            i := call_edge[top];
            IF i < first_up[m + 1] THEN
                call_edge[top] := i + 1;
                p := parents[i];
                IF index_of[p] = 0 THEN
                    counter := counter + 1;
                    index_of[p] := counter;
                    low[p] := counter;
                    scc_top := scc_top + 1;
                    scc[scc_top] := p;
                    on_stack[p] := 1;
                    top := top + 1;
                    call[top] := p;
                    call_edge[top] := first_up[p];
                ELSIF on_stack[p] = 1 THEN
                    low[m] := least(low[m], index_of[p]);
                END IF;
            ELSE
                top := top - 1;
                IF top > 0 THEN
                    low[call[top]] := least(low[call[top]], low[m]);
                END IF;
                IF low[m] = index_of[m] THEN
                    k := CASE WHEN scc[scc_top] = m THEN 0 ELSE 1 END;
                    LOOP
                        c := scc[scc_top];
                        scc_top := scc_top - 1;
                        on_stack[c] := 0;
                        in_loop[c] := k;
                        EXIT WHEN c = m;
                    END LOOP;
                END IF;
            END IF;
        END LOOP;
    END LOOP;

    -- Where to begin: the roots, then one member of each cycle that first
    -- blockers form.
    FOR m IN 1..n LOOP
        IF first_up[m] = first_up[m + 1] THEN
            starts := starts || m;
        END IF;
    END LOOP;
    FOR m IN 1..n LOOP
        c := m;
        WHILE mark[c] = 0 AND first_up[c] < first_up[c + 1] LOOP
            mark[c] := m;
            c := parents[first_up[c]];
        END LOOP;
        IF mark[c] = m THEN
            smallest := c;
            p := parents[first_up[c]];
            WHILE p <> c LOOP
                IF pids[p] < pids[smallest] THEN
                    smallest := p;
                END IF;
                p := parents[first_up[p]];
            END LOOP;
            starts := starts || smallest;
        END IF;
    END LOOP;

    ordinal := 0;
    tree := 0;
    FOREACH root IN ARRAY starts LOOP
        tree := tree + 1;
        top := 1;
        todo[1] := root;
        todo_level[1] := 0;
        todo_fresh[1] := true;
        todo_count[1] := 0;
        WHILE top > 0 LOOP
            m := todo[top];
            level := todo_level[top];
            fresh := todo_fresh[top];
            collapsed_count := nullif(todo_count[top], 0);
            top := top - 1;
            ordinal := ordinal + 1;
            member := nullif(m, 0);
            in_cycle := m > 0 AND in_loop[greatest(m, 1)] = 1;
            IF m > 0 THEN
                pid_path[level + 1] := pids[m];
                path := pid_path[1:level + 1];
            ELSE
                path := pid_path[1:level];
            END IF;
            RETURN NEXT;
            CONTINUE WHEN NOT fresh;

            seen[m] := 1;
            kids := '{}';
            kids_fresh := '{}';
            leaves := 0;
            left_out := 0;
            FOR i IN first_down[m]..first_down[m + 1] - 1 LOOP
                c := down[i];
                fresh := parents[first_up[c]] = m AND seen[c] = 0;
                IF NOT fresh OR first_down[c] = first_down[c + 1] THEN
                    leaves := leaves + 1;
                    IF leaves > max_siblings THEN
                        left_out := left_out + 1;
                        CONTINUE;
                    END IF;
                END IF;
                kids := kids || c;
                kids_fresh := kids_fresh || fresh;
            END LOOP;
            IF left_out > 0 THEN
                top := top + 1;
                todo[top] := 0;
                todo_level[top] := level + 1;
                todo_fresh[top] := false;
                todo_count[top] := left_out;
            END IF;
            FOR k IN REVERSE cardinality(kids)..1 LOOP
                top := top + 1;
                todo[top] := kids[k];
                todo_level[top] := level + 1;
                todo_fresh[top] := kids_fresh[k];
                todo_count[top] := 0;
            END LOOP;
        END LOOP;
    END LOOP;
END
$$;
COMMENT ON FUNCTION lock_history.forest(integer[], integer[], integer[], integer) IS
    'internal: arranges blockers and blocked as indented trees; reads nothing';
REVOKE ALL ON FUNCTION lock_history.forest(integer[], integer[], integer[], integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.forest(integer[], integer[], integer[], integer) TO pg_monitor;
