-- Statements about the whole file: transactions, settings and the tables.

-- name: begin
-- IMMEDIATE takes the write lock now, not with the first write.
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: file
SELECT file
FROM pragma_database_list
WHERE name = 'main'

-- name: data_version
-- The number differs after another connection has changed the file.
PRAGMA data_version

-- name: empty_log
-- Copies the whole log into the file, then cuts the log to nothing.
PRAGMA wal_checkpoint(TRUNCATE)

-- name: writer
-- The settings of the connection that writes, whatever the pool's settings are.
-- {wait} is in milliseconds, and counts only while the connection is set up.
PRAGMA busy_timeout = {wait};
PRAGMA synchronous = FULL;
PRAGMA fullfsync = 1;
PRAGMA query_only = 0;
-- After a large change SQLite cuts the log back to this many bytes. It is no
-- less than the log usually needs, because growing again costs twice the
-- flushes.
PRAGMA journal_size_limit = 16777216;
-- Without this a log grows without end if the pool has turned copying back off.
PRAGMA wal_autocheckpoint = 1000;

-- name: contents
-- Counts the objects in the file, and says whether Croft's tables are there.
SELECT count(*), coalesce(sum(name = 'croft_migration'), 0)
FROM sqlite_schema
WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\'

-- name: prepare
CREATE TABLE IF NOT EXISTS croft_migration (
    version INTEGER PRIMARY KEY,
    name    TEXT NOT NULL,
    applied TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
) STRICT

-- name: version
SELECT coalesce(max(version), 0)
FROM main.croft_migration

-- name: migrated
INSERT INTO main.croft_migration (version, name)
VALUES (?1, ?2)
