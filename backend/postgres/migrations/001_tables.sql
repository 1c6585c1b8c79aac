-- The records of keys. Times are whole microseconds since 1970 on this server's
-- clock. Durations are whole microseconds. NULL means "not set". Numbers that
-- are never NULL come first: the server finds such columns fastest.

CREATE TABLE croft.lease (
    token       bigint NOT NULL,
    acquired    bigint NOT NULL,
    renewed     bigint NOT NULL,
    deadline    bigint NOT NULL,
    ttl         bigint NOT NULL,
    every       bigint NOT NULL DEFAULT 0,
    terms       bigint NOT NULL,                -- grants
    transfers   bigint NOT NULL,                -- grants, reservations and revocations
    awaited     boolean NOT NULL DEFAULT false, -- the table waiter may have the key; a change of hands looks there
    key         text COLLATE "C" PRIMARY KEY,
    grant_id    text   NOT NULL,                -- fingerprint of the grant's secret; the secret is never stored
    owner       text   NOT NULL,
    instance    text   NOT NULL,
    state       text   NOT NULL,
    cause       text   NOT NULL,
    ended       text   NOT NULL DEFAULT '',
    actor       text   NOT NULL DEFAULT '',
    note        text   NOT NULL DEFAULT '',
    guards      text   NOT NULL DEFAULT '',     -- a JSON array, or nothing
    progress    text   NOT NULL DEFAULT '',
    progress_at bigint,
    succeeded   bigint,
    grid        bigint,                         -- when the first success with this period began
    hold_until  bigint,
    checkpoint  text   NOT NULL DEFAULT '',     -- in base64
    -- The short forms of the grants in the key's past. Looking here makes most
    -- looks into the past unnecessary.
    spent       integer[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 70);                       -- room for updates on the same page, which change no index

-- The transfers that are over. The newest one is in the lease's own row, too. A
-- key has 32 slots, used in turn.
CREATE TABLE croft.past (
    token    bigint NOT NULL,
    acquired bigint NOT NULL,
    finished bigint NOT NULL,
    slot     smallint NOT NULL,
    key      text COLLATE "C" NOT NULL,
    grant_id text   NOT NULL,
    owner    text   NOT NULL,
    instance text   NOT NULL,
    state    text   NOT NULL,
    cause    text   NOT NULL,
    actor    text   NOT NULL,
    note     text   NOT NULL,
    ended    text   NOT NULL,
    PRIMARY KEY (key, slot)
) WITH (fillfactor = 70);

-- Which clients wait for a key, first come, first served. Changes notify only
-- while somebody waits, and when an operator acts: every notification slows
-- down all of the server's commits.
CREATE TABLE croft.waiter (
    key        text COLLATE "C" NOT NULL,
    id         text NOT NULL,                   -- of the client
    place      bigint GENERATED ALWAYS AS IDENTITY, -- the position in the queue; databases have stored the name
    named      boolean NOT NULL DEFAULT false,  -- it was told that it is its turn; asking in vain clears this
    wait_until timestamptz NOT NULL,
    PRIMARY KEY (key, id)
);

-- How far housekeeping has come. The table has one row.
CREATE TABLE croft.housekeeping (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    swept_to text COLLATE "C" NOT NULL DEFAULT ''
);
INSERT INTO croft.housekeeping DEFAULT VALUES;
