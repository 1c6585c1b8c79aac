-- Statements about items of work, their numbers, and refused writes.
--
-- The columns of an item stand in the same order in all statements: see
-- itemFields. So ?4 is always the state and ?33 always the result.

-- name: work_item
SELECT
    id, queue, uniq, state, priority, ready, created, finished, attempts, tries, generation, checkpoint_at, error,
    token, grant_id, owner, instance, held, cause, ended, actor, note,
    acquired, renewed, deadline, ttl, progress, progress_at, terms,
    past, payload, checkpoint, result, guards, partition
FROM main.croft_item
WHERE id = ?1

-- name: work_unique
SELECT
    id, queue, uniq, state, priority, ready, created, finished, attempts, tries, generation, checkpoint_at, error,
    token, grant_id, owner, instance, held, cause, ended, actor, note,
    acquired, renewed, deadline, ttl, progress, progress_at, terms,
    past, payload, checkpoint, result, guards, partition
FROM main.croft_item
WHERE queue = ?1 AND uniq = ?2

-- name: work_granted
-- The items that an earlier copy of the same claim has taken.
SELECT
    id, queue, uniq, state, priority, ready, created, finished, attempts, tries, generation, checkpoint_at, error,
    token, grant_id, owner, instance, held, cause, ended, actor, note,
    acquired, renewed, deadline, ttl, progress, progress_at, terms,
    past, payload, checkpoint, result, guards, partition
FROM main.croft_item
WHERE state = 'running' AND queue = ?1 AND grant_id = ?2

-- name: work_insert
INSERT INTO main.croft_item (
    id, queue, uniq, state, priority, ready, created, finished, attempts, tries, generation, checkpoint_at, error,
    token, grant_id, owner, instance, held, cause, ended, actor, note,
    acquired, renewed, deadline, ttl, progress, progress_at, terms,
    past, payload, checkpoint, result, guards, partition)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,
    ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
    ?23, ?24, ?25, ?26, ?27, ?28, ?29,
    ?30, ?31, ?32, ?33, ?34, ?35)
ON CONFLICT DO NOTHING

-- name: work_update
-- Leaves out the columns that never change, such as the queue, the partition,
-- the payload and the guards.
UPDATE main.croft_item
SET state = ?4, ready = ?6, finished = ?8, attempts = ?9,
    generation = ?11, checkpoint_at = ?12, error = ?13,
    token = ?14, grant_id = ?15, owner = ?16, instance = ?17,
    held = ?18, cause = ?19, ended = ?20, actor = ?21, note = ?22,
    acquired = ?23, renewed = ?24, deadline = ?25, ttl = ?26,
    progress = ?27, progress_at = ?28, terms = ?29,
    past = ?30, checkpoint = ?32, result = ?33
WHERE id = ?1

-- name: work_few
-- Counts the items in the states ?1, and stops at ?2. Done is none of them.
SELECT count(*)
FROM (
    SELECT 1
    FROM main.croft_item w INDEXED BY croft_item_waiting
    WHERE w.state = 'waiting' AND 'waiting' IN (SELECT value FROM json_each(?1))
    UNION ALL
    SELECT 1
    FROM main.croft_item r INDEXED BY croft_item_running
    WHERE r.state = 'running' AND 'running' IN (SELECT value FROM json_each(?1))
    UNION ALL
    SELECT 1
    FROM main.croft_item g INDEXED BY croft_item_given_up
    WHERE (g.state = 'dead' OR g.state = 'cancelled') AND g.state IN (SELECT value FROM json_each(?1))
    LIMIT ?2)

-- name: work_list
-- {after} and {order} are > and ASC, or < and DESC for the newest first.
-- The page begins after ?4. For the first page ?4 lies before all IDs: with
-- "?4 IS NULL OR …" each page would read all pages before it again.
SELECT
    id, queue, uniq, state, priority, ready, created, finished, attempts, tries, generation, checkpoint_at, error,
    token, grant_id, owner, instance, held, cause, ended, actor, note,
    acquired, renewed, deadline, ttl, progress, progress_at, terms,
    NULL, NULL, NULL, NULL, guards, partition
FROM main.croft_item
WHERE (?1 = '' OR queue = ?1)
    AND (?2 = '[]' OR state IN (SELECT value FROM json_each(?2)))
    AND (?3 = '' OR owner = ?3)
    AND id {after} ?4
ORDER BY id {order}
LIMIT ?5

-- name: work_list_few
-- The same as work_list, for a few items that are not done among many that are.
-- It reads each state by an index that holds nothing else. It names the indexes
-- because SQLite would rather go through all IDs than sort a few.
SELECT
    id, queue, uniq, state, priority, ready, created, finished, attempts, tries, generation, checkpoint_at, error,
    token, grant_id, owner, instance, held, cause, ended, actor, note,
    acquired, renewed, deadline, ttl, progress, progress_at, terms,
    NULL, NULL, NULL, NULL, guards, partition
