-- The ledger: items of work, their effects, and the writes that did not count. Times are whole microseconds since 1970 on the machine's clock, durations whole microseconds; NULL is "not set". A row of
-- croft_item has its ownership record in it: token is NULL until the item is first claimed or reassigned.
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
    tries         INTEGER NOT NULL,              -- the limit of attempts
    generation    INTEGER NOT NULL,
    checkpoint_at INTEGER,
    error         TEXT NOT NULL,
    token         INTEGER,
    grant_id      TEXT,                          -- fingerprint of the grant's secret; the secret itself is nowhere
    owner         TEXT NOT NULL,
    instance      TEXT NOT NULL,
    held          TEXT NOT NULL,                 -- the record's state
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
    past          BLOB,                          -- JSON: the transfers before the newest; none for most items
    payload       BLOB,
    checkpoint    BLOB,
    result        BLOB
) STRICT;

-- What is finished is in none of the first two, so that claims stay as fast as they were, however much is kept. What people look for is found among all that is done: what waits and runs by the first two, what
-- was given up by the third, which no claim touches.
CREATE INDEX croft_item_waiting ON croft_item (queue, priority DESC, ready, id) WHERE state = 'waiting';
CREATE INDEX croft_item_running ON croft_item (queue, id) WHERE state = 'running';
CREATE INDEX croft_item_given_up ON croft_item (id) WHERE state = 'dead' OR state = 'cancelled'; -- SQLite does not see that either is IN both
CREATE INDEX croft_item_finished ON croft_item (finished) WHERE finished IS NOT NULL;
CREATE UNIQUE INDEX croft_item_uniq ON croft_item (queue, uniq) WHERE uniq IS NOT NULL;

-- The outbox. An effect's identity is its item, its name and the generation; the token only says which completion wrote it.
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
CREATE INDEX croft_effect_open ON croft_effect (state, ready, item, generation, name) WHERE state = 'pending' OR state = 'unknown'; -- as above

-- The newest stamp of a dispatcher, by the key of its lease.
CREATE TABLE croft_dispatcher (
    key      TEXT NOT NULL PRIMARY KEY,
    token    INTEGER NOT NULL,
    grant_id TEXT NOT NULL
) STRICT;

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
