-- Statements of the ledger about items and refusals, and about waiting workers.
-- Effects are in effects.sql.
--
-- Lists travel as JSON, because every driver can carry a text. Each row of an
-- answer is one JSON object. Statements that lock several rows do so in the
-- order of their identity, so that two of them do not deadlock.

-- name: work_apply
-- The fast path: adds, heartbeats and completions of a batch.
SELECT w::text
FROM croft.work_v1($1, $2, $3::text::json, $4::text::json, $5::text::json) AS w
WHERE croft.version_19()

-- name: work_claim
SELECT c::text
FROM croft.claim_v2($1, $2::text::json, $3, $4::text::uuid, $5, $6, $7, $8, $9) AS c
WHERE croft.version_19()

-- name: work_get
SELECT pg_catalog.row_to_json(i)::text
FROM croft.item i
WHERE i.id = $1::text::uuid

-- name: work_list
-- A page of items, without payload, checkpoint, result and past. {after} and
-- {order} are > and ASC, or < and DESC for the newest first.
SELECT pg_catalog.row_to_json(l)::text
FROM (
    SELECT i.id, i.queue, i.uniq, i.state, i.priority, i.ready, i.created, i.finished,
           i.attempts, i.tries, i.generation, i.checkpoint_at, i.error,
           i.token, i.grant_id, i.owner, i.instance, i.held, i.cause, i.ended, i.actor, i.note,
           i.acquired, i.renewed, i.deadline, i.ttl, i.progress, i.progress_at, i.terms, i.guards, i.partition
    FROM croft.item i
    WHERE ($1 = '' OR i.queue = $1)
      AND ($2::text::json IS NULL
           OR i.state = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($2::text::json))))
      AND ($3 = '' OR i.owner = $3)
      AND ($4::text::uuid IS NULL OR i.id {after} $4::text::uuid)
    ORDER BY i.id {order}
    LIMIT $5) AS l

-- name: work_list_few
-- The same for states other than done. These items are few among any number of
-- done ones. Each part of the union can use a partial index without done items.
-- If there are many such items, the server reads them in the order of their
-- IDs.
SELECT pg_catalog.row_to_json(l)::text
FROM (
    SELECT i.id, i.queue, i.uniq, i.state, i.priority, i.ready, i.created, i.finished,
           i.attempts, i.tries, i.generation, i.checkpoint_at, i.error,
           i.token, i.grant_id, i.owner, i.instance, i.held, i.cause, i.ended, i.actor, i.note,
           i.acquired, i.renewed, i.deadline, i.ttl, i.progress, i.progress_at, i.terms, i.guards, i.partition
    FROM croft.item i
    WHERE i.id IN (
        (SELECT w.id
         FROM croft.item w
         WHERE w.state = 'waiting'
           AND $2::text::jsonb @> '"waiting"'
           AND ($1 = '' OR w.queue = $1)
           AND ($3 = '' OR w.owner = $3)
           AND ($4::text::uuid IS NULL OR w.id {after} $4::text::uuid)
         ORDER BY w.id {order}
         LIMIT $5)
        UNION ALL
        (SELECT r.id
         FROM croft.item r
         WHERE r.state = 'running'
           AND $2::text::jsonb @> '"running"'
           AND ($1 = '' OR r.queue = $1)
           AND ($3 = '' OR r.owner = $3)
           AND ($4::text::uuid IS NULL OR r.id {after} $4::text::uuid)
         ORDER BY r.id {order}
         LIMIT $5)
        UNION ALL
        (SELECT d.id
         FROM croft.item d
         WHERE d.state IN ('dead', 'cancelled')
           AND $2::text::jsonb @> pg_catalog.to_jsonb(d.state)
           AND ($1 = '' OR d.queue = $1)
           AND ($3 = '' OR d.owner = $3)
           AND ($4::text::uuid IS NULL OR d.id {after} $4::text::uuid)
         ORDER BY d.id {order}
         LIMIT $5))
    ORDER BY i.id {order}
    LIMIT $5) AS l

