-- Statements about the marks of guarded resources.
--
-- In mark, lock and move, names in braces stand for the table, its columns, the
-- caller's condition and the numbers of arguments.

-- name: fence_enter
INSERT INTO main.croft_fence (name)
VALUES (?1)
ON CONFLICT (name) DO NOTHING

-- name: lock
-- Takes the write lock. It changes nothing and fires no trigger. A mark that is
-- read after it is the newest one.
UPDATE {table}
SET {token} = {token}
WHERE 0

-- name: mark
SELECT
    coalesce({key}, ''),
    coalesce({token}, 0),
    coalesce({grant}, ''),
    CAST(coalesce({seq}, '0') AS TEXT)
FROM {table}
WHERE {where}

-- name: move
UPDATE {table}
SET {key} = {new_key}, {token} = {new_token}, {grant} = {new_grant}, {seq} = {new_seq}
WHERE {where}

-- name: rekey
INSERT INTO main.croft_rekeying (target, from_key, from_token, to_key, actor, note)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: rekeyed
SELECT at, from_key, actor, note
FROM main.croft_rekeying
WHERE target = ?1
ORDER BY id DESC
LIMIT 1
