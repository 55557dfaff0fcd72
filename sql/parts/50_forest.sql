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
-- cycle; it is shown from the smallest pid of that cycle on.  Without
-- max_siblings nothing is collapsed.
CREATE FUNCTION lock_history.forest(pids integer[], children integer[], parents integer[], max_siblings integer)
RETURNS TABLE (ordinal integer, tree integer, level integer, path integer[], member integer, root integer,
               in_cycle boolean, collapsed_count integer)
LANGUAGE C IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'plh_forest';
COMMENT ON FUNCTION lock_history.forest(integer[], integer[], integer[], integer) IS
    'internal: arranges blockers and blocked as indented trees; reads nothing';
REVOKE ALL ON FUNCTION lock_history.forest(integer[], integer[], integer[], integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.forest(integer[], integer[], integer[], integer) TO pg_monitor;
