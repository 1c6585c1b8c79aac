-- Statements that find items for claims, and about the rules of queues. The
-- columns of an item are as in work.sql.

-- name: work_governed
-- Whether a queue has rules that restrict it, or partitions. Claims from other
-- queues need only work_level and work_ready.
SELECT EXISTS (SELECT 1 FROM main.croft_rule WHERE queue = ?1 AND (paused OR running > 0 OR starts > 0))
    OR EXISTS (SELECT 1 FROM main.croft_partition WHERE queue = ?1)

-- name: work_level
-- The next priority at which an item without a partition waits.
SELECT max(priority)
FROM main.croft_item
WHERE state = 'waiting' AND queue = ?1 AND partition = '' AND priority < ?2

-- name: work_ready
-- The next items of one priority in partition ?7, after the item with ready ?4
-- and ID ?5.
SELECT
    id, queue, uniq, state, priority, ready, created, finished, attempts, tries, generation, checkpoint_at, error,
    token, grant_id, owner, instance, held, cause, ended, actor, note,
    acquired, renewed, deadline, ttl, progress, progress_at, terms,
    past, payload, checkpoint, result, guards, partition
FROM main.croft_item
WHERE state = 'waiting' AND queue = ?1 AND partition = ?7 AND priority = ?2 AND ready <= ?3 AND (ready, id) > (?4, ?5)
ORDER BY ready, id
LIMIT ?6

-- name: work_partition_level
-- The next priority at which a partition waits.
SELECT max(priority)
FROM main.croft_partition
WHERE queue = ?1 AND priority < ?2

-- name: work_turns
-- The next partitions of one priority, after the one that waits since ?4 and
-- has the name ?5.
SELECT name, since
FROM main.croft_partition
WHERE queue = ?1 AND priority = ?2 AND since <= ?3 AND (since, name) > (?4, ?5)
ORDER BY since, name
LIMIT ?6

-- name: work_wait
UPDATE main.croft_partition
SET since = ?4
WHERE queue = ?1 AND priority = ?2 AND name = ?3

-- name: work_wait_anew
-- After a change of the rule about partition ?2, or about each, all that it may
-- have kept waiting have their turn at ?3.
UPDATE main.croft_partition
SET since = ?3
WHERE queue = ?1 AND (?2 IN ('', '*') OR name = ?2) AND since > ?3

-- name: work_settle
UPDATE main.croft_partition
SET since = max(?4, (
    SELECT i.ready
    FROM main.croft_item i
    WHERE i.state = 'waiting' AND i.queue = ?1 AND i.partition = ?3 AND i.priority = ?2
    ORDER BY i.ready
    LIMIT 1))
WHERE queue = ?1 AND priority = ?2 AND name = ?3
    AND EXISTS (
        SELECT 1
        FROM main.croft_item i
        WHERE i.state = 'waiting' AND i.queue = ?1 AND i.partition = ?3 AND i.priority = ?2)

-- name: work_settle_empty
DELETE FROM main.croft_partition
WHERE queue = ?1 AND priority = ?2 AND name = ?3
    AND NOT EXISTS (
        SELECT 1
        FROM main.croft_item i
        WHERE i.state = 'waiting' AND i.queue = ?1 AND i.partition = ?3 AND i.priority = ?2)

-- name: work_running
SELECT count(*)
FROM main.croft_item
WHERE state = 'running' AND queue = ?1

-- name: work_running_in
SELECT count(*)
FROM main.croft_item
WHERE state = 'running' AND queue = ?1 AND partition = ?2

-- name: work_starts
SELECT slot, n
FROM main.croft_start
WHERE queue = ?1 AND partition = ?2

-- name: work_start
INSERT INTO main.croft_start (queue, partition, slot, n)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (queue, partition, slot) DO UPDATE
SET n = n + excluded.n

-- name: work_start_forget
DELETE FROM main.croft_start
WHERE queue = ?1 AND partition = ?2 AND slot <= ?3

-- name: work_ruled
SELECT EXISTS (
    SELECT 1
    FROM main.croft_rule
    WHERE queue = ?1 AND partition <> '' AND (paused OR running > 0 OR starts > 0))

-- name: work_rule
SELECT queue, partition, paused, running, starts, span, actor, note, changed
FROM main.croft_rule
WHERE queue = ?1 AND partition = ?2

-- name: work_rules
-- The rules of all queues, or of one, behind the rule of queue ?2 and partition
-- ?3.
SELECT queue, partition, paused, running, starts, span, actor, note, changed
FROM main.croft_rule
WHERE (?1 = '' OR queue = ?1) AND (queue, partition) > (?2, ?3)
ORDER BY queue, partition
LIMIT ?4

-- name: work_rule_keep
INSERT INTO main.croft_rule (queue, partition, paused, running, starts, span, actor, note, changed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (queue, partition) DO UPDATE
SET paused = excluded.paused, running = excluded.running, starts = excluded.starts, span = excluded.span,
    actor = excluded.actor, note = excluded.note, changed = excluded.changed
