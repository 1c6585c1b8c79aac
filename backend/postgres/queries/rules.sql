-- Statements about the rules of queues, and claims from queues that have rules
-- or partitions. Lists and rows travel as in work.sql.

-- name: work_claim_enter
-- Keeps the rules as they are until the transaction ends. Returns the level of
-- isolation.
SELECT pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtext('croft.rule'), 0)::text,
       pg_catalog.current_setting('transaction_isolation')

-- name: work_govern_enter
-- Waits until no claim is under way, and lets none begin.
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('croft.rule'), 0)::text

-- name: work_rule_changes
-- Makes claims in transactions with older snapshots fail: see claim_v2.
INSERT INTO croft.rule (queue, partition, paused, running, starts, span, actor, note, changed)
VALUES ('', '', false, 0, 0, 0, '', '', $1)
ON CONFLICT (queue, partition) DO UPDATE
SET changed = excluded.changed

-- name: work_limited
-- The queues with rules that restrict them. Claims from each go one after the
-- other.
SELECT DISTINCT r.queue
FROM croft.rule r
JOIN pg_catalog.json_array_elements_text($1::text::json) AS q ON r.queue = q
WHERE r.paused OR r.running > 0 OR r.starts > 0
ORDER BY r.queue

-- name: work_turn_take
-- Lets one claim at a time through the rules of a queue, and waits at most $2
-- milliseconds for it.
SELECT pg_catalog.set_config('lock_timeout', $2::text, true),
       pg_catalog.pg_advisory_xact_lock(
           pg_catalog.hashtext('croft.rule.queue'), pg_catalog.hashtext($1::text))::text

-- name: work_turn_try
SELECT pg_catalog.pg_try_advisory_xact_lock(
    pg_catalog.hashtext('croft.rule.queue'), pg_catalog.hashtext($1::text))

-- name: work_granted
SELECT pg_catalog.row_to_json(i)::text
FROM croft.item i
WHERE i.state = 'running'
  AND i.queue = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json)))
  AND i.grant_id = $2::text::uuid

-- name: work_ready
SELECT r::text
FROM croft.ready_v1($1::text, $2::integer, $3::bigint, $4::text::json, $5::integer) AS r
WHERE croft.version_19()

-- name: work_level
SELECT croft.level_v1($1::text, $2::integer)
WHERE croft.version_19()

-- name: work_turns
SELECT t::text
FROM croft.partitions_turns_v1($1::text, $2::integer, $3::bigint, $4::bigint, $5::text, $6::integer) AS t
WHERE croft.version_19()

-- name: work_grant
SELECT g::text
FROM croft.grant_v1($1::text::json) AS g
WHERE croft.version_19()

-- name: work_wait
SELECT croft.partitions_wait_v1($1::text, $2::integer, $3::text::json)::text
WHERE croft.version_19()

-- name: work_wait_anew
-- After a change of the rule about partition $2, or about each, all that it may
-- have kept waiting have their turn at $3.
UPDATE croft.partition p
SET since = $3
WHERE p.queue = $1 AND ($2 IN ('', '*') OR p.name = $2) AND p.since > $3

-- name: work_settle
SELECT croft.partitions_settle_v1($1::text, $2::integer, $3::text::json, $4::bigint)::text
WHERE croft.version_19()

-- name: work_running
-- The number of running items of each partition, or of the queue for ''.
SELECT pg_catalog.json_build_object('name', n.name, 'n', CASE
    WHEN n.name = '' THEN (
        SELECT pg_catalog.count(*)
        FROM croft.item i
        WHERE i.state = 'running' AND i.queue = $1::text)
    ELSE (
        SELECT pg_catalog.count(*)
        FROM croft.item i
        WHERE i.state = 'running' AND i.queue = $1::text AND i.partition = n.name) END)::text
FROM pg_catalog.json_array_elements_text($2::text::json) AS n(name)

-- name: work_starts
SELECT pg_catalog.row_to_json(s)::text
FROM croft.start s
WHERE s.queue = $1
  AND s.partition = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($2::text::json)))

-- name: work_start
INSERT INTO croft.start AS s (queue, partition, slot, n)
VALUES ($1, $2, $3, $4)
ON CONFLICT (queue, partition, slot) DO UPDATE
SET n = s.n + excluded.n

-- name: work_start_forget
DELETE FROM croft.start s
WHERE s.queue = $1 AND s.partition = $2 AND s.slot <= $3

-- name: work_ruled
SELECT EXISTS (
    SELECT FROM croft.rule r
    WHERE r.queue = $1 AND r.partition <> '' AND (r.paused OR r.running > 0 OR r.starts > 0))

-- name: work_rules_of
SELECT pg_catalog.row_to_json(r)::text
FROM croft.rule r
WHERE r.queue = $1
  AND r.partition = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($2::text::json)))

-- name: work_rules
-- The rules of all queues, or of one, behind the rule of queue $2 and partition
-- $3.
SELECT pg_catalog.row_to_json(r)::text
FROM croft.rule r
WHERE ($1 = '' OR r.queue = $1)
  AND (r.queue, r.partition) > ($2, $3)
ORDER BY r.queue, r.partition
LIMIT $4

-- name: work_rule_keep
INSERT INTO croft.rule (queue, partition, paused, running, starts, span, actor, note, changed)
SELECT r.queue, r.partition, r.paused, r.running, r.starts, r.span, r.actor, r.note, r.changed
FROM pg_catalog.json_populate_record(NULL::croft.rule, $1::text::json) AS r
ON CONFLICT (queue, partition) DO UPDATE
SET paused = excluded.paused, running = excluded.running, starts = excluded.starts, span = excluded.span,
    actor = excluded.actor, note = excluded.note, changed = excluded.changed
