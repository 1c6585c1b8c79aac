-- Statements about effects, and about the marks of their dispatchers.
--
-- The columns of an effect stand in the same order in all statements: see
-- effectFields.

-- name: work_effect
SELECT
    item, generation, name, queue, dest, at_most_once, token, grant_id, owner,
    state, attempts, ready, sender, created, settled, error, actor, note, body
FROM main.croft_effect
WHERE item = ?1 AND generation = ?2 AND name = ?3

-- name: work_effects
-- ?4 is NULL here, and the present time in work_effects_orphaned.
SELECT
    item, generation, name, queue, dest, at_most_once, token, grant_id, owner,
    state, attempts, ready, sender, created, settled, error, actor, note, body
FROM main.croft_effect
WHERE (?1 = '' OR item = ?1)
    AND (?2 = '' OR queue = ?2)
    AND (?3 = '[]' OR state IN (SELECT value FROM json_each(?3)))
    AND (?4 IS NULL OR state = 'unknown' AND ready <= ?4)
    AND (item, generation, name) > (?5, ?6, ?7)
ORDER BY item, generation, name
LIMIT ?8

-- name: work_effects_orphaned
-- A statement of its own: without the OR, SQLite uses the index of effects that
-- are pending or unknown.
SELECT
    item, generation, name, queue, dest, at_most_once, token, grant_id, owner,
    state, attempts, ready, sender, created, settled, error, actor, note, body
FROM main.croft_effect
WHERE (?1 = '' OR item = ?1)
    AND (?2 = '' OR queue = ?2)
    AND (?3 = '[]' OR state IN (SELECT value FROM json_each(?3)))
    AND state = 'unknown' AND ready <= ?4
    AND (item, generation, name) > (?5, ?6, ?7)
ORDER BY item, generation, name
LIMIT ?8

-- name: work_emit
INSERT INTO main.croft_effect (
    item, generation, name, queue, dest, at_most_once, token, grant_id, owner,
    state, attempts, ready, sender, created, settled, error, actor, note, body)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,
    ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
ON CONFLICT DO NOTHING

-- name: work_effect_update
-- Leaves out the columns that never change.
UPDATE main.croft_effect
SET state = ?10, attempts = ?11, ready = ?12, sender = ?13,
    settled = ?15, error = ?16, actor = ?17, note = ?18
WHERE item = ?1 AND generation = ?2 AND name = ?3

-- name: work_take_any
SELECT
    item, generation, name, queue, dest, at_most_once, token, grant_id, owner,
    state, attempts, ready, sender, created, settled, error, actor, note, body
FROM main.croft_effect
WHERE state = 'pending' AND ready <= ?1
ORDER BY ready, item, generation, name
LIMIT ?2

-- name: work_take
-- For one destination. Each has its own part of the index, so one with a long
-- backlog does not slow down the others.
SELECT
    item, generation, name, queue, dest, at_most_once, token, grant_id, owner,
    state, attempts, ready, sender, created, settled, error, actor, note, body
FROM main.croft_effect INDEXED BY croft_effect_due
WHERE state = 'pending' AND dest = ?3 AND ready <= ?1
ORDER BY ready, item, generation, name
LIMIT ?2

-- name: work_take_next
-- The first open effect for a destination, if it is due and none is unknown.
SELECT
    item, generation, name, queue, dest, at_most_once, token, grant_id, owner,
    state, attempts, ready, sender, created, settled, error, actor, note, body
FROM (
    SELECT *
    FROM main.croft_effect INDEXED BY croft_effect_line
    WHERE (state = 'pending' OR state = 'unknown') AND dest = ?3
    ORDER BY created, item, generation, name
    LIMIT 1)
WHERE state = 'pending' AND ready <= ?1
    AND NOT EXISTS (
        SELECT 1
        FROM main.croft_effect INDEXED BY croft_effect_unknown
        WHERE state = 'unknown' AND dest = ?3)
LIMIT ?2

-- name: work_mark
SELECT token, grant_id
FROM main.croft_dispatcher
WHERE key = ?1

-- name: work_mark_keep
INSERT INTO main.croft_dispatcher (key, token, grant_id)
VALUES (?1, ?2, ?3)
ON CONFLICT (key) DO UPDATE
SET token = excluded.token, grant_id = excluded.grant_id
