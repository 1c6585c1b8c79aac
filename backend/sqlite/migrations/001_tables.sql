-- The records of keys. A record is packed together with its history, so that a
-- grant changes one page. `croft show KEY` unpacks it.
CREATE TABLE croft_lease (
    id     INTEGER PRIMARY KEY,
    key    TEXT    NOT NULL UNIQUE,
    quiet  INTEGER NOT NULL,  -- microseconds since 1970: from then on no claim needs the record
    record BLOB    NOT NULL
) STRICT;

-- The marks of guarded resources. A mark is the newest stamp that was admitted.
CREATE TABLE croft_fence (
    name        TEXT NOT NULL PRIMARY KEY,
    fence_key   TEXT,
    fence_token INTEGER,
    fence_grant TEXT,
    fence_seq   TEXT           -- a decimal number, which may be too large for an INTEGER
) STRICT;

-- Who moved or reset the mark of a resource, and why.
CREATE TABLE croft_rekeying (
    id         INTEGER PRIMARY KEY,
    at         TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),
    target     TEXT    NOT NULL,
    from_key   TEXT    NOT NULL,
    from_token INTEGER NOT NULL,
    to_key     TEXT    NOT NULL,
    actor      TEXT    NOT NULL,
    note       TEXT    NOT NULL
) STRICT;
CREATE INDEX croft_rekeying_target ON croft_rekeying (target);
