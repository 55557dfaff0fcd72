-- The ring: a few tables, each cut into 8 segments that are filled one after
-- the other and truncated on coming round.  No DELETE, no UPDATE, no DDL while
-- running; the writer copies into the leaves.
--
-- seg      segment of the ring (0..7), or 8 for what was kept out of it; a row
--          and the actors it names are always in the same segment
-- node_id  the server that was watched; in segment 8 the kept incident, negative
-- run      life of the worker that saw it: its start, us since 2000-01-01

CREATE SCHEMA lock_history;
COMMENT ON SCHEMA lock_history IS 'History of lock waits (extension pg_lock_history): read the views, begin with waits';
REVOKE ALL ON SCHEMA lock_history FROM PUBLIC;
GRANT USAGE ON SCHEMA lock_history TO pg_monitor;

CREATE TABLE lock_history.node (
    node_id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node               text NOT NULL UNIQUE,
    system_identifier  bigint NOT NULL,
    server_version_num integer NOT NULL,
    first_seen         timestamptz NOT NULL,
    -- Its clock less that of the history, right to clock_error, as measured by its
    -- writer when the clock of the history showed clock_at; null: never.
    clock_offset       interval,
    clock_error        interval,
    clock_at           timestamptz
);

-- One row for each life of the worker; updated with each batch.
CREATE TABLE lock_history.run (
    node_id      integer NOT NULL REFERENCES lock_history.node,
    run          bigint NOT NULL,
    started_at   timestamptz NOT NULL,
    heartbeat    timestamptz NOT NULL,   -- the history is complete up to then
    batch        bigint NOT NULL,        -- number of the last batch that is in the tables
    flush_period interval NOT NULL,
    oldest_open  timestamptz NOT NULL DEFAULT '-infinity', -- no wait that is open as of the heartbeat began earlier
    lost         tstzmultirange NOT NULL DEFAULT '{}', -- facts of those times are not there: the end of a wait that was
                                         -- open may be among them, unless it was written again since
    heartbeat_every interval NOT NULL DEFAULT '15 min',    -- at the least, when there is nothing else to write
    written_at   timestamptz,            -- last batch, by the clock of the history; null: by that of the node itself
    last_seg     smallint,               -- where that batch went
    rows         bigint NOT NULL DEFAULT 0, -- written so far
    PRIMARY KEY (node_id, run)
) WITH (fillfactor = 50);