FROM main.croft_item
WHERE id IN (
    SELECT id FROM (
        SELECT w.id
        FROM main.croft_item w INDEXED BY croft_item_waiting
        WHERE w.state = 'waiting' AND 'waiting' IN (SELECT value FROM json_each(?2))
            AND (?1 = '' OR w.queue = ?1) AND (?3 = '' OR w.owner = ?3) AND w.id {after} ?4
        ORDER BY w.id {order}
        LIMIT ?5)
    UNION ALL
    SELECT id FROM (
        SELECT r.id
        FROM main.croft_item r INDEXED BY croft_item_running
        WHERE r.state = 'running' AND 'running' IN (SELECT value FROM json_each(?2))
            AND (?1 = '' OR r.queue = ?1) AND (?3 = '' OR r.owner = ?3) AND r.id {after} ?4
        ORDER BY r.id {order}
        LIMIT ?5)
    UNION ALL
    SELECT id FROM (
        SELECT g.id
        FROM main.croft_item g INDEXED BY croft_item_given_up
        WHERE (g.state = 'dead' OR g.state = 'cancelled') AND g.state IN (SELECT value FROM json_each(?2))
            AND (?1 = '' OR g.queue = ?1) AND (?3 = '' OR g.owner = ?3) AND g.id {after} ?4
        ORDER BY g.id {order}
        LIMIT ?5))
ORDER BY id {order}
LIMIT ?5

-- name: work_stats
-- ?1 is the present time, ?2 the queue, or empty for all queues.
SELECT
    queue,
    'item' AS kind,
    state,
    ready > ?1 AS later,
    coalesce(deadline <= ?1, 0) AS lapsed,
    count(*),
    min(ready),
    min(renewed),
    min(max(acquired, coalesce(progress_at, acquired), coalesce(checkpoint_at, acquired)))
FROM main.croft_item
WHERE ?2 = '' OR queue = ?2
GROUP BY queue, state, later, lapsed
UNION ALL
SELECT queue, 'effect', state, 0, 0, count(*), NULL, NULL, NULL
FROM main.croft_effect
WHERE ?2 = '' OR queue = ?2
GROUP BY queue, state
UNION ALL
SELECT queue, 'refusal', '', 0, 0, count(*), NULL, NULL, NULL
FROM main.croft_refusal
WHERE queue <> '' AND (?2 = '' OR queue = ?2)
GROUP BY queue

-- name: work_backlog
-- Counts what is open, at the time ?1. Items without progress since ?2 count as
-- stalled. ?3 and ?4 bound the counted dead items and the counted effects. Each
-- part reads a partial index, so finished items cost nothing.
SELECT 'item' AS kind, queue AS name, state, ready <= ?1 AS come, count(*), 0, min(ready), NULL, NULL
FROM main.croft_item INDEXED BY croft_item_waiting
WHERE state = 'waiting'
GROUP BY queue, come
UNION ALL
SELECT
    'item', queue, state, coalesce(deadline <= ?1, 0) AS come, count(*),
    sum(max(acquired, coalesce(progress_at, acquired), coalesce(checkpoint_at, acquired)) <= ?2), NULL,
    min(renewed), min(max(acquired, coalesce(progress_at, acquired), coalesce(checkpoint_at, acquired)))
FROM main.croft_item INDEXED BY croft_item_running
WHERE state = 'running'
GROUP BY queue, come
UNION ALL
SELECT 'item', queue, state, 1, count(*), 0, NULL, NULL, NULL
FROM (
    SELECT queue, state
    FROM main.croft_item INDEXED BY croft_item_given_up
    WHERE state = 'dead' OR state = 'cancelled'
    LIMIT ?3)
GROUP BY queue, state
UNION ALL
SELECT 'effect', dest, 'pending', ready <= ?1 AS come, count(*), 0, min(ready), NULL, NULL
FROM (
    SELECT dest, ready
    FROM main.croft_effect
    WHERE state = 'pending'
    ORDER BY ready, item, generation, name
    LIMIT ?4)
GROUP BY dest, come
UNION ALL
SELECT 'effect', dest, 'unknown', ready <= ?1 AS come, count(*), 0, min(ready), NULL, NULL
FROM (
    SELECT dest, ready
    FROM main.croft_effect
    WHERE state = 'unknown'
    ORDER BY ready, item, generation, name
    LIMIT ?4)
GROUP BY dest, come
UNION ALL
SELECT 'effect', dest, 'failed', 1, count(*), 0, min(settled), NULL, NULL
FROM (
    SELECT dest, settled
    FROM main.croft_effect INDEXED BY croft_effect_failed
    WHERE state = 'failed'
    ORDER BY settled
    LIMIT ?4)
GROUP BY dest

-- name: work_refuse
INSERT INTO main.croft_refusal (
    at, item, queue, verb, why,
    presented, presented_grant, presented_owner, newest, newest_grant, newest_owner)
VALUES (
    ?1, ?2, ?3, ?4, ?5,
    ?6, ?7, ?8, ?9, ?10, ?11)

-- name: work_refusals
-- ?4 is the last refusal of the page before, or 0.
SELECT
    id, at, item, queue, verb, why,
    presented, presented_grant, presented_owner, newest, newest_grant, newest_owner
FROM main.croft_refusal
WHERE (?1 = '' OR item = ?1)
    AND (?2 = '' OR queue = ?2)
    AND at >= ?3
    AND (?4 = 0 OR id < ?4)
ORDER BY id DESC
LIMIT ?5
