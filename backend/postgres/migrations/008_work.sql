-- The ledger: items of work, their effects, and the writes that were refused.
-- Times are whole microseconds since 1970 on this server's clock. Durations are
-- whole microseconds. NULL means "not set". A row of item includes its
-- ownership record. Its token is NULL until the item is first claimed or
-- reassigned.

CREATE TABLE croft.item (
    id            uuid PRIMARY KEY,
    queue         text COLLATE "C" NOT NULL,
    uniq          text COLLATE "C",                -- idempotency key
    state         text NOT NULL,
    priority      smallint NOT NULL,
    attempts      integer NOT NULL DEFAULT 0,
    tries         integer NOT NULL,                -- the limit of attempts
    generation    integer NOT NULL DEFAULT 0,
    ready         bigint NOT NULL,
    created       bigint NOT NULL,
    finished      bigint,
    token         bigint,
    acquired      bigint,
    renewed       bigint,
    deadline      bigint,
    ttl           bigint,
    terms         bigint NOT NULL DEFAULT 0,
    grant_id      uuid,                            -- fingerprint of the grant's secret; the secret is never stored
    owner         text NOT NULL DEFAULT '',
    instance      text NOT NULL DEFAULT '',
    held          text NOT NULL DEFAULT '',        -- the record's state
    cause         text NOT NULL DEFAULT '',
    ended         text NOT NULL DEFAULT '',
    actor         text NOT NULL DEFAULT '',
    note          text NOT NULL DEFAULT '',
    progress      text NOT NULL DEFAULT '',
    error         text NOT NULL DEFAULT '',
    progress_at   bigint,
    checkpoint_at bigint,
    payload       bytea,
    checkpoint    bytea,
    result        bytea,
    past          json                             -- the transfers before the newest; most items have none
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1
);

-- Claims use the first two indexes. These have no finished items, so claims
-- stay fast however many of those are kept. No index has a column that a
-- heartbeat changes. Listings find waiting and running items by the first two
-- indexes, and items that were given up by the third.
CREATE INDEX item_waiting ON croft.item (queue, priority DESC, ready, id) WHERE state = 'waiting';
CREATE INDEX item_running ON croft.item (queue, id) WHERE state = 'running';
CREATE INDEX item_given_up ON croft.item (queue, id) WHERE state IN ('dead', 'cancelled');
CREATE INDEX item_finished ON croft.item (finished) WHERE finished IS NOT NULL;
CREATE UNIQUE INDEX item_uniq ON croft.item (queue, uniq) WHERE uniq IS NOT NULL;

-- The outbox. An effect's identity is its item, its name and the generation.
-- The token only says which completion wrote it.
CREATE TABLE croft.effect (
    item         uuid NOT NULL,
    generation   integer NOT NULL,
    name         text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    dest         text NOT NULL,
    at_most_once boolean NOT NULL,
    token        bigint NOT NULL,
    grant_id     uuid NOT NULL,
    owner        text NOT NULL,
    state        text NOT NULL,
    attempts     integer NOT NULL DEFAULT 0,
    ready        bigint NOT NULL,
    sender       bigint NOT NULL DEFAULT 0,
    created      bigint NOT NULL,
    settled      bigint,
    error        text NOT NULL DEFAULT '',
    actor        text NOT NULL DEFAULT '',
    note         text NOT NULL DEFAULT '',
    body         bytea,
    PRIMARY KEY (item, generation, name)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX effect_open ON croft.effect (state, ready, item, generation, name) WHERE state IN ('pending', 'unknown');
-- Dispatchers take effects by destination: those that are due, or the first.
CREATE INDEX effect_due ON croft.effect (dest, ready, item, generation, name) WHERE state = 'pending';
CREATE INDEX effect_line ON croft.effect (dest, created, item, generation, name)
    WHERE state IN ('pending', 'unknown');
CREATE INDEX effect_failed ON croft.effect (settled) WHERE state = 'failed';

-- The newest stamp of a dispatcher, by the key of its lease.
CREATE TABLE croft.dispatcher (
    key      text COLLATE "C" PRIMARY KEY,
    token    bigint NOT NULL DEFAULT 0,
    grant_id text NOT NULL DEFAULT ''
);

CREATE TABLE croft.refusal (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at              bigint NOT NULL,
    item            text NOT NULL,
    queue           text COLLATE "C" NOT NULL,
    verb            text NOT NULL,
    why             text NOT NULL,
    presented       bigint NOT NULL,
    presented_grant text NOT NULL,
    presented_owner text NOT NULL,
    newest          bigint NOT NULL,
    newest_grant    text NOT NULL,
    newest_owner    text NOT NULL
);
CREATE INDEX refusal_item ON croft.refusal (item) WHERE item <> '';
CREATE INDEX refusal_at ON croft.refusal (at);

-- The queues in which a worker has found nothing and waits to be told. '' means
-- the outbox. Changes notify only for these queues: every notification slows
-- down all of the server's commits.
CREATE TABLE croft.idle (
    queue      text COLLATE "C" PRIMARY KEY,
    wait_until timestamptz NOT NULL
);