CREATE TABLE lock_history.ring (
    seg       smallint PRIMARY KEY CHECK (seg BETWEEN 0 AND 7),
    round     bigint NOT NULL DEFAULT 0, -- raised when the segment is opened, and by reset()
    opened_at timestamptz,               -- first row of this round may be from then
    closed_at timestamptz,               -- null: open, or never opened
    -- Of a closed one: nothing in it is later, by the clock of whichever node wrote
    -- it.  Nodes may be ahead of the one that closed it; null: nothing is after closed_at.
    holds_until timestamptz,
    is_empty  boolean NOT NULL DEFAULT true,
    -- Of a closed segment: its seconds before that are in minutes, and whether
    -- all are (or had to be given up); see 48_minutes.sql.
    rolled_to timestamptz,
    is_rolled boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
INSERT INTO lock_history.ring (seg) SELECT g.seg FROM pg_catalog.generate_series(0, 7) AS g(seg);

-- An incident that keep() copied out of the ring.  Its rows are in segment 8
-- under node_id = -kept_id, and stay until forget().
CREATE TABLE lock_history.kept_incident (
    name              text PRIMARY KEY,
    kept_id           integer NOT NULL CHECK (kept_id > 0), -- keep() gives them out, one at a time
    node              text NOT NULL,
    system_identifier bigint NOT NULL,
    since             timestamptz NOT NULL,
    until             timestamptz NOT NULL,
    complete_until    timestamptz NOT NULL, -- load is there up to then: what came later was not yet written
    kept_at           timestamptz NOT NULL,
    kept_by           text NOT NULL,
    waits             bigint NOT NULL,
    short_waits       bigint NOT NULL,
    size_bytes        bigint NOT NULL
);

-- What the worker has learnt about the usual load, for its next life; gosrc/anomaly
-- alone can read it.  Written when an anomaly starts or ends, and every few minutes
-- together with something else.
CREATE TABLE lock_history.detector (
    node_id    integer PRIMARY KEY REFERENCES lock_history.node,
    written_at timestamptz NOT NULL,
    state      bytea NOT NULL
);

-- Who: one process as it was seen at one moment.  actor_id is a hash of all it says.
CREATE TABLE lock_history.actor (
    seg              smallint NOT NULL,
    node_id          integer NOT NULL,
    actor_id         bigint NOT NULL,
    proc_key         bigint NOT NULL,    -- the process, whatever it is doing: hash of pid and backend start, or of a prepared xid
    seen_at          timestamptz NOT NULL,
    pid              integer NOT NULL,   -- 0 for a prepared transaction
    leader_pid       integer,
    gid              text,               -- prepared transactions only
    backend_start    timestamptz,
    backend_type     text,
    datid            oid,
    datname          text,
    usesysid         oid,
    usename          text,
    application_name text,
    client_addr      inet,
    state            text,
    state_change     timestamptz,
    xact_start       timestamptz,
    query_start      timestamptz,
    query_id         bigint,
    query            text,
    members          integer[],          -- other processes of its lock group that took part, leaders only
    -- Of a blocker: what samples saw it run in its transaction, oldest first.  The
    -- arrays run in parallel; when and how often as of the moment it came to be
    -- known or changed last.
    stmt_first_seen      timestamptz[],
    stmt_last_seen       timestamptz[],
    stmt_samples         bigint[],
    stmt_state           text[],         -- of the session when last seen
    stmt_wait_event_type text[],
    stmt_wait_event      text[],
    stmt_query_start     timestamptz[],
    stmt_query_id        bigint[],
    stmt_query           text[],
    stmt_left_out        bigint          -- statements seen that are not among them
) PARTITION BY LIST (seg);

-- A wait that has ended (in segment 8 also one that had not when it was kept:
-- it does not go on there).  The edge_ arrays run in parallel: one blocker of the
-- wait, from when to when (edge_to null: to the end).
CREATE TABLE lock_history.episode (
    seg           smallint NOT NULL,
    node_id       integer NOT NULL,
    run           bigint NOT NULL,
    wait_id       bigint NOT NULL,
    proc_key      bigint NOT NULL,
    actor_id      bigint NOT NULL,       -- the waiter
    written_at    timestamptz NOT NULL,
    wait_start    timestamptz NOT NULL,
    wait_end      timestamptz,
    granted       boolean,
    outcome       text,
    samples       bigint NOT NULL,
    locktype      text NOT NULL,
    mode          text NOT NULL,
    mode_number   smallint NOT NULL,
    object        text,                  -- readable, as named when seen
    database      oid,
    datname       text,                  -- of the lock's database
    relation      oid,
    page          integer,
    tuple         smallint,
    virtualxid    text,
    transactionid xid,
    classid       oid,
    objid         oid,
    objsubid      smallint,
    lock_key      bigint NOT NULL,       -- the lock: hash of its tag
    queue_key     bigint NOT NULL,       -- ascending in queue order among the waiters of one lock
    in_cycle      boolean NOT NULL,
    hard_count    integer NOT NULL,      -- the most at one moment
    soft_count    integer NOT NULL,
    soft_pids     integer[] NOT NULL,    -- nearest first, at most 20
    edge_kind     smallint[] NOT NULL,   -- 1 hard, 2 nearest soft, 3 root
    edge_proc     bigint[] NOT NULL,     -- proc_key of the blocker
    edge_pid      integer[] NOT NULL,    -- its pid, 0 for a prepared transaction
    edge_actor    bigint[] NOT NULL,
    edge_modes    integer[] NOT NULL,    -- mask of modes held or asked for
    edge_from     timestamptz[] NOT NULL,
    edge_to       timestamptz[] NOT NULL
) PARTITION BY LIST (seg);

-- A wait that has not ended, or was not seen to end; written again when its
-- blockers change and at each change of segment.  The last one counts.
CREATE TABLE lock_history.open (LIKE lock_history.episode) PARTITION BY LIST (seg);

-- Waits too short, or too many, to be kept alone: sums by second.
CREATE TABLE lock_history.short_wait (
    seg                smallint NOT NULL,
    node_id            integer NOT NULL,
    at                 timestamptz NOT NULL,
    datname            text,
    locktype           text NOT NULL,    -- 'other': keys over the cap
    database           oid,
    relation           oid,
    object             text,
    mode               text,
    query_id           bigint,
    text_hash          bigint,           -- tells statements apart where there is no query id
    root_pid           integer,
    root_backend_start timestamptz,
    waits              bigint NOT NULL,
    total_ms           double precision NOT NULL,
    max_ms             double precision NOT NULL,
    failed             bigint NOT NULL DEFAULT 0 -- of waits, known not to have been granted
) PARTITION BY LIST (seg);

-- A member of a deadlock.
CREATE TABLE lock_history.deadlock (
    seg           smallint NOT NULL,
    node_id       integer NOT NULL,
    run           bigint NOT NULL,
    at            timestamptz NOT NULL,
    deadlock_id   bigint NOT NULL,
    member        smallint NOT NULL,     -- place in the circle, from 1: each waits for the next
    pid           integer NOT NULL,
    is_victim     boolean NOT NULL,
    waits_for     integer,
    wait_id       bigint,
    actor_id      bigint NOT NULL,
    locktype      text,
    object        text,
    mode          text,
    held_mode     text,
    held_object   text,
    database      oid,
    relation      oid,
    transactionid xid
) PARTITION BY LIST (seg);

-- On a standby: a statement that the replay has cancelled, or a session that it
-- has ended.
CREATE TABLE lock_history.conflict (
    seg           smallint NOT NULL,
    node_id       integer NOT NULL,
    run           bigint NOT NULL,
    at            timestamptz NOT NULL,
    conflict      text NOT NULL,         -- what stood in the way
    ended_session boolean NOT NULL,
    pid           integer NOT NULL,
    actor_id      bigint NOT NULL
) PARTITION BY LIST (seg);

-- What seconds are told apart by, under small numbers: the rows of a segment
-- need no other.  Numbers fit two bytes, the second half of them is negative.
-- Null: does not apply, or is not known.
CREATE TABLE lock_history.dim (
    seg             smallint NOT NULL,
    node_id         integer NOT NULL,
    dim_id          integer NOT NULL,
    kind            smallint NOT NULL,   -- 1 load, 2 LWLock, 3 page, 4 statement, 5 text of a statement (dim_id 0), 6 wait event, 7 database
    wait_event_type text,                -- CPU: it did not wait
    wait_event      text,
    lwlock_mode     text,
    backend_type    text,
    datid           oid,
    datname         text,
    usesysid        oid,
    usename         text,
    query_id        bigint,
    instance        text,                -- which of the locks of a tranche
    relation        oid,
    object          text,                -- its name
    fork            text,
    object_kind     text,                -- of the relation
    query           text,                -- kind 5, as far as query_text and query_length keep it
    seen_at         timestamptz          -- kind 5: when somebody was seen running it
) PARTITION BY LIST (seg);

-- What was sampled in one second of the clock; none where nobody was active and
-- no session came or went.  dims, load_ms and carry run in parallel.  Two bytes
-- for each of the first two are what keeps a day of seconds small: a row of 80
-- takes 452 bytes, where integers would take 764.
CREATE TABLE lock_history.second (
    seg                 smallint NOT NULL,
    node_id             integer NOT NULL,
    run                 bigint NOT NULL,
    at                  timestamptz NOT NULL,
    sampled_ms          integer NOT NULL, -- real time that the samples stand for
    clients             real NOT NULL,    -- averages: client backends,
    active              real NOT NULL,    -- of these, active
    idle_in_transaction real NOT NULL,
    waiting             real NOT NULL,    -- processes that wait for a heavyweight lock
    dims                smallint[] NOT NULL,
    load_ms             smallint[] NOT NULL, -- session time in ms,
    carry               smallint[]        -- and 32768 times this; null: there is none over that
) PARTITION BY LIST (seg);

-- Seconds of a closed segment added up by minute: a ring of its own, which turns
-- by rollup_retention.  A minute that two segments share has two rows; one in
-- which nobody was active has none.  source tells whose seconds they are
-- (round * 8 + segment): as long as these are there, minutes do not count.
CREATE TABLE lock_history.minute (
    seg                 smallint NOT NULL, -- of minute_ring
    node_id             integer NOT NULL,
    source              bigint NOT NULL,
    at                  timestamptz NOT NULL,
    -- The part of the minute that it stands for: from the begin of its segment, to
    -- its end.  Not what another segment tells, nor before the server was watched.
    began               timestamptz NOT NULL,
    ended               timestamptz NOT NULL,
    sampled_ms          integer NOT NULL,
    clients             real NOT NULL,    -- averages, as in second
    active              real NOT NULL,
    idle_in_transaction real NOT NULL,
    waiting             real NOT NULL,
    dims                smallint[] NOT NULL,
    load_ms             integer[] NOT NULL
) PARTITION BY LIST (seg);

-- Their dictionary: kinds 1 and 5 of dim.  dim_key is a hash of all that a row of
-- kind 1 tells apart.
CREATE TABLE lock_history.minute_dim (
    LIKE lock_history.dim,
    dim_key bigint
) PARTITION BY LIST (seg);

-- No index: four rows, and a lock for whoever reads load.
CREATE TABLE lock_history.minute_ring (
    seg       smallint NOT NULL CHECK (seg BETWEEN 0 AND 3),
    round     bigint NOT NULL DEFAULT 0,
    opened_at timestamptz,
    closed_at timestamptz,
    is_empty  boolean NOT NULL DEFAULT true
) WITH (fillfactor = 50);
INSERT INTO lock_history.minute_ring (seg) SELECT g.seg FROM pg_catalog.generate_series(0, 3) AS g(seg);

-- Gaps of rolled-up segments.  No part of a ring: there are few, and each reader
-- of minutes would lock four tables for them.
CREATE TABLE lock_history.minute_gap (
    node_id integer NOT NULL,
    source  bigint NOT NULL,
    began   timestamptz NOT NULL,
    ended   timestamptz NOT NULL
);

-- Use of the fast path in one second, by database; none where every process had
-- over half of its slots free.  The arrays run in parallel.
CREATE TABLE lock_history.fastpath (
    seg                smallint NOT NULL,
    node_id            integer NOT NULL,
    run                bigint NOT NULL,
    at                 timestamptz NOT NULL,
    server_version_num integer NOT NULL,
    max_locks          integer NOT NULL,   -- max_locks_per_transaction
    slots              integer NOT NULL,   -- of each process
    dims               integer[] NOT NULL,
    sessions           integer[] NOT NULL, -- processes seen with relation locks
    slots_max          integer[] NOT NULL, -- the most slots in use of one
    sessions_full      integer[] NOT NULL, -- of these, seen with no slot left
    spilled_max        integer[] NOT NULL  -- the most locks of one without a slot; -1: not looked for
) PARTITION BY LIST (seg);

-- The statements with most relation locks, by minute (several rows when flush()
-- was called): those seen with half of the slots in use, or more.
CREATE TABLE lock_history.hungry (
    seg                smallint NOT NULL,
    node_id            integer NOT NULL,
    run                bigint NOT NULL,
    at                 timestamptz NOT NULL, -- begin of the first second
    last_at            timestamptz NOT NULL, -- and of the last
    server_version_num integer NOT NULL,
    max_locks          integer NOT NULL,
    slots              integer NOT NULL,
    dims               integer[] NOT NULL,
    locks_max          integer[] NOT NULL,   -- the most locks of one process, with and without slots
    slots_max          integer[] NOT NULL,
    spilled_max        integer[] NOT NULL,   -- -1: not looked for
    looks              integer[] NOT NULL,   -- how often a process was seen so
    looks_full         integer[] NOT NULL,   -- of these, with no slot left
    sessions           integer[] NOT NULL    -- the most processes in one second
) PARTITION BY LIST (seg);

-- A time in which more sessions waited than is usual; written when it is detected,
-- again while it lasts (its peak, another life of the worker, a new segment), and
-- when it has ended.  A row with an end counts, else the last one.
CREATE TABLE lock_history.anomaly (
    seg             smallint NOT NULL,
    node_id         integer NOT NULL,
    run             bigint NOT NULL,
    written_at      timestamptz NOT NULL,
    started_at      timestamptz NOT NULL, -- names it, together with node_id and wait_event_type
    detected_at     timestamptz NOT NULL,
    ended_at        timestamptz,
    ended_as        text,
    wait_event_type text,                 -- null: all that were not on CPU
    observed        double precision NOT NULL,
    expected        double precision NOT NULL,
    band            double precision NOT NULL,
    leading_event   text,
    root_pid        integer
) PARTITION BY LIST (seg);

-- LWLocks that were waited for in one second; none where nobody waited.  All
-- arrays run in parallel.
CREATE TABLE lock_history.lwlock (
    seg            smallint NOT NULL,
    node_id        integer NOT NULL,
    run            bigint NOT NULL,
    at             timestamptz NOT NULL,
    sampled_ms     integer NOT NULL,     -- real time that the samples stand for
    dims           integer[] NOT NULL,
    wait_ms        integer[] NOT NULL,   -- session time
    waits          integer[] NOT NULL,   -- that ended
    waiters_max    smallint[] NOT NULL,  -- at one sample
    held_exclusive real[] NOT NULL,      -- share of the time with an exclusive holder; null: not known
    shared_holders real[] NOT NULL       -- average; null: not known
) PARTITION BY LIST (seg);

-- Pages that were waited for in one second; none where nobody waited.  All
-- arrays run in parallel; without a relation in the dictionary: not found.
CREATE TABLE lock_history.page (
    seg            smallint NOT NULL,
    node_id        integer NOT NULL,
    run            bigint NOT NULL,
    at             timestamptz NOT NULL,
    sampled_ms     integer NOT NULL,
    dims           integer[] NOT NULL,
    blocks         bigint[] NOT NULL,    -- null: several, or not found
    wait_ms        integer[] NOT NULL,   -- as in lwlock
    waits          integer[] NOT NULL,
    waiters_max    smallint[] NOT NULL,
    held_exclusive real[] NOT NULL,
    shared_holders real[] NOT NULL
) PARTITION BY LIST (seg);

-- How long the waits were that ended in one minute (several rows of a minute add
-- up); none where none did.  All arrays run in parallel.
CREATE TABLE lock_history.wait_length (
    seg      smallint NOT NULL,
    node_id  integer NOT NULL,
    run      bigint NOT NULL,
    at       timestamptz NOT NULL,       -- begin of the minute
    dims     integer[] NOT NULL,
    buckets  smallint[] NOT NULL,        -- 0: below 1 ms; n: from 2^(n-1) ms on, below 2^n ms
    waits    integer[] NOT NULL,
    total_ms real[] NOT NULL
) PARTITION BY LIST (seg);

-- Times about which the history is silent.
CREATE TABLE lock_history.gap (
    seg     smallint NOT NULL,
    node_id integer NOT NULL,
    run     bigint NOT NULL,
    began   timestamptz NOT NULL,
    ended   timestamptz NOT NULL,
    reason  text NOT NULL,
    lost    bigint NOT NULL,
    detail  text,                        -- reason stopped: null when the life before ended in order
    part    text                         -- waits, load; null: all that is recorded
) PARTITION BY LIST (seg);

-- What watching cost, by minute (several rows when the worker was restarted).
CREATE TABLE lock_history.health_minute (
    seg              smallint NOT NULL,
    node_id          integer NOT NULL,
    run              bigint NOT NULL,
    minute           timestamptz NOT NULL,
    ticks_due        bigint NOT NULL,
    ticks_done       bigint NOT NULL,
    ticks_late       bigint NOT NULL,
    ticks_missed     bigint NOT NULL,
    period_ms        double precision NOT NULL,
    probe_us_p50     double precision,
    probe_us_p99     double precision,
    probe_us_max     double precision,
    hold_us_p99      double precision,
    hold_us_max      double precision,
    partitions_taken bigint NOT NULL,
    partitions_busy  bigint NOT NULL,
    cpu_ms           double precision NOT NULL,
    rows_written     bigint NOT NULL,
    rows_merged      bigint NOT NULL,
    rows_dropped     bigint NOT NULL,
    errors           bigint NOT NULL
) PARTITION BY LIST (seg);

-- autovacuum would only find what TRUNCATE is about to remove; the writer
-- analyzes a leaf when its segment closes.
DO $do$
DECLARE
    parent text;
    s      integer;
BEGIN
    FOREACH parent IN ARRAY ARRAY['actor', 'episode', 'open', 'short_wait', 'deadlock', 'conflict', 'anomaly', 'dim', 'second', 'lwlock', 'page', 'wait_length', 'fastpath', 'hungry', 'gap', 'health_minute'] LOOP
        FOR s IN 0..7 LOOP
            EXECUTE pg_catalog.format(
                'CREATE TABLE lock_history.%I PARTITION OF lock_history.%I FOR VALUES IN (%s)
                 WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off)',
                parent || '_' || s, parent, s);
        END LOOP;
        -- Kept incidents have rows deleted and go into dumps of the database.
        IF parent <> 'open' THEN
            EXECUTE pg_catalog.format('CREATE TABLE lock_history.%I PARTITION OF lock_history.%I FOR VALUES IN (8)',
                                      'kept_' || parent, parent);
            PERFORM pg_catalog.pg_extension_config_dump('lock_history.kept_' || parent, '');
        END IF;
    END LOOP;
    PERFORM pg_catalog.pg_extension_config_dump('lock_history.kept_incident', '');
    FOREACH parent IN ARRAY ARRAY['minute', 'minute_dim'] LOOP
        FOR s IN 0..3 LOOP
            EXECUTE pg_catalog.format(
                'CREATE TABLE lock_history.%I PARTITION OF lock_history.%I FOR VALUES IN (%s)
                 WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off)',
                parent || '_' || s, parent, s);
        END LOOP;
    END LOOP;
