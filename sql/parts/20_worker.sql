-- What the shim answers.  Without preload these exist all the same and say so.

CREATE FUNCTION lock_history.worker_status(OUT key text, OUT value text)
RETURNS SETOF record
LANGUAGE C STABLE STRICT
SET search_path = pg_catalog, pg_temp
-- times are read back from here: other styles write zones by abbreviations that mean several
SET datestyle = 'ISO'
AS 'MODULE_PATHNAME', 'plh_worker_status';
COMMENT ON FUNCTION lock_history.worker_status() IS
    'internal: state of the worker as key and value; status() adds the facts about the ring';
REVOKE ALL ON FUNCTION lock_history.worker_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.worker_status() TO pg_monitor;

CREATE FUNCTION lock_history.flush(timeout interval DEFAULT '10 s')
RETURNS boolean
LANGUAGE C VOLATILE STRICT
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'plh_flush';
COMMENT ON FUNCTION lock_history.flush(interval) IS
    'Returns true once everything up to now can be read, false when the timeout came first';
REVOKE ALL ON FUNCTION lock_history.flush(interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.flush(interval) TO pg_monitor;

CREATE FUNCTION lock_history.mode_conflicts(mode integer)
RETURNS integer
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'plh_mode_conflicts';
COMMENT ON FUNCTION lock_history.mode_conflicts(integer) IS
    'internal: mask (1 << mode) of the lock modes that conflict with lock mode 1 to 8, from the server''s own table';
REVOKE ALL ON FUNCTION lock_history.mode_conflicts(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.mode_conflicts(integer) TO pg_monitor;

-- For the install script alone: nobody is granted it.
CREATE FUNCTION lock_history.announce()
RETURNS void
LANGUAGE C VOLATILE STRICT
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'plh_announce';
COMMENT ON FUNCTION lock_history.announce() IS
    'internal: tells the worker, when the transaction commits, that the extension was created; warns when nothing will be recorded here';
REVOKE ALL ON FUNCTION lock_history.announce() FROM PUBLIC;
