-- Statements about the records of keys, and about operators' acts on keys.

-- name: load
SELECT id, record
FROM main.croft_lease
WHERE key = ?1

-- name: insert
INSERT INTO main.croft_lease (key, quiet, record)
VALUES (?1, ?2, ?3)

-- name: update
UPDATE main.croft_lease
SET quiet = ?2, record = ?3
WHERE id = ?1

-- name: touch
-- Makes the commit flush the log. It changes as little as possible: SQLite
-- writes and flushes only what differs.
UPDATE main.croft_lease
SET quiet = quiet + 1
WHERE id = ?1

-- name: list
-- ?1 is the prefix, ?2 the last key of the page before.
SELECT key, record
FROM main.croft_lease
WHERE key >= ?1 AND key > ?2
ORDER BY key
LIMIT ?3

-- name: count
SELECT count(*)
FROM main.croft_lease

-- name: note_acts
INSERT INTO main.croft_act (key)
SELECT value FROM json_each(?1)

-- name: trim_acts
-- Keeps the newest ?1 acts.
DELETE FROM main.croft_act
WHERE id <= (SELECT max(id) FROM main.croft_act) - ?1

-- name: last_act
SELECT coalesce(max(id), 0)
FROM main.croft_act

-- name: acts
-- ?1 is the last act that was read, ?2 the longest key. A row with a longer key
-- is not Croft's, and is not read.
SELECT id, key
FROM main.croft_act
WHERE id > ?1 AND octet_length(key) <= ?2
ORDER BY id DESC
LIMIT ?3
