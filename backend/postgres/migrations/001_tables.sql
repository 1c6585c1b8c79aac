-- What Croft remembers of keys. Times are whole microseconds since 1970 on this server's clock, durations whole microseconds; NULL is "not set".

CREATE TABLE croft.lease (
    key         text COLLATE "C" PRIMARY KEY,
    token       bigint NOT NULL,
    grant_id    text   NOT NULL,             -- fingerprint of the grant's secret; the secret itself is nowhere
    owner       text   NOT NULL,
    instance    text   NOT NULL,
    state       text   NOT NULL,
    cause       text   NOT NULL,
    ended       text   NOT NULL DEFAULT '',
    actor       text   NOT NULL DEFAULT '',
    note        text   NOT NULL DEFAULT '',
    acquired    bigint NOT NULL,
    renewed     bigint NOT NULL,
    deadline    bigint NOT NULL,
    ttl         bigint NOT NULL,
    every       bigint NOT NULL DEFAULT 0,
    succeeded   bigint,
    hold_until  bigint,
    guards      text   NOT NULL DEFAULT '',  -- a JSON array, or nothing
    progress    text   NOT NULL DEFAULT '',
    progress_at bigint,
    terms       bigint NOT NULL,             -- grants
    transfers   bigint NOT NULL,             -- grants, reservations and revocations
    spent       integer[] NOT NULL           -- the short forms of the grants in its past: a look at them spares most looks into it
) WITH (fillfactor = 70);                    -- room for renewals to stay on their page: no index changes with them

-- The transfers before the newest one, which is the lease's own row. A key has 31 slots, used in turn: with the newest, a history of 32.
CREATE TABLE croft.past (
    key      text COLLATE "C" NOT NULL,
    slot     smallint NOT NULL,
    token    bigint NOT NULL,
    grant_id text   NOT NULL,
    owner    text   NOT NULL,
    instance text   NOT NULL,
    state    text   NOT NULL,
    cause    text   NOT NULL,
    actor    text   NOT NULL,
    note     text   NOT NULL,
    acquired bigint NOT NULL,
    finished bigint NOT NULL,
    ended    text   NOT NULL,
    PRIMARY KEY (key, slot)
) WITH (fillfactor = 70);

-- Who waits for a key: a change notifies only while somebody does, because every notification costs all of the server's commits.
CREATE TABLE croft.waiter (
    key        text COLLATE "C" PRIMARY KEY,
    wait_until timestamptz NOT NULL
);

-- How far housekeeping has come; one row.
CREATE TABLE croft.housekeeping (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    swept_to text COLLATE "C" NOT NULL DEFAULT ''
);
INSERT INTO croft.housekeeping DEFAULT VALUES;

-- For people: the leases with times they can read.
CREATE VIEW croft.leases AS
SELECT key, token, owner, instance,
       CASE WHEN state <> 'free' AND to_timestamp(deadline / 1e6) <= clock_timestamp() THEN 'free' ELSE state END AS state,
       cause, ended, actor, note,
       to_timestamp(acquired / 1e6) AS acquired, to_timestamp(renewed / 1e6) AS renewed, to_timestamp(deadline / 1e6) AS deadline,
       ttl * interval '1 microsecond' AS ttl, progress, to_timestamp(progress_at / 1e6) AS progress_at, terms
FROM croft.lease;
