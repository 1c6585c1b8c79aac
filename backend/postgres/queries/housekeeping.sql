-- Statements that delete old rows.

-- name: sweep
-- One step of housekeeping among leases. $4 is the key after which it begins,
-- or NULL to go on where the last such step ended.
SELECT dropped, coalesce(swept_to, $4, ''), at_end
FROM croft.sweep_v1($1, $2, $3, $4, $5)
WHERE croft.version_19()

-- name: work_prunable
-- Locks the oldest items that may be pruned, and all their effects. The last
-- condition on finished lets the server use the index item_finished. The cross
-- join makes the server run locked, whose rows nobody reads.
WITH old AS MATERIALIZED (
    SELECT i.id
    FROM croft.item i
    WHERE i.finished IS NOT NULL
      AND (i.state IN ('done', 'cancelled') AND i.finished <= $1 OR i.state = 'dead' AND i.finished <= $2)
      AND i.finished <= greatest($1::bigint, $2::bigint)
      AND NOT EXISTS (
          SELECT FROM croft.effect e
          WHERE e.item = i.id AND e.state IN ('pending', 'unknown'))
    ORDER BY i.finished
    LIMIT $3
    FOR UPDATE SKIP LOCKED
), locked AS MATERIALIZED (
    SELECT e.item
    FROM croft.effect e
    JOIN old ON e.item = old.id
    ORDER BY e.item, e.generation, e.name
    FOR UPDATE OF e
)
SELECT old.id::text
FROM old
CROSS JOIN (SELECT pg_catalog.count(*) FROM locked) AS all_locked

-- name: work_prune
-- Deletes these items, unless an operator has made one of their effects pending
-- meanwhile. Deletes old refusals, too.
WITH items AS (
    DELETE FROM croft.item i
    WHERE i.id = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json)::uuid))
      AND NOT EXISTS (
          SELECT FROM croft.effect e
          WHERE e.item = i.id AND e.state IN ('pending', 'unknown'))
    RETURNING i.id
), effects AS (
    DELETE FROM croft.effect e
    USING items
    WHERE e.item = items.id
), refusals AS (
    DELETE FROM croft.refusal r
    WHERE r.id = ANY (ARRAY(
        SELECT o.id
        FROM croft.refusal o
        WHERE o.at <= $2
        ORDER BY o.at
        LIMIT $3
        FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT (SELECT pg_catalog.count(*) FROM items), (SELECT pg_catalog.count(*) FROM refusals)
