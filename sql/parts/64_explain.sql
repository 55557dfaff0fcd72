-- The story of a range of time, in sentences and as facts.

-- Each sentence says where in the facts it comes from.
CREATE FUNCTION lock_history.explain_story(facts jsonb)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- What is told of LWLocks and pages: less is normal.
    least_share CONSTANT numeric := 0.05;
    least_s     CONSTANT numeric := 1;
    since       CONSTANT timestamptz := facts ->> 'since';
    until       CONSTANT timestamptz := facts ->> 'until';
    day         CONSTANT date := CASE WHEN since::date = until::date THEN since::date END;
    watched     CONSTANT jsonb := facts -> 'watched';
    waits       CONSTANT jsonb := facts -> 'waits';
    short       CONSTANT jsonb := facts -> 'short';
    load        CONSTANT jsonb := facts -> 'load';
    fast_path   CONSTANT jsonb := facts -> 'fast_path';
    -- begin and end of the range, the date once
    span        CONSTANT text := CASE WHEN day IS NULL
        THEN format('From %s to %s', lock_history.say_time(since, NULL), lock_history.say_time(until, NULL))
        ELSE format('On %s from %s to %s', to_char(since, 'YYYY-MM-DD'), lock_history.say_time(since, day), lock_history.say_time(until, day)) END;
    unseen_s    CONSTANT numeric := coalesce((watched ->> 'unseen_s')::numeric, 0);
    range_s     CONSTANT numeric := (watched ->> 'range_s')::numeric;
    story       jsonb := '[]';
    s           text;
    r           record;
    q           record;
    before      text[];
    n           bigint;
    t           numeric;
    told_s      numeric := 0;   -- behind the roots that are told
