-- Figures, times and names as words, for sentences.

CREATE FUNCTION lock_history.say_seconds(seconds numeric)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN s.s < 0.9995 THEN round(1000 * s.s) || ' ms'
        WHEN s.s < 59.95 THEN round(s.s, 1) || ' s'
        WHEN s.full_s < 3600 THEN s.full_s / 60 || ' min' || coalesce(' ' || nullif(s.full_s % 60, 0) || ' s', '')
        WHEN s.full_s < 86400 THEN s.full_s / 3600 || ' h' || coalesce(' ' || nullif(s.full_s / 60 % 60, 0) || ' min', '')
        ELSE s.full_s / 86400 || ' d' || coalesce(' ' || nullif(s.full_s / 3600 % 24, 0) || ' h', '') END
    FROM (SELECT greatest(say_seconds.seconds, 0), round(greatest(say_seconds.seconds, 0))::bigint) AS s(s, full_s)
$$;
COMMENT ON FUNCTION lock_history.say_seconds(numeric) IS 'internal: a length of time in words: 57 ms, 4.1 s, 3 min 12 s, 2 h 5 min, 3 d 4 h';
REVOKE ALL ON FUNCTION lock_history.say_seconds(numeric) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.say_seconds(numeric) TO pg_monitor;

-- The date is said once, where the range lies within a day.
CREATE FUNCTION lock_history.say_time(at timestamptz, of_day date)
RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT to_char(say_time.at, CASE WHEN say_time.at::date = say_time.of_day THEN 'HH24:MI:SS' ELSE 'YYYY-MM-DD HH24:MI:SS' END)
$$;
COMMENT ON FUNCTION lock_history.say_time(timestamptz, date) IS 'internal: a moment in the session''s time zone, without the date if that is the given one';
REVOKE ALL ON FUNCTION lock_history.say_time(timestamptz, date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.say_time(timestamptz, date) TO pg_monitor;

-- What others have named or written: on one line, and not longer than a line.
CREATE FUNCTION lock_history.say_text(words text, length integer DEFAULT 90)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN length(t.t) > say_text.length THEN left(t.t, say_text.length - 3) || '...' ELSE t.t END
    FROM (SELECT btrim(regexp_replace(say_text.words, '[\s[:cntrl:]]+', ' ', 'g'))) AS t(t)
$$;
COMMENT ON FUNCTION lock_history.say_text(text, integer) IS 'internal: a statement or a name on one line, cut off where it is longer';
REVOKE ALL ON FUNCTION lock_history.say_text(text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.say_text(text, integer) TO pg_monitor;

CREATE FUNCTION lock_history.say_list(words text[], most integer DEFAULT 3)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN n.n = 0 THEN NULL
        WHEN n.n = 1 THEN say_list.words[1]
        WHEN n.n <= say_list.most THEN array_to_string(say_list.words[1:n.n - 1], ', ') || ' and ' || say_list.words[n.n]
        ELSE array_to_string(say_list.words[1:say_list.most], ', ') || ' and ' || n.n - say_list.most || ' more' END
    FROM (SELECT cardinality(say_list.words)) AS n(n)
$$;
COMMENT ON FUNCTION lock_history.say_list(text[], integer) IS 'internal: a, b and c; or a, b, c and 12 more';
REVOKE ALL ON FUNCTION lock_history.say_list(text[], integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.say_list(text[], integer) TO pg_monitor;

CREATE FUNCTION lock_history.say_count(n numeric, one text, many text DEFAULT NULL)
RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT say_count.n || ' ' || CASE WHEN say_count.n = 1 THEN say_count.one ELSE coalesce(say_count.many, say_count.one || 's') END $$;
COMMENT ON FUNCTION lock_history.say_count(numeric, text, text) IS 'internal: 1 session, 2 sessions';
REVOKE ALL ON FUNCTION lock_history.say_count(numeric, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.say_count(numeric, text, text) TO pg_monitor;

CREATE FUNCTION lock_history.say_process(
    pid integer, gid text, backend_type text, application_name text, usename text, datname text)
RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN say_process.gid IS NOT NULL THEN format('the prepared transaction %L', lock_history.say_text(say_process.gid))
        WHEN coalesce(say_process.pid, 0) = 0 THEN 'a prepared transaction'
        WHEN say_process.backend_type = 'startup' THEN format('the replay (startup process, pid %s)', say_process.pid)
        WHEN say_process.backend_type <> 'client backend' THEN format('the %s with pid %s', say_process.backend_type, say_process.pid)
        ELSE 'pid ' || say_process.pid END
        || coalesce(' (' || nullif(concat_ws(', ',
                'application ' || nullif(lock_history.say_text(say_process.application_name, 40), ''),
                'role ' || lock_history.say_text(say_process.usename, 40),
                'database ' || lock_history.say_text(say_process.datname, 40)), '') || ')', '')
$$;
COMMENT ON FUNCTION lock_history.say_process(integer, text, text, text, text, text) IS 'internal: who it was';
REVOKE ALL ON FUNCTION lock_history.say_process(integer, text, text, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.say_process(integer, text, text, text, text, text) TO pg_monitor;

-- Templates of rules.  In one pass, so that nothing which is put in is taken for
-- a placeholder.
CREATE FUNCTION lock_history.fill(template text, facts jsonb)
RETURNS text
LANGUAGE sql STABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(m.part[1] || CASE
        WHEN m.part[2] IS NULL THEN ''
        WHEN v.value IS NULL OR v.value = 'null' THEN '(not known)'
        WHEN jsonb_typeof(v.value) = 'array' THEN coalesce(lock_history.say_list(ARRAY(SELECT lock_history.say_text(e) FROM jsonb_array_elements_text(v.value) AS e)), 'none')
        WHEN m.part[3] IS NOT NULL THEN lock_history.say_count(v.text::numeric, m.part[3])
        WHEN jsonb_typeof(v.value) = 'number' AND m.part[2] ~ '(^|_)s$' THEN lock_history.say_seconds(v.text::numeric)
        WHEN jsonb_typeof(v.value) = 'number' AND m.part[2] ~ '(^|_)share$' THEN round(100 * v.text::numeric) || ' %'
        ELSE lock_history.say_text(v.text) END, '' ORDER BY m.no)
    FROM regexp_matches(fill.template, '([^{]*)(?:\{(\w+)(?: (\w+))?\})?', 'g') WITH ORDINALITY AS m(part, no)
    CROSS JOIN LATERAL (SELECT fill.facts -> m.part[2], fill.facts ->> m.part[2]) AS v(value, text)
$$;
COMMENT ON FUNCTION lock_history.fill(text, jsonb) IS
    'internal: a template with each {name} replaced by that fact: of names that end in _s as a length of time, in _share as a percentage; {name thing} is so many things';
REVOKE ALL ON FUNCTION lock_history.fill(text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.fill(text, jsonb) TO pg_monitor;

CREATE FUNCTION lock_history.mode_names(modes integer)
RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ARRAY(SELECT ('{AccessShareLock,RowShareLock,RowExclusiveLock,ShareUpdateExclusiveLock,ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}'::text[])[m.mode]
                 FROM generate_series(1, 8) AS m(mode)
                 WHERE mode_names.modes & (1 << m.mode) <> 0
                 ORDER BY m.mode)
$$;
COMMENT ON FUNCTION lock_history.mode_names(integer) IS 'internal: the lock modes of a mask (1 << mode), as in pg_locks';
REVOKE ALL ON FUNCTION lock_history.mode_names(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.mode_names(integer) TO pg_monitor;

-- Not in quotes of SQL: it may be cut off.
CREATE FUNCTION lock_history.say_quoted(words text)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE say_quoted.words WHEN '' THEN 'an empty statement' WHEN '<insufficient privilege>' THEN 'a statement not yours to see'
                ELSE '`' || say_quoted.words || '`' END
$$;
COMMENT ON FUNCTION lock_history.say_quoted(text) IS 'internal: a statement as it stands in a sentence';
REVOKE ALL ON FUNCTION lock_history.say_quoted(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.say_quoted(text) TO pg_monitor;

CREATE FUNCTION lock_history.say_outcomes(outcomes jsonb, still bigint)
RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(o.said, ', ' ORDER BY o.place, o.said)
    FROM (SELECT 1 AS place,
                 CASE WHEN e.key = 'granted' AND coalesce(say_outcomes.still, 0) = 0 AND (SELECT count(*) FROM jsonb_object_keys(say_outcomes.outcomes)) = 1
                      THEN CASE e.value::text WHEN '1' THEN 'the wait was granted' ELSE format('all %s waits were granted', e.value) END
                      ELSE e.value || CASE e.key
                          WHEN 'granted' THEN ' granted' WHEN 'lock_timeout' THEN ' ended by lock_timeout' WHEN 'statement_timeout' THEN ' ended by statement_timeout'
                          WHEN 'deadlock' THEN ' failed as victim of a deadlock' WHEN 'server_stop' THEN ' ended with the server' WHEN 'recovery_conflict' THEN ' ended by a recovery conflict'
                          WHEN 'unknown' THEN ' whose end nobody saw' ELSE ' ' || e.key END END AS said
          FROM jsonb_each(say_outcomes.outcomes) AS e
          UNION ALL
          SELECT 2, say_outcomes.still || ' still waiting' WHERE say_outcomes.still > 0) AS o
$$;
COMMENT ON FUNCTION lock_history.say_outcomes(jsonb, bigint) IS 'internal: how waits ended';
REVOKE ALL ON FUNCTION lock_history.say_outcomes(jsonb, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.say_outcomes(jsonb, bigint) TO pg_monitor;
