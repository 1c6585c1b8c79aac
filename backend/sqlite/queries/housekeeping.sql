-- Statements that find and delete rows which nobody needs any more.

-- name: look
-- Looks at the next ?2 records after row ?1. Returns the last row it has seen,
-- how many it has seen, and how many of them were last needed at ?3 or before.
SELECT coalesce(max(id), ?1), count(*), coalesce(sum(quiet <= ?3), 0)
FROM (
    SELECT id, quiet
    FROM main.croft_lease
    WHERE id > ?1
    ORDER BY id
    LIMIT ?2)

-- name: sweep
DELETE FROM main.croft_lease
WHERE id > ?1 AND id <= ?2 AND quiet <= ?3

-- name: last
SELECT coalesce(max(id), 0)
FROM main.croft_lease

-- name: work_old
-- ?1 is the limit for items that are done or cancelled, ?2 the one for dead
-- items. The first two conditions let SQLite use the index on finished. An item
-- stays while one of its effects is still to be delivered or settled.
SELECT id
FROM main.croft_item
WHERE finished IS NOT NULL AND finished <= max(?1, ?2)
    AND (state IN ('done', 'cancelled') AND finished <= ?1 OR state = 'dead' AND finished <= ?2)
    AND NOT EXISTS (
        SELECT 1
        FROM main.croft_effect e
        WHERE e.item = croft_item.id AND e.state IN ('pending', 'unknown'))
ORDER BY finished
LIMIT ?3

-- name: work_forget
DELETE FROM main.croft_item
WHERE id = ?1

-- name: work_forget_effects
DELETE FROM main.croft_effect
WHERE item = ?1

-- name: work_forget_refusals
DELETE FROM main.croft_refusal
WHERE id IN (
    SELECT id
    FROM main.croft_refusal
    WHERE at <= ?1
    ORDER BY at
    LIMIT ?2)
