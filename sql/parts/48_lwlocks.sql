-- LWLocks: which one, in which mode, how long, and what stood ahead.
--
-- The time is that of load: the rows of a second add up to its LWLock part, in
-- version 19 with waits for the content of pages, which are no LWLocks there.
CREATE VIEW lock_history.lwlocks AS
SELECT l.node, l.at, d.wait_event AS tranche, d.instance, d.lwlock_mode AS mode,
       l.wait_ms::double precision / nullif(l.sampled_ms, 0) AS waiters_avg, l.waiters_max::integer AS waiters_max,
       l.wait_ms::double precision AS wait_ms, l.held_exclusive::double precision AS held_exclusive,
       l.shared_holders::double precision AS shared_holders_avg, l.waits::bigint AS waits
FROM (SELECT n.node, s.seg, s.node_id, s.at, s.sampled_ms, pg_catalog.unnest(s.dims) AS dim_id, pg_catalog.unnest(s.wait_ms) AS wait_ms,
             pg_catalog.unnest(s.waits) AS waits, pg_catalog.unnest(s.waiters_max) AS waiters_max,
             pg_catalog.unnest(s.held_exclusive) AS held_exclusive, pg_catalog.unnest(s.shared_holders) AS shared_holders
      FROM lock_history.lwlock AS s
      JOIN lock_history.recorded AS n ON n.node_id = s.node_id AND n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
      -- a kept incident is read without a look into the ring
      WHERE s.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END)) AS l
JOIN lock_history.dim AS d ON d.seg = l.seg AND d.dim_id = l.dim_id AND d.kind = 2 AND d.node_id = l.node_id;

GRANT SELECT ON lock_history.lwlocks TO pg_monitor;
COMMENT ON VIEW lock_history.lwlocks IS
    'Waits for LWLocks by second: which lock, in which mode, how long, and what stood ahead; seconds in which nobody waited for one have no row';
COMMENT ON COLUMN lock_history.lwlocks.node IS 'server that was watched';
COMMENT ON COLUMN lock_history.lwlocks.at IS 'begin of the second';
COMMENT ON COLUMN lock_history.lwlocks.tranche IS 'group of locks, by the name that the server shows as wait_event; BufferContent in every version';
COMMENT ON COLUMN lock_history.lwlocks.instance IS 'which of its locks: only one, partition n (from 0), lock n (of those an extension has asked for), fast path of pid n; null: not known (for BufferContent see hot_pages)';
COMMENT ON COLUMN lock_history.lwlocks.mode IS 'mode waited with: exclusive, shared, wait until free (for another one''s work to be done), or share exclusive (pages of version 19: to write them while others read)';
COMMENT ON COLUMN lock_history.lwlocks.waiters_avg IS 'average number of sessions that waited';
COMMENT ON COLUMN lock_history.lwlocks.waiters_max IS 'most of them at one sample';
COMMENT ON COLUMN lock_history.lwlocks.wait_ms IS 'time they waited, added up, in milliseconds (estimated from samples)';
COMMENT ON COLUMN lock_history.lwlocks.held_exclusive IS 'share of that time in which the lock was held exclusively, as far as it was seen; null: not known';
COMMENT ON COLUMN lock_history.lwlocks.shared_holders_avg IS 'average number of sessions that held it shared; null: not known';
COMMENT ON COLUMN lock_history.lwlocks.waits IS 'waits that ended, estimated: several that no sample tells apart are one, those between two samples none';

-- The same as totals.  The time of a second belongs to a range that has its begin.
CREATE FUNCTION lock_history.lwlock_profile(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, node text DEFAULT NULL)
RETURNS TABLE (tranche text, instance text, mode text, waits bigint, wait_ms double precision, share double precision,
               seconds bigint, waiters_avg double precision, waiters_max integer,
               held_exclusive double precision, shared_holders_avg double precision, tranche_share double precision)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    wanted_node text := coalesce(lwlock_profile.node, lock_history.local_node());
BEGIN
    PERFORM lock_history.warn_if_nothing_is_here();
    IF lwlock_profile.since > lwlock_profile.until THEN
        RAISE EXCEPTION 'since (%) is after until (%)', lwlock_profile.since, lwlock_profile.until
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY
        SELECT l.tranche, l.instance, l.mode, pg_catalog.sum(l.waits)::bigint, pg_catalog.sum(l.wait_ms),
               pg_catalog.sum(l.wait_ms) / nullif(pg_catalog.sum(pg_catalog.sum(l.wait_ms)) OVER (), 0),
               pg_catalog.count(DISTINCT (l.node, l.at)),
               pg_catalog.sum(l.wait_ms) / nullif(pg_catalog.sum(l.wait_ms / nullif(l.waiters_avg, 0)), 0),
               pg_catalog.max(l.waiters_max),
               -- by time, where it is known
               pg_catalog.sum(l.held_exclusive * l.wait_ms)
                   / nullif(pg_catalog.sum(l.wait_ms) FILTER (WHERE l.held_exclusive IS NOT NULL), 0),
               pg_catalog.sum(l.shared_holders_avg * l.wait_ms)
                   / nullif(pg_catalog.sum(l.wait_ms) FILTER (WHERE l.shared_holders_avg IS NOT NULL), 0),
               pg_catalog.sum(pg_catalog.sum(l.wait_ms)) OVER (PARTITION BY l.tranche) / nullif(pg_catalog.sum(pg_catalog.sum(l.wait_ms)) OVER (), 0)
        FROM lock_history.lwlocks AS l
        WHERE (wanted_node IS NULL OR l.node = wanted_node)
          AND l.at >= coalesce(lwlock_profile.since, '-infinity') AND l.at < coalesce(lwlock_profile.until, 'infinity')
        GROUP BY l.tranche, l.instance, l.mode
        -- of sixteen partitions none looks dear, their tranche may be
        ORDER BY pg_catalog.sum(pg_catalog.sum(l.wait_ms)) OVER (PARTITION BY l.tranche) DESC, l.tranche,
                 pg_catalog.sum(l.wait_ms) DESC, l.instance, l.mode;
END
$$;
COMMENT ON FUNCTION lock_history.lwlock_profile(timestamptz, timestamptz, text) IS
    'LWLocks by the time that sessions waited for them, the dearest tranche first, and in it the dearest lock: mode, waits (estimated), time, its share and that of its tranche of all, seconds in which there were waits, waiters in those, and what stood ahead. held_exclusive and shared_holders_avg near 0: the lock was free, its waiters were woken and waited for a processor. instance null: not known which lock it was; for BufferContent see hot_pages (since, until: default all; node: default this server)';
REVOKE ALL ON FUNCTION lock_history.lwlock_profile(timestamptz, timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.lwlock_profile(timestamptz, timestamptz, text) TO pg_monitor;
