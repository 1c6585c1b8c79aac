-- Statements of the ledger about effects, and about the marks of dispatchers.

-- name: work_emit
INSERT INTO croft.effect
SELECT n.*
FROM pg_catalog.json_populate_recordset(NULL::croft.effect, $1::text::json) AS n
ON CONFLICT DO NOTHING

-- name: work_effects
-- A page of effects. With $4, only those that are orphaned at that time.
SELECT pg_catalog.row_to_json(l)::text
FROM (
    SELECT e.item, e.generation, e.name, e.queue, e.dest, e.at_most_once,
           e.token, e.grant_id, e.owner, e.state, e.attempts, e.ready, e.sender,
           e.created, e.settled, e.error, e.actor, e.note, e.body
    FROM croft.effect e
    WHERE ($1::text::uuid IS NULL OR e.item = $1::text::uuid)
      AND ($2 = '' OR e.queue = $2)
      AND ($3::text::json IS NULL
           OR e.state = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($3::text::json))))
      AND ($4::bigint IS NULL OR e.state = 'unknown' AND e.ready <= $4)
      AND ($5::text::uuid IS NULL
           OR (e.item, e.generation, e.name) > ($5::text::uuid, $6::integer, $7::text))
    ORDER BY e.item, e.generation, e.name
    LIMIT $8) AS l

-- name: work_effects_orphaned
-- The same with $4 always set, so that the server can use the index
-- effect_open.
SELECT pg_catalog.row_to_json(l)::text
FROM (
    SELECT e.item, e.generation, e.name, e.queue, e.dest, e.at_most_once,
           e.token, e.grant_id, e.owner, e.state, e.attempts, e.ready, e.sender,
           e.created, e.settled, e.error, e.actor, e.note, e.body
    FROM croft.effect e
    WHERE ($1::text::uuid IS NULL OR e.item = $1::text::uuid)
      AND ($2 = '' OR e.queue = $2)
      AND ($3::text::json IS NULL
           OR e.state = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($3::text::json))))
      AND e.state = 'unknown' AND e.ready <= $4::bigint
      AND ($5::text::uuid IS NULL
           OR (e.item, e.generation, e.name) > ($5::text::uuid, $6::integer, $7::text))
    ORDER BY e.item, e.generation, e.name
    LIMIT $8) AS l

-- name: work_effects_by_id
-- Locks effects.
SELECT pg_catalog.row_to_json(e)::text
FROM croft.effect AS e
JOIN pg_catalog.json_to_recordset($1::text::json) AS n(item uuid, generation integer, name text)
    ON e.item = n.item AND e.generation = n.generation AND e.name = n.name
ORDER BY e.item, e.generation, e.name
FOR UPDATE OF e

-- name: work_effect_update
UPDATE croft.effect e
SET state = n.state, attempts = n.attempts, ready = n.ready, sender = n.sender,
    settled = n.settled, error = n.error, actor = n.actor, note = n.note
FROM pg_catalog.json_populate_recordset(NULL::croft.effect, $1::text::json) AS n
WHERE e.item = n.item AND e.generation = n.generation AND e.name = n.name

-- name: work_take_any
-- Locks the effects that are due, and skips those that others have locked.
SELECT pg_catalog.row_to_json(e)::text
FROM croft.effect e
WHERE e.state = 'pending'
  AND e.ready <= $1
ORDER BY e.ready, e.item, e.generation, e.name
LIMIT $2
FOR UPDATE SKIP LOCKED

-- name: work_take
-- The same for the destinations in $3. Each has its own part of the index
-- effect_due, so one with a long backlog does not slow down the others.
SELECT pg_catalog.row_to_json(e)::text
FROM (SELECT DISTINCT pg_catalog.json_array_elements_text($3::text::json) AS dest) AS d
CROSS JOIN LATERAL (
    SELECT t.*
    FROM croft.effect t
    WHERE t.state = 'pending'
      AND t.dest = d.dest
      AND t.ready <= $1
    ORDER BY t.ready, t.item, t.generation, t.name
    LIMIT $2
    FOR UPDATE SKIP LOCKED) AS e
ORDER BY e.ready, e.item, e.generation, e.name
LIMIT $2

-- name: work_take_next
-- Locks the first open effect for a destination, if it is due and none is
-- unknown. If another transaction has it, none is taken. The caller has called
-- work_line_enter.
SELECT pg_catalog.row_to_json(e)::text
FROM (
    SELECT o.item, o.generation, o.name
    FROM croft.effect o
    WHERE o.state IN ('pending', 'unknown')
      AND o.dest = $2
    ORDER BY o.created, o.item, o.generation, o.name
    LIMIT 1) AS first
JOIN croft.effect e ON e.item = first.item AND e.generation = first.generation AND e.name = first.name
WHERE e.state = 'pending'
  AND e.ready <= $1
  AND NOT EXISTS (
      SELECT FROM croft.effect u
      WHERE u.state = 'unknown' AND u.dest = $2)
FOR UPDATE OF e SKIP LOCKED

-- name: work_line_enter
-- Lets one ordered taking at a time look at a destination. Otherwise a second
-- one would not see what the first is just taking.
SELECT pg_catalog.pg_advisory_xact_lock(
    pg_catalog.hashtext('croft.effect.line'), pg_catalog.hashtext($1::text))::text

-- name: work_mark_enter
-- Creates the marks of dispatchers that come for the first time.
INSERT INTO croft.dispatcher (key)
SELECT k
FROM pg_catalog.json_array_elements_text($1::text::json) AS k
ORDER BY k
ON CONFLICT DO NOTHING

-- name: work_marks
-- Locks the marks of dispatchers.
SELECT pg_catalog.json_build_object('key', d.key, 'token', d.token, 'grant', d.grant_id)::text
FROM croft.dispatcher d
WHERE d.key = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json)))
ORDER BY d.key
FOR UPDATE

-- name: work_mark
UPDATE croft.dispatcher
SET token = $2, grant_id = $3
WHERE key = $1
