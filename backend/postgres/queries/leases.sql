-- Statements of the lease store.
--
-- The functions are in the migrations. A statement that calls one of them also
-- calls version_19. A schema of an older version lacks that function. So the
-- statement fails, and the client brings the schema up to date.

-- name: apply
-- Any batch of requests. $1 to $6 concern the whole call, the others are arrays
-- with one element for each request. See migrations/013_apply.sql.
SELECT croft.apply_v1(
    $1, $2, $3, $4, $5, $6,
    $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
WHERE croft.version_19()

-- name: acquire
-- One usual acquire that comes alone.
SELECT croft.acquire_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
WHERE croft.version_19()

-- name: release
-- One release that comes alone.
SELECT croft.release_v1($1, $2, $3, $4, $5)
WHERE croft.version_19()

-- name: get
SELECT croft.pack(l), croft.past_of(l.key)::text
FROM croft.lease l
WHERE l.key = $1 AND croft.version_19()

-- name: list
-- $1 is the prefix, $2 the last key of the page before. The client stops at the
-- first key without the prefix.
SELECT l.key, croft.pack(l)
FROM croft.lease l
WHERE l.key >= $1 AND l.key > $2 AND croft.version_19()
ORDER BY l.key
LIMIT $3

-- name: now
SELECT croft.now_us()
WHERE croft.version_19()

-- name: wait
-- Puts a client into the queues of keys.
SELECT croft.wait_v1($1, $2, $3, $4)
WHERE croft.version_19()

-- name: leave
-- Takes a client out of the queues of keys.
DELETE FROM croft.waiter w
WHERE w.id = $1 AND w.key = ANY ($2)

-- name: listen
LISTEN "croft.wake"

-- name: probe
-- A listener sends itself this notification, to see whether it arrives.
SELECT pg_catalog.pg_notify('croft.wake', $1)