BEGIN
    -- What was not seen, first: all that follows is told without it.
    IF unseen_s >= greatest(range_s - 1, 0.5 * range_s) AND (waits ->> 'waits')::bigint = 0 AND (short ->> 'waits')::bigint = 0 THEN
        RETURN jsonb_build_array(jsonb_build_object('kind', 'missed', 'at', since, 'facts', '$.watched', 'sentence',
            format('%s nothing is known of %s: %s.', span, lock_history.say_text(facts ->> 'node'),
                   CASE WHEN (watched ->> 'history_since')::timestamptz >= until
                        THEN 'its history begins at ' || lock_history.say_time((watched ->> 'history_since')::timestamptz, day)
                        ELSE coalesce('nobody was looking (' || (watched #>> '{gap_list,0,reason}') || ')', 'nobody was looking, or it is not written yet') END)));
    END IF;
    -- a second or two at the end are not written yet
    IF unseen_s - coalesce(least(extract(epoch FROM until - (watched ->> 'complete_until')::timestamptz), 5), 0) >= 1 THEN
        s := format('Not seen: %s of %s', lock_history.say_seconds(unseen_s), lock_history.say_seconds(range_s));
        IF (watched ->> 'history_since')::timestamptz > since THEN
            s := s || format('; the history begins at %s', lock_history.say_time((watched ->> 'history_since')::timestamptz, day));
        END IF;
        IF extract(epoch FROM until - (watched ->> 'complete_until')::timestamptz) > 5 THEN
            s := s || format('; it is complete up to %s only', lock_history.say_time((watched ->> 'complete_until')::timestamptz, day));
        END IF;
        FOR r IN SELECT g.value AS gap FROM jsonb_array_elements(watched -> 'gap_list') AS g LOOP
            s := s || format('; %s from %s %s', r.gap ->> 'reason', lock_history.say_time((r.gap ->> 'began')::timestamptz, day),
                             coalesce('to ' || lock_history.say_time((r.gap ->> 'ended')::timestamptz, day), 'on'))
                   || CASE WHEN r.gap ? 'part' THEN ' (' || (r.gap ->> 'part') || ')' ELSE '' END
                   || CASE WHEN (r.gap ->> 'lost')::bigint > 0 THEN format(', %s lost', lock_history.say_count((r.gap ->> 'lost')::bigint, 'row')) ELSE '' END;
        END LOOP;
        story := story || jsonb_build_object('kind', 'missed', 'at', since, 'facts', '$.watched', 'sentence', s || '.');
    END IF;
    IF (watched ->> 'missed_share')::numeric >= 0.01 OR (watched ->> 'late_share')::numeric >= 0.1 THEN
        story := story || jsonb_build_object('kind', 'missed', 'at', since, 'facts', '$.watched', 'sentence',
            format('The sampling rate was not held: of %s samples due %s %% were never taken and %s %% came late; waits of a few samples may be missing.',
                   watched ->> 'ticks_due', round(100 * (watched ->> 'missed_share')::numeric, 1), round(100 * (watched ->> 'late_share')::numeric, 1)));
    END IF;

    -- The headline.
    IF (waits ->> 'waits')::bigint > 0 THEN
        s := format('%s on %s %s waited for locks: %s, %s in all, the longest %s', span, lock_history.say_text(facts ->> 'node'),
                    lock_history.say_count((waits ->> 'sessions')::bigint, 'session'), lock_history.say_count((waits ->> 'waits')::bigint, 'wait'),
                    lock_history.say_seconds((waits ->> 'total_s')::numeric), lock_history.say_seconds((waits ->> 'longest_s')::numeric));
        IF (waits ->> 'most')::bigint > 1 THEN
            s := s || format(', at most %s at once (from %s)', waits ->> 'most', lock_history.say_time((waits ->> 'most_at')::timestamptz, day));
        END IF;
        IF (waits ->> 'still')::bigint > 0 THEN
            s := s || format('; %s still waited at the end', waits ->> 'still');
        END IF;
        IF jsonb_array_length(waits -> 'roots') > 0 AND (waits ->> 'root_s')::numeric > 0 THEN
            t := (waits #>> '{roots,0,blocked_s}')::numeric / (waits ->> 'root_s')::numeric;
            s := s || CASE WHEN t > 0.995 THEN format('. All of it was behind %s', waits #>> '{roots,0,who}')
                           WHEN t >= 0.3 THEN format('. %s %% of it was behind %s', round(100 * t), waits #>> '{roots,0,who}')
                           ELSE format('. It was behind %s different sessions', waits ->> 'root_count') END;
        END IF;
        story := story || jsonb_build_object('kind', 'headline', 'at', waits -> 'began', 'facts', '$.waits', 'sentence', s || '.');
    ELSIF (short ->> 'waits')::bigint > 0 THEN
        story := story || jsonb_build_object('kind', 'headline', 'at', since, 'facts', '$.short', 'sentence',
            format('%s on %s sessions waited for locks only shortly: %s below min_duration, %s in all, the longest %s.', span, lock_history.say_text(facts ->> 'node'),
                   lock_history.say_count((short ->> 'waits')::bigint, 'wait'), lock_history.say_seconds((short ->> 'total_s')::numeric), lock_history.say_seconds((short ->> 'longest_s')::numeric)));
    ELSE
        story := story || jsonb_build_object('kind', 'headline', 'at', since, 'facts', '$', 'sentence',
            format('%s on %s nobody waited for a lock', span, lock_history.say_text(facts ->> 'node')));
    END IF;

    -- Who was at the root, what it was doing, who stood behind, how it ended.
    FOR r IN SELECT e.value AS root, e.no - 1 AS no FROM jsonb_array_elements(waits -> 'roots') WITH ORDINALITY AS e(value, no) LOOP
        -- of little moment beside the others
        t := (r.root ->> 'blocked_s')::numeric / nullif((waits ->> 'root_s')::numeric, 0);
        CONTINUE WHEN r.no > 0 AND t < 0.05 AND (r.root ->> 'blocked_s')::numeric < 5;
        -- one of many who had the same row: that is told below
        CONTINUE WHEN t < 0.1 AND (waits #>> '{hot,0,roots}')::bigint >= 3 AND r.root #>> '{objects,0}' = 'rows of ' || (waits #>> '{hot,0,object}');
        told_s := told_s + (r.root ->> 'blocked_s')::numeric;
        story := story || jsonb_build_object('kind', 'blocking', 'at', r.root -> 'began', 'facts', format('$.waits.roots[%s]', r.no), 'sentence',
            format('%s held up %s for %s in all, from %s %s%s: they asked for %s on %s%s.',
                   upper(left(r.root ->> 'process', 1)) || substr(r.root ->> 'process', 2),
                   lock_history.say_count((r.root ->> 'sessions')::bigint, 'session'), lock_history.say_seconds((r.root ->> 'blocked_s')::numeric),
                   lock_history.say_time((r.root ->> 'began')::timestamptz, day),
                   coalesce('to ' || lock_history.say_time((r.root ->> 'ended')::timestamptz, day), 'on, to the end of the range'),
                   CASE WHEN (r.root ->> 'most')::bigint > 1 THEN format(', at most %s at once', r.root ->> 'most') ELSE '' END,
                   lock_history.say_list(ARRAY(SELECT m FROM jsonb_array_elements_text(r.root -> 'asked') AS m), 4),
                   lock_history.say_list(ARRAY(SELECT lock_history.say_text(m) FROM jsonb_array_elements_text(r.root -> 'objects') AS m), 3)
                       || CASE WHEN (r.root ->> 'objects_more')::integer > 0 THEN format(' and %s more', r.root ->> 'objects_more') ELSE '' END,
                   coalesce(' (applications: ' || lock_history.say_list(ARRAY(SELECT lock_history.say_text(m, 40) FROM jsonb_array_elements_text(r.root -> 'applications') AS m), 4) || ')', '')));

        s := CASE
            WHEN r.root ->> 'state' = 'prepared' OR r.root ? 'gid' THEN
                format('It was prepared %s, and has no session: only COMMIT PREPARED or ROLLBACK PREPARED ends it',
                       coalesce('at ' || lock_history.say_time((r.root ->> 'xact_start')::timestamptz, day), 'before'))
            WHEN r.root ->> 'state' LIKE 'idle in transaction%' THEN
                format('It was %s, by the end for %s, after %s', r.root ->> 'state', lock_history.say_seconds((r.root ->> 'state_s')::numeric),
                       coalesce(lock_history.say_quoted(lock_history.say_text(r.root ->> 'query')), 'a statement that is not known'))
            WHEN r.root ->> 'state' = 'idle' THEN
                format('It was idle, in no transaction, by the end for %s, after %s', lock_history.say_seconds((r.root ->> 'state_s')::numeric),
                       coalesce(lock_history.say_quoted(lock_history.say_text(r.root ->> 'query')), 'a statement that is not known'))
            WHEN r.root ? 'query' THEN
                format('It was running %s', lock_history.say_quoted(lock_history.say_text(r.root ->> 'query')))
            WHEN r.root ? 'state' THEN format('Its state was %s', r.root ->> 'state') END;
        IF s IS NOT NULL THEN
            IF NOT r.root ? 'gid' AND r.root ? 'xact_s' THEN
                s := s || format('; its transaction was %s old by then', lock_history.say_seconds((r.root ->> 'xact_s')::numeric));
            END IF;
            IF jsonb_array_length(r.root -> 'held') > 0 THEN
                s := s || format('. It held %s on %s', lock_history.say_list(ARRAY(SELECT m FROM jsonb_array_elements_text(r.root -> 'held') AS m), 4),
                                 lock_history.say_list(ARRAY(SELECT lock_history.say_text(m) FROM jsonb_array_elements_text(r.root -> 'held_on') AS m), 3));
            END IF;
            story := story || jsonb_build_object('kind', 'blocking', 'at', r.root -> 'began', 'facts', format('$.waits.roots[%s]', r.no), 'sentence', s || '.');
        END IF;
        before := ARRAY(SELECT lock_history.say_quoted(lock_history.say_text(m)) FROM jsonb_array_elements_text(r.root -> 'before') AS m
                        WHERE m !~* '^\s*(begin|start\s+transaction)\M');
        IF cardinality(before) > 0 THEN
            story := story || jsonb_build_object('kind', 'blocking', 'at', r.root -> 'began', 'facts', format('$.waits.roots[%s].before', r.no), 'sentence',
                format('Before that, in the same transaction, samples saw it run %s.',
                       lock_history.say_list(before, 3)));
        END IF;

        FOR q IN SELECT e.value AS ahead, e.no - 1 AS no FROM jsonb_array_elements(r.root -> 'queue') WITH ORDINALITY AS e(value, no) LOOP
            n := (q.ahead ->> 'behind_queue_only')::bigint;
            story := story || jsonb_build_object('kind', 'queue', 'at', q.ahead -> 'since', 'facts', format('$.waits.roots[%s].queue[%s]', r.no, q.no), 'sentence',
                format('Behind it %s waited %s for %s on %s%s, and %s behind that request for %s in all%s.',
                       q.ahead ->> 'process', lock_history.say_seconds((q.ahead ->> 'waited_s')::numeric), q.ahead ->> 'mode', lock_history.say_text(q.ahead ->> 'object'),
                       coalesce(' (' || lock_history.say_quoted(lock_history.say_text(q.ahead ->> 'query')) || ')', ''),
                       lock_history.say_count((q.ahead ->> 'behind')::bigint, 'session'), lock_history.say_seconds((q.ahead ->> 'behind_s')::numeric),
                       CASE WHEN n = (q.ahead ->> 'behind')::bigint
                            THEN ', though what they asked for conflicts with nothing that was held'
                            WHEN n > 0 THEN format(', %s of them though what they asked for conflicts with nothing that was held', n)
                            WHEN q.ahead ? 'held' THEN format(' (it held %s already)', lock_history.say_list(ARRAY(SELECT m FROM jsonb_array_elements_text(q.ahead -> 'held') AS m), 2))
                            ELSE '' END));
        END LOOP;

        story := story || jsonb_build_object('kind', 'ending', 'at', coalesce(r.root -> 'ended', to_jsonb(until)), 'facts', format('$.waits.roots[%s].outcomes', r.no), 'sentence',
            CASE WHEN r.root ? 'ended' THEN format('At %s it was out of the way', lock_history.say_time((r.root ->> 'ended')::timestamptz, day))
                 ELSE 'It was in the way to the end of the range' END
            || coalesce(': ' || lock_history.say_outcomes(r.root -> 'outcomes', (r.root ->> 'still')::bigint), '') || '.');
    END LOOP;
    n := (waits ->> 'root_count')::bigint - (SELECT count(*) FROM jsonb_array_elements(story) AS e WHERE e ->> 'kind' = 'ending');
    IF n > 0 AND (told_s > 0 OR (waits #>> '{hot,0,roots}')::bigint < 3 IS NOT FALSE) THEN
        story := story || jsonb_build_object('kind', 'blocking', 'at', waits -> 'began', 'facts', '$.waits', 'sentence',
            format('There %s %s%s, behind which sessions waited %s in all: root_blockers() lists them.', CASE WHEN n = 1 THEN 'was' ELSE 'were' END, n,
                   CASE WHEN told_s > 0 THEN ' more root blocker' ELSE ' root blocker' END || CASE WHEN n > 1 THEN 's' ELSE '' END,
                   lock_history.say_seconds((waits ->> 'root_s')::numeric - told_s)));
    END IF;

    -- Rows that are fought over have many roots, one after the other.
    FOR r IN SELECT e.value AS hot, e.no - 1 AS no FROM jsonb_array_elements(waits -> 'hot') WITH ORDINALITY AS e(value, no)
             WHERE (e.value ->> 'roots')::bigint >= 3 AND (e.value ->> 'total_s')::numeric >= least_s LOOP
        story := story || jsonb_build_object('kind', 'queue', 'at', waits -> 'began', 'facts', format('$.waits.hot[%s]', r.no), 'sentence',
            format('Rows of %s were fought over: %s of %s, %s in all, the longest %s, behind %s different sessions; %s stood in a queue for a row that another one waited for already.',
                   lock_history.say_text(r.hot ->> 'object'), lock_history.say_count((r.hot ->> 'waits')::bigint, 'wait'), lock_history.say_count((r.hot ->> 'sessions')::bigint, 'session'),
                   lock_history.say_seconds((r.hot ->> 'total_s')::numeric), lock_history.say_seconds((r.hot ->> 'longest_s')::numeric), r.hot ->> 'roots', r.hot ->> 'queued'));
    END LOOP;
    IF (short ->> 'waits')::bigint > 0 AND ((short ->> 'total_s')::numeric >= least_s OR (waits ->> 'waits')::bigint = 0) THEN
        s := format('Short waits: %s, %s in all', short ->> 'waits', lock_history.say_seconds((short ->> 'total_s')::numeric));
        IF (short ->> 'row_s')::numeric >= 0.5 * (short ->> 'total_s')::numeric THEN
            s := s || format(', of which %s for rows', lock_history.say_seconds((short ->> 'row_s')::numeric));
        END IF;
        story := story || jsonb_build_object('kind', 'short', 'at', since, 'facts', '$.short', 'sentence', s || '; most for '
            || lock_history.say_list(ARRAY(SELECT format('%s (%s, %s)', CASE e ->> 'locktype' WHEN 'transactionid' THEN 'the end of transactions' WHEN 'tuple' THEN 'rows of ' || coalesce(lock_history.say_text(e ->> 'object'), 'a table')
                                                           ELSE coalesce(lock_history.say_text(e ->> 'object'), e ->> 'locktype') END, e ->> 'waits', lock_history.say_seconds((e ->> 'total_s')::numeric))
                                           FROM jsonb_array_elements(short -> 'top') AS e LIMIT 3)) || '.');
    END IF;

    FOR r IN SELECT e.value AS dead, e.no - 1 AS no FROM jsonb_array_elements(facts #> '{deadlocks,first}') WITH ORDINALITY AS e(value, no) LOOP
        story := story || jsonb_build_object('kind', 'deadlock', 'at', r.dead -> 'at', 'facts', format('$.deadlocks.first[%s]', r.no), 'sentence',
            format('At %s a deadlock of %s: %s.', lock_history.say_time((r.dead ->> 'at')::timestamptz, day), lock_history.say_count((r.dead ->> 'processes')::bigint, 'session'),
                   (SELECT string_agg(format('%s%s wanted %s%s', m ->> 'process', CASE WHEN (m ->> 'is_victim')::boolean THEN ', the victim,' ELSE '' END,
                                             coalesce((m ->> 'mode') || ' on ', '') || coalesce(lock_history.say_text(m ->> 'object'), 'something'),
                                             CASE WHEN m ? 'query' THEN format(' with %s', lock_history.say_quoted(lock_history.say_text(m ->> 'query'))) ELSE '' END), '; ' ORDER BY no)
                    FROM jsonb_array_elements(r.dead -> 'members') WITH ORDINALITY AS e(m, no) WHERE no <= 4)
                   || CASE WHEN (r.dead ->> 'processes')::bigint > 4 THEN format('; and %s more', (r.dead ->> 'processes')::bigint - 4) ELSE '' END));
    END LOOP;
    n := (facts #>> '{deadlocks,deadlocks}')::bigint - jsonb_array_length(facts #> '{deadlocks,first}');
    IF n > 0 THEN
        story := story || jsonb_build_object('kind', 'deadlock', 'at', since, 'facts', '$.deadlocks', 'sentence', format('And %s.', lock_history.say_count(n, 'more deadlock')));
    END IF;

    IF (load ->> 'aas')::numeric >= 0.1 AND jsonb_array_length(story) > 0 THEN
        story := story || jsonb_build_object('kind', 'load', 'at', since, 'facts', '$.load', 'sentence',
            format('Load: %s active sessions on average; %s.', round((load ->> 'aas')::numeric, 1),
                   lock_history.say_list(ARRAY(SELECT format('%s %s %%', e ->> 'event', round(100 * (e ->> 'share')::numeric))
                                               FROM jsonb_array_elements(load -> 'events') AS e WHERE (e ->> 'share')::numeric >= 0.05 LIMIT 4), 4)));
    END IF;

    -- The two dearest groups of LWLocks, and the dearest lock of each where one stands out.
    FOR r IN SELECT l.value AS tranche, l.no - 1 AS no, e.share AS load_share, l.value #> '{locks,0}' AS lock
             FROM jsonb_array_elements(facts -> 'lwlocks') WITH ORDINALITY AS l(value, no)
             LEFT JOIN LATERAL (SELECT (v ->> 'share')::numeric AS share FROM jsonb_array_elements(load -> 'events') AS v WHERE v ->> 'event' = 'LWLock:' || (l.value ->> 'tranche')) AS e ON true
             WHERE (l.value ->> 'wait_s')::numeric >= least_s AND (coalesce((load ->> 'total_s')::numeric, 0) = 0 OR e.share >= least_share)
             ORDER BY l.no LIMIT 2 LOOP
        story := story || jsonb_build_object('kind', 'lwlock', 'at', since, 'facts', format('$.lwlocks[%s]', r.no), 'sentence',
            format('Sessions waited %s for LWLock %s (%s %% of the time waited for LWLocks%s), %s %% of it in mode %s, up to %s at a time%s.%s',
                   lock_history.say_seconds((r.tranche ->> 'wait_s')::numeric), r.tranche ->> 'tranche', round(100 * (r.tranche ->> 'share')::numeric),
                   coalesce(format(', %s %% of all load', round(100 * r.load_share)), ''), round(100 * (r.tranche ->> 'mode_share')::numeric), r.tranche ->> 'mode', r.tranche ->> 'waiters_max',
                   CASE WHEN r.lock ->> 'instance' <> 'only one' AND (r.lock ->> 'share')::numeric >= 0.5
                        THEN format(', %s %% of it for %s', round(100 * (r.lock ->> 'share')::numeric), r.lock ->> 'instance') ELSE '' END,
                   CASE WHEN (r.tranche ->> 'held_exclusive')::numeric < 0.1 AND (r.tranche ->> 'shared_holders_avg')::numeric < 0.1
                        THEN ' The lock was free most of that time: they had been woken, and waited for a processor.'
                        WHEN r.tranche ? 'held_exclusive' THEN format(' What they waited for was held exclusively %s %% of that time.', round(100 * (r.tranche ->> 'held_exclusive')::numeric))
                        ELSE '' END));
    END LOOP;
    FOR r IN SELECT e.value AS page, e.no - 1 AS no FROM jsonb_array_elements(facts -> 'pages') WITH ORDINALITY AS e(value, no)
             WHERE e.value ? 'object' AND (e.value ->> 'wait_s')::numeric >= least_s AND coalesce((e.value ->> 'load_share')::numeric, 1) >= least_share LOOP
        story := story || jsonb_build_object('kind', 'page', 'at', since, 'facts', format('$.pages[%s]', r.no), 'sentence',
            format('%s %% of the waits for pages (%s) were %s on %s%s, up to %s at a time.', round(100 * (r.page ->> 'share')::numeric),
                   lock_history.say_seconds((r.page ->> 'wait_s')::numeric), CASE r.page ->> 'mode' WHEN 'pin' THEN 'to be the only one' ELSE 'in mode ' || (r.page ->> 'mode') END,
                   CASE WHEN r.page ->> 'object' LIKE '% of %' THEN 'the ' ELSE '' END || lock_history.say_text(r.page ->> 'object'),
                   coalesce(' (' || nullif(concat_ws(', ', 'fork ' || nullif(r.page ->> 'fork', 'main'),
                       CASE WHEN r.page ? 'block' THEN 'page ' || (r.page ->> 'block') WHEN (r.page ->> 'blocks')::bigint > 1 THEN (r.page ->> 'blocks') || ' different pages' END), '') || ')', ''),
                   r.page ->> 'waiters_max'));
    END LOOP;

    -- who reads this history runs out of them, too
    IF (fast_path ->> 'seconds_full')::bigint > 0 AND coalesce((fast_path ->> 'lockmanager_share')::numeric, 1) >= 0.01 THEN
        story := story || jsonb_build_object('kind', 'fast_path', 'at', fast_path -> 'first_full', 'facts', '$.fast_path', 'sentence',
            format('Sessions ran out of fast-path slots (%s each) in %s between %s and %s, up to %s at once%s; waiting for LWLock LockManager was %s of the load meanwhile.',
                   fast_path ->> 'slots', lock_history.say_count((fast_path ->> 'seconds_full')::bigint, 'second'),
                   lock_history.say_time((fast_path ->> 'first_full')::timestamptz, day), lock_history.say_time((fast_path ->> 'last_full')::timestamptz, day), fast_path ->> 'sessions_full',
                   CASE WHEN fast_path ? 'spilled' THEN format(', with up to %s locks of one that found none', fast_path ->> 'spilled') ELSE '' END
                   || CASE WHEN fast_path ? 'query' THEN format(', most by %s', lock_history.say_quoted(lock_history.say_text(fast_path ->> 'query'))) ELSE '' END,
                   coalesce(round(100 * (fast_path ->> 'lockmanager_share')::numeric) || ' %', 'an unknown part')));
    END IF;

    FOR r IN SELECT e.value AS a, e.no - 1 AS no FROM jsonb_array_elements(facts #> '{anomalies,first}') WITH ORDINALITY AS e(value, no) LOOP
        story := story || jsonb_build_object('kind', 'anomaly', 'at', r.a -> 'started', 'facts', format('$.anomalies.first[%s]', r.no), 'sentence',
            format('Unusual load from %s %s: %s sessions %s, where %s are usual and up to %s not unusual%s%s.',
                   lock_history.say_time((r.a ->> 'started')::timestamptz, day), coalesce('to ' || lock_history.say_time((r.a ->> 'ended')::timestamptz, day), 'on'),
                   r.a ->> 'observed', CASE WHEN r.a ? 'wait_event_type' THEN 'waited for ' || (r.a ->> 'wait_event_type') ELSE 'were not on CPU' END,
                   r.a ->> 'expected', r.a ->> 'band', coalesce('; most for ' || (r.a ->> 'leading_event'), ''), coalesce(', behind pid ' || (r.a ->> 'root_pid'), '')));
    END LOOP;
    n := (facts #>> '{anomalies,anomalies}')::bigint - jsonb_array_length(facts #> '{anomalies,first}');
    IF n > 0 THEN
        story := story || jsonb_build_object('kind', 'anomaly', 'at', since, 'facts', '$.anomalies', 'sentence', format('And %s of unusual load.', lock_history.say_count(n, 'more time')));
    END IF;

    -- Nobody waited for a lock: was that all?
    SELECT e.no - 1, e.value ->> 'sentence' INTO n, s
    FROM jsonb_array_elements(story) WITH ORDINALITY AS e(value, no) WHERE e.value ->> 'kind' = 'headline' AND e.value ->> 'facts' = '$';
    IF FOUND THEN
        IF EXISTS (SELECT FROM jsonb_array_elements(story) AS e WHERE e ->> 'kind' NOT IN ('headline', 'missed', 'load')) THEN
            s := s || '.';
        ELSE
            s := s || ', and there was no deadlock, no unusual load, no contention for LWLocks or pages, and no harm from a lack of fast-path slots'
                   || CASE WHEN unseen_s < 1 OR watched ? 'complete_until' AND NOT EXISTS (SELECT FROM jsonb_array_elements(story) AS e WHERE e ->> 'kind' = 'missed')
                           THEN '; all of it was watched' ELSE ', in what was seen' END
                   || CASE WHEN (watched ->> 'period_ms')::numeric > 0 THEN format(', every %s ms', round((watched ->> 'period_ms')::numeric, 1)::double precision) ELSE '' END || '.';
        END IF;
        story := jsonb_set(story, ARRAY[n::text, 'sentence'], to_jsonb(s));
    END IF;
    RETURN story;
END
$$;
COMMENT ON FUNCTION lock_history.explain_story(jsonb) IS 'internal: the facts of explain_json() as sentences, in the order in which they are told';
REVOKE ALL ON FUNCTION lock_history.explain_story(jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_story(jsonb) TO pg_monitor;

CREATE FUNCTION lock_history.explain_json(since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, node text DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    nodes       text[] := ARRAY(SELECT DISTINCT r.node FROM lock_history.recorded AS r WHERE r.incident IS NOT DISTINCT FROM lock_history.incident() ORDER BY r.node);
    wanted_node text := coalesce(explain_json.node, lock_history.local_node(), CASE WHEN cardinality(nodes) = 1 THEN nodes[1] END);
    kept        lock_history.recorded := (SELECT r FROM lock_history.recorded AS r WHERE r.incident = lock_history.incident());
    began       timestamptz;
    ended       timestamptz := least(explain_json.until, kept.until, statement_timestamp());
    facts       jsonb;
    full_       jsonb;
    part        text;
    load        jsonb;
BEGIN
    PERFORM lock_history.warn_if_nothing_is_here();
    -- Of a kept incident all of it, unless something else is asked for.
    began := greatest(coalesce(explain_json.since, CASE WHEN kept.node_id IS NOT NULL THEN kept.since ELSE ended - interval '15 min' END), kept.since);
    IF began >= ended OR NOT isfinite(began) OR NOT isfinite(ended) THEN
        RAISE EXCEPTION 'the range from % to % is empty or has no end', coalesce(explain_json.since, began), coalesce(explain_json.until, ended)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = CASE WHEN kept.node_id IS NOT NULL THEN format('Incident "%s" was kept from %s to %s.', kept.incident, kept.since, kept.until)
                              ELSE 'since must be before until and before now; -infinity and infinity are not taken.' END;
    END IF;
    IF wanted_node IS NULL OR wanted_node <> ALL (nodes) THEN
        RAISE EXCEPTION '%', coalesce(format('server "%s" is not recorded here', wanted_node), 'this server is not recorded here')
            USING ERRCODE = 'undefined_object',
                  HINT = CASE WHEN cardinality(nodes) > 0 THEN 'Give one of these as node: ' || lock_history.say_list(ARRAY(SELECT format('"%s"', n) FROM unnest(nodes) AS n), 10) || '.'
                              ELSE 'lock_history.status() says whether the worker runs.' END;
    END IF;

    facts := jsonb_build_object('node', wanted_node, 'incident', kept.incident, 'since', began, 'until', ended,
        'watched', lock_history.explain_part('watched', wanted_node, began, ended),
        'waits', lock_history.explain_part('waits', wanted_node, began, ended),
        'short', lock_history.explain_part('short', wanted_node, began, ended),
        'deadlocks', lock_history.explain_part('deadlocks', wanted_node, began, ended),
        'load', lock_history.explain_part('load', wanted_node, began, ended),
        'fast_path', lock_history.explain_part('fast_path', wanted_node, began, ended),
        'anomalies', lock_history.explain_part('anomalies', wanted_node, began, ended));
    -- What would not be told is not read: by second that is the most there is.
    FOREACH part IN ARRAY '{lwlocks,pages}'::text[] LOOP
        facts := facts || jsonb_build_object(part, CASE
            WHEN (facts #>> '{load,total_s}')::numeric > 0 AND NOT EXISTS (
                SELECT FROM jsonb_array_elements(facts #> '{load,events}') AS e
                WHERE e ->> 'event' LIKE ANY (CASE part WHEN 'lwlocks' THEN '{LWLock:%}' ELSE '{LWLock:BufferContent,Buffer:%,BufferPin:%}' END::text[])
                  AND (e ->> 'share')::numeric >= 0.05)
            THEN '[]' ELSE lock_history.explain_part(part, wanted_node, began, ended) END);
    END LOOP;
    -- Whether a lack of slots hurt is asked of the seconds in which there was one.
    full_ := facts -> 'fast_path';
    IF (full_ ->> 'seconds_full')::bigint > 0 THEN
        load := CASE WHEN (full_ ->> 'last_full')::timestamptz - (full_ ->> 'first_full')::timestamptz >= 0.9 * (ended - began) THEN facts -> 'load'
                     ELSE lock_history.explain_part('load', wanted_node, (full_ ->> 'first_full')::timestamptz, (full_ ->> 'last_full')::timestamptz + interval '1 s') END;
        IF (load ->> 'total_s')::numeric > 0 THEN
            facts := jsonb_set(facts, '{fast_path,lockmanager_share}', to_jsonb(coalesce(
                (SELECT (e ->> 'share')::numeric FROM jsonb_array_elements(load -> 'events') AS e WHERE e ->> 'event' = 'LWLock:LockManager'), 0)));
        END IF;
    END IF;
    -- pages as part of the load
    IF (facts #>> '{load,total_s}')::numeric > 0 THEN
        facts := jsonb_set(facts, '{pages}', (SELECT coalesce(jsonb_agg(p.value || jsonb_build_object('load_share',
                     round((p.value ->> 'wait_s')::numeric / (facts #>> '{load,total_s}')::numeric, 4)) ORDER BY p.no), '[]')
                 FROM jsonb_array_elements(facts -> 'pages') WITH ORDINALITY AS p(value, no)));
    END IF;
    facts := jsonb_strip_nulls(facts);
    RETURN facts || jsonb_build_object('story', lock_history.explain_story(facts), 'advice', lock_history.explain_advice(facts));
END
$$;
COMMENT ON FUNCTION lock_history.explain_json(timestamptz, timestamptz, text) IS
    'What explain() tells, as facts with numbers (times in seconds end in _s, shares are from 0 to 1), with the sentences under story and advice';
REVOKE ALL ON FUNCTION lock_history.explain_json(timestamptz, timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_json(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION lock_history.explain(since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, node text DEFAULT NULL)
RETURNS TABLE (no integer, kind text, sentence text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.no::integer, s.kind, (SELECT string_agg(f.line, E'\n' ORDER BY f.no) FROM lock_history.fold(s.sentence, 100) WITH ORDINALITY AS f(line, no))
    FROM (SELECT lock_history.explain_json(explain.since, explain.until, explain.node) AS json) AS e
    CROSS JOIN LATERAL (
        SELECT row_number() OVER (ORDER BY a.part, a.no) AS no, a.kind, a.sentence
        FROM (SELECT 1 AS part, t.no, t.value ->> 'kind' AS kind, t.value ->> 'sentence' AS sentence
              FROM jsonb_array_elements(e.json -> 'story') WITH ORDINALITY AS t(value, no)
              UNION ALL
              SELECT 2, t.no, 'advice', t.value ->> 'sentence'
              FROM jsonb_array_elements(e.json -> 'advice') WITH ORDINALITY AS t(value, no)) AS a) AS s
    ORDER BY s.no
$$;
COMMENT ON FUNCTION lock_history.explain(timestamptz, timestamptz, text) IS
    'The story of a range of time in sentences, and what to do about it where the history has evidence for that (since: default 15 minutes before until; until: default now; node: default this server)';
REVOKE ALL ON FUNCTION lock_history.explain(timestamptz, timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain(timestamptz, timestamptz, text) TO pg_monitor;

-- The same by times as a person says them; see blocking_tree_at().
CREATE FUNCTION lock_history.explain(since text, until text DEFAULT NULL, node text DEFAULT NULL)
RETURNS TABLE (no integer, kind text, sentence text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT e.no, e.kind, e.sentence
    FROM (SELECT CASE WHEN explain.until IS NULL THEN b.latest ELSE lock_history.moment(explain.until, b.latest) END AS at, explain.until IS NULL AS is_open
          FROM (SELECT coalesce((SELECT r.until FROM lock_history.recorded AS r WHERE r.incident = lock_history.incident()), statement_timestamp()) AS latest) AS b) AS u
    CROSS JOIN LATERAL lock_history.explain(lock_history.moment(explain.since, u.at), CASE WHEN NOT u.is_open THEN u.at END, explain.node) AS e
    ORDER BY e.no
$$;
COMMENT ON FUNCTION lock_history.explain(text, text, text) IS
    'The same by written times: until as in blocking_tree_at(), since a bare time of day is the latest one not after until';
REVOKE ALL ON FUNCTION lock_history.explain(text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain(text, text, text) TO pg_monitor;

CREATE FUNCTION lock_history.why(lately interval DEFAULT '15 min', node text DEFAULT NULL)
RETURNS TABLE (no integer, kind text, sentence text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT e.no, e.kind, e.sentence
    FROM lock_history.explain(coalesce((SELECT r.until FROM lock_history.recorded AS r WHERE r.incident = lock_history.incident()), statement_timestamp()) - why.lately, NULL, why.node) AS e
    ORDER BY e.no
$$;
COMMENT ON FUNCTION lock_history.why(interval, text) IS
    'Why were we waiting? The last 15 minutes, or as long as given, as explain() tells them';
REVOKE ALL ON FUNCTION lock_history.why(interval, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.why(interval, text) TO pg_monitor;