-- name: work_items
-- Locks items. Only an add needs the payload.
SELECT pg_catalog.row_to_json(l)::text
FROM (
    SELECT i.id, i.queue, i.uniq, i.state, i.priority, i.ready, i.created, i.finished,
           i.attempts, i.tries, i.generation, i.checkpoint, i.checkpoint_at, i.result, i.error,
           i.token, i.grant_id, i.owner, i.instance, i.held, i.cause, i.ended, i.actor, i.note,
           i.acquired, i.renewed, i.deadline, i.ttl, i.progress, i.progress_at, i.terms, i.past, i.guards, i.partition,
           CASE WHEN $2::boolean THEN i.payload END AS payload
    FROM croft.item i
    WHERE i.id = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json)::uuid))
    ORDER BY i.id
    FOR UPDATE) AS l

-- name: work_uniques
-- Locks items by their idempotency keys.
SELECT pg_catalog.row_to_json(i)::text
FROM croft.item i
JOIN pg_catalog.json_to_recordset($1::text::json) AS u(queue text, uniq text)
    ON i.queue = u.queue AND i.uniq = u.uniq
ORDER BY i.id
FOR UPDATE OF i

-- name: work_blocked
-- The items that another transaction has locked now.
SELECT i.id::text
FROM croft.item i
WHERE i.id = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json)::uuid))
  AND i.id NOT IN (
      SELECT free.id
      FROM (
          SELECT f.id
          FROM croft.item f
          WHERE f.id = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json)::uuid))
          FOR UPDATE SKIP LOCKED) AS free)

-- name: work_insert
-- Returns the items that did not exist yet. Triggers lock the partitions in the
-- order of the rows, so two adds to the same ones do not deadlock.
INSERT INTO croft.item AS i
SELECT n.*
FROM pg_catalog.json_populate_recordset(NULL::croft.item, $1::text::json) AS n
ORDER BY n.queue, n.partition, n.priority, n.id
ON CONFLICT DO NOTHING
RETURNING i.id::text

-- name: work_update
-- An item's queue, idempotency key, partition, priority, limit of attempts,
-- time of creation, payload and guards never change.
UPDATE croft.item i
SET state = n.state, ready = n.ready, finished = n.finished, attempts = n.attempts, generation = n.generation,
    checkpoint = n.checkpoint, checkpoint_at = n.checkpoint_at, result = n.result, error = n.error,
    token = n.token, grant_id = n.grant_id, owner = n.owner, instance = n.instance,
    held = n.held, cause = n.cause, ended = n.ended, actor = n.actor, note = n.note,
    acquired = n.acquired, renewed = n.renewed, deadline = n.deadline, ttl = n.ttl,
    progress = n.progress, progress_at = n.progress_at, terms = n.terms, past = n.past
FROM pg_catalog.json_populate_recordset(NULL::croft.item, $1::text::json) AS n
WHERE i.id = n.id

-- name: work_refuse
INSERT INTO croft.refusal (
    at, item, queue, verb, why,
    presented, presented_grant, presented_owner, newest, newest_grant, newest_owner)
SELECT
    at, item, queue, verb, why,
    presented, presented_grant, presented_owner, newest, newest_grant, newest_owner
FROM pg_catalog.json_populate_recordset(NULL::croft.refusal, $1::text::json)

-- name: work_refusals
SELECT pg_catalog.row_to_json(r)::text
FROM croft.refusal r
WHERE ($1 = '' OR r.item = $1)
  AND ($2 = '' OR r.queue = $2)
  AND r.at >= $3
  AND ($4::bigint = 0 OR r.id < $4)
ORDER BY r.id DESC
LIMIT $5

-- name: work_stats
SELECT pg_catalog.row_to_json(s)::text
FROM (
    SELECT queue, 'item' AS kind, state,
           ready > $1::bigint AS later,
           coalesce(deadline <= $1::bigint, false) AS lapsed,
           pg_catalog.count(*) AS n,
           pg_catalog.min(ready) AS oldest,
           pg_catalog.min(renewed) AS heartbeat,
           pg_catalog.min(greatest(acquired, progress_at, checkpoint_at)) AS progress
    FROM croft.item
    WHERE ($2 = '' OR queue = $2)
    GROUP BY 1, 3, 4, 5
    UNION ALL
    SELECT queue, 'effect', state, false, false, pg_catalog.count(*), NULL, NULL, NULL
    FROM croft.effect
    WHERE ($2 = '' OR queue = $2)
    GROUP BY 1, 3
    UNION ALL
    SELECT queue, 'refusal', '', false, false, pg_catalog.count(*), NULL, NULL, NULL
    FROM croft.refusal
    WHERE queue <> '' AND ($2 = '' OR queue = $2)
    GROUP BY 1) AS s

