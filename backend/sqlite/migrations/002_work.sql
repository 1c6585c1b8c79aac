-- The ledger: items of work, their effects, and refused writes. Times are whole
-- microseconds since 1970 by the machine's clock, and durations are whole
-- microseconds. NULL means "not set". A row of croft_item contains the item's
-- ownership record: token is NULL until the item is first claimed or
-- reassigned.
CREATE TABLE croft_item (
    id            TEXT NOT NULL PRIMARY KEY,
    queue         TEXT NOT NULL,
    uniq          TEXT,                          -- idempotency key
    state         TEXT NOT NULL,
    priority      INTEGER NOT NULL,
    ready         INTEGER NOT NULL,
    created       INTEGER NOT NULL,
    finished      INTEGER,
    attempts      INTEGER NOT NULL,
    tries         INTEGER NOT NULL,              -- the largest number of attempts
    generation    INTEGER NOT NULL,
    checkpoint_at INTEGER,
    error         TEXT NOT NULL,
    token         INTEGER,
    grant_id      TEXT,                          -- fingerprint of the grant's secret, which is not kept
    owner         TEXT NOT NULL,
    instance      TEXT NOT NULL,
    held          TEXT NOT NULL,                 -- the state of the ownership record
    cause         TEXT NOT NULL,
    ended         TEXT NOT NULL,
    actor         TEXT NOT NULL,
    note          TEXT NOT NULL,
    acquired      INTEGER,
    renewed       INTEGER,
    deadline      INTEGER,
    ttl           INTEGER,
    progress      TEXT NOT NULL,
    progress_at   INTEGER,
    terms         INTEGER NOT NULL,
    past          BLOB,                          -- JSON: the transfers before the newest; most items have none
    payload       BLOB,
    checkpoint    BLOB,
    result        BLOB,
    guards        BLOB                           -- JSON: the targets that the item names; most items have none
) STRICT;

-- Claims use the first two indexes. Finished items are in neither, so claims
-- stay fast however many items are kept. Listings use the first three, to find
-- items that are not done among many that are. No claim changes the third.
CREATE INDEX croft_item_waiting ON croft_item (queue, priority DESC, ready, id) WHERE state = 'waiting';
CREATE INDEX croft_item_running ON croft_item (queue, id) WHERE state = 'running';
-- With OR, not with IN: SQLite does not see that state = 'dead' implies
-- state IN ('dead', 'cancelled'), and would not use the index.
CREATE INDEX croft_item_given_up ON croft_item (id) WHERE state = 'dead' OR state = 'cancelled';
CREATE INDEX croft_item_finished ON croft_item (finished) WHERE finished IS NOT NULL;
CREATE UNIQUE INDEX croft_item_uniq ON croft_item (queue, uniq) WHERE uniq IS NOT NULL;

-- The outbox. Item, generation and name identify an effect. The token only says
-- which completion wrote it.
CREATE TABLE croft_effect (
    item         TEXT NOT NULL,
    generation   INTEGER NOT NULL,
    name         TEXT NOT NULL,
    queue        TEXT NOT NULL,
    dest         TEXT NOT NULL,
    at_most_once INTEGER NOT NULL,
    token        INTEGER NOT NULL,
    grant_id     TEXT NOT NULL,
    owner        TEXT NOT NULL,
    state        TEXT NOT NULL,
    attempts     INTEGER NOT NULL,
    ready        INTEGER NOT NULL,
    sender       INTEGER NOT NULL,
    created      INTEGER NOT NULL,
    settled      INTEGER,
    error        TEXT NOT NULL,
    actor        TEXT NOT NULL,
    note         TEXT NOT NULL,
    body         BLOB,
    PRIMARY KEY (item, generation, name)
) STRICT;
CREATE INDEX croft_effect_open ON croft_effect (state, ready, item, generation, name)
    WHERE state = 'pending' OR state = 'unknown'; -- with OR, as above
-- Dispatchers take effects by destination: those that are due, or the first.
CREATE INDEX croft_effect_due ON croft_effect (dest, ready, item, generation, name) WHERE state = 'pending';
CREATE INDEX croft_effect_line ON croft_effect (dest, created, item, generation, name)
    WHERE state = 'pending' OR state = 'unknown';
CREATE INDEX croft_effect_failed ON croft_effect (settled) WHERE state = 'failed';

-- The newest stamp of a dispatcher, by the key of its lease.
CREATE TABLE croft_dispatcher (
    key      TEXT NOT NULL PRIMARY KEY,
    token    INTEGER NOT NULL,
    grant_id TEXT NOT NULL
) STRICT;

-- Writes that were refused, with the stamps that were presented and newest.
CREATE TABLE croft_refusal (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    at              INTEGER NOT NULL,
    item            TEXT NOT NULL,
    queue           TEXT NOT NULL,
    verb            TEXT NOT NULL,
    why             TEXT NOT NULL,
    presented       INTEGER NOT NULL,
    presented_grant TEXT NOT NULL,
    presented_owner TEXT NOT NULL,
    newest          INTEGER NOT NULL,
    newest_grant    TEXT NOT NULL,
    newest_owner    TEXT NOT NULL
) STRICT;
CREATE INDEX croft_refusal_item ON croft_refusal (item) WHERE item <> '';
CREATE INDEX croft_refusal_at ON croft_refusal (at);