END
$do$;

-- Every reader of a view locks each index of each leaf: keep them few (at most
-- 64 relation locks a read).
CREATE INDEX ON lock_history.actor (actor_id);
CREATE INDEX ON lock_history.episode (wait_start, wait_end, wait_id);   -- the last two are looked up in it without the table
CREATE INDEX ON lock_history.short_wait (at);
CREATE INDEX ON lock_history.fastpath (at);
CREATE INDEX ON lock_history.lwlock (at);
CREATE INDEX ON lock_history.page (at);
CREATE INDEX ON lock_history.wait_length (at);
-- of the ring only: readers of load are at the limit
DO $do$
BEGIN
    FOR s IN 0..7 LOOP
        EXECUTE pg_catalog.format('CREATE INDEX ON lock_history.%I (at)', 'second_' || s);
    END LOOP;
END
$do$;
CREATE INDEX ON lock_history.minute (at);

-- Columns are described where they are defined, above: tables are read by
-- the views only.
COMMENT ON TABLE lock_history.node IS 'internal: the watched servers';
COMMENT ON TABLE lock_history.run IS 'internal: lives of the worker, with heartbeat';
COMMENT ON TABLE lock_history.ring IS 'internal: state of the 8 segments';
COMMENT ON TABLE lock_history.kept_incident IS 'internal: incidents that keep() copied out of the ring';
COMMENT ON TABLE lock_history.actor IS 'internal: processes as they were seen, texts in full';
COMMENT ON TABLE lock_history.episode IS 'internal: waits that have ended';
COMMENT ON TABLE lock_history.open IS 'internal: waits not known to have ended';
COMMENT ON TABLE lock_history.short_wait IS 'internal: short waits by second';
COMMENT ON TABLE lock_history.deadlock IS 'internal: members of deadlocks';
COMMENT ON TABLE lock_history.conflict IS 'internal: what the replay of a standby has cancelled';
COMMENT ON TABLE lock_history.dim IS 'internal: what seconds are told apart by';
COMMENT ON TABLE lock_history.second IS 'internal: load by second';
COMMENT ON TABLE lock_history.fastpath IS 'internal: use of the fast path by second';
COMMENT ON TABLE lock_history.hungry IS 'internal: statements with most relation locks by minute';
COMMENT ON TABLE lock_history.anomaly IS 'internal: times of unusual load';
COMMENT ON TABLE lock_history.detector IS 'internal: what is known of the usual load, by node';
COMMENT ON TABLE lock_history.lwlock IS 'internal: waits for LWLocks by second';
COMMENT ON TABLE lock_history.page IS 'internal: waits for pages by second';
COMMENT ON TABLE lock_history.wait_length IS 'internal: lengths of waits by minute';
COMMENT ON TABLE lock_history.minute IS 'internal: load by minute, of segments that are closed';
COMMENT ON TABLE lock_history.minute_dim IS 'internal: what minutes are told apart by, and texts of statements';
COMMENT ON TABLE lock_history.minute_ring IS 'internal: state of the 4 segments of minutes';
COMMENT ON TABLE lock_history.minute_gap IS 'internal: times not watched, of segments that were rolled up';
COMMENT ON TABLE lock_history.gap IS 'internal: times not watched';
COMMENT ON TABLE lock_history.health_minute IS 'internal: cost of watching by minute';