-- name: work_backlog
-- Counts what is open, at the time $1. Items without progress since $2 count as
-- stalled. $3 and $4 bound the counted dead items and the counted effects. Each
-- part reads a partial index, so finished items cost nothing.
SELECT pg_catalog.row_to_json(s)::text
FROM (
    SELECT 'item' AS kind, queue AS name, state, ready <= $1::bigint AS past,
           pg_catalog.count(*) AS n, 0 AS stalled, pg_catalog.min(ready) AS oldest,
           NULL::bigint AS heartbeat, NULL::bigint AS progress
    FROM croft.item
    WHERE state = 'waiting'
    GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'item', queue, state, coalesce(deadline <= $1::bigint, false),
           pg_catalog.count(*),
           pg_catalog.count(*) FILTER (WHERE greatest(acquired, progress_at, checkpoint_at) <= $2::bigint),
           NULL, pg_catalog.min(renewed), pg_catalog.min(greatest(acquired, progress_at, checkpoint_at))
    FROM croft.item
    WHERE state = 'running'
    GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'item', d.queue, d.state, true, pg_catalog.count(*), 0, NULL, NULL, NULL
    FROM (
        SELECT queue, state
        FROM croft.item
        WHERE state IN ('dead', 'cancelled')
        ORDER BY queue, id
        LIMIT $3) AS d
    GROUP BY 2, 3
    UNION ALL
    SELECT 'effect', e.dest, e.state, e.ready <= $1::bigint, pg_catalog.count(*), 0, pg_catalog.min(e.ready), NULL, NULL
    FROM (
        (SELECT dest, state, ready
         FROM croft.effect
         WHERE state = 'pending'
         ORDER BY ready, item, generation, name
         LIMIT $4)
        UNION ALL
        (SELECT dest, state, ready
         FROM croft.effect
         WHERE state = 'unknown'
         ORDER BY ready, item, generation, name
         LIMIT $4)) AS e
    GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'effect', f.dest, 'failed', true, pg_catalog.count(*), 0, pg_catalog.min(f.settled), NULL, NULL
    FROM (
        SELECT dest, settled
        FROM croft.effect
        WHERE state = 'failed'
        ORDER BY settled
        LIMIT $4) AS f
    GROUP BY 2) AS s

-- name: work_by_index
-- Makes the rest of the transaction use indexes. Before the first ANALYZE the
-- server believes that tables are small.
SELECT pg_catalog.set_config('enable_seqscan', 'off', true),
       pg_catalog.set_config('enable_hashjoin', 'off', true),
       pg_catalog.set_config('enable_mergejoin', 'off', true)

-- name: work_arm
-- Arms queues: the next change there notifies. A queue that stays armed for two
-- more minutes is not touched. A locked row of idle keeps others from
-- notifying, so the statement locks only rows that it must change.
INSERT INTO croft.idle AS i (queue, wait_until)
SELECT q, pg_catalog.clock_timestamp() + interval '5 minutes'
FROM pg_catalog.json_array_elements_text($1::text::json) AS q
WHERE NOT EXISTS (
    SELECT FROM croft.idle n
    WHERE n.queue = q AND n.wait_until >= pg_catalog.clock_timestamp() + interval '2 minutes')
ORDER BY q
ON CONFLICT (queue) DO UPDATE
SET wait_until = excluded.wait_until
WHERE i.wait_until < pg_catalog.clock_timestamp() + interval '2 minutes'

-- name: work_wake
-- Notifies the waiters of armed queues, and disarms these.
SELECT croft.wake_v1(ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json)))
WHERE croft.version_19()

-- name: work_notify
-- Notifies, whether the queues are armed or not.
SELECT pg_catalog.pg_notify('croft.work', q)
FROM pg_catalog.json_array_elements_text($1::text::json) AS q

-- name: work_listen
LISTEN "croft.work"
