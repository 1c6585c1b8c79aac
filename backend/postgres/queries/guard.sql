-- Statements of guards. A guard sends most of them in the caller's transaction,
-- whose search_path is not ours. So every name has its schema.

-- name: mark
-- Reads the mark. To lock it, the client appends FOR UPDATE. {…} stand for
-- names and conditions of the guarded table.
SELECT coalesce({key}, ''), coalesce({token}, 0)::bigint, coalesce({grant}, ''), coalesce({seq}, 0)::text
FROM {table}
WHERE {where}

-- name: move
-- Writes the mark. {…} stand for names and conditions of the guarded table, and
-- for the numbers of arguments.
UPDATE {table}
SET {key} = {new_key}::text, {token} = {new_token}::bigint,
    {grant} = {new_grant}::text, {seq} = {new_seq}::text::numeric
WHERE {where}

-- name: fence_enter
-- Creates a fence row that nobody has used yet.
INSERT INTO croft.fence (name) VALUES ($1)
ON CONFLICT (name) DO NOTHING

-- name: limit
-- Bounds the wait for locks by $1, and idleness by $2 unless the transaction
-- has a limit already. Returns the lock_timeout of before.
SELECT pg_catalog.current_setting('lock_timeout'),
       pg_catalog.set_config('lock_timeout', $1::text, true),
       pg_catalog.set_config('idle_in_transaction_session_timeout',
           CASE pg_catalog.current_setting('idle_in_transaction_session_timeout')
               WHEN '0' THEN $2::text
               ELSE pg_catalog.current_setting('idle_in_transaction_session_timeout')
           END, true)

-- name: unlimit
-- Restores the lock_timeout.
SELECT pg_catalog.set_config('lock_timeout', $1::text, true)

-- name: rekey
INSERT INTO croft.rekeying (target, from_key, from_token, to_key, actor, note)
VALUES ($1, $2, $3, $4, $5, $6)

-- name: rekeyed
SELECT at, from_key, actor, note
FROM croft.rekeying
WHERE target = $1
ORDER BY at DESC
LIMIT 1

-- name: holder
-- The transaction that probably has the mark's row locked. Row locks are not in
-- pg_locks, but the lock on the table is. Idle transactions come first, then
-- the oldest.
SELECT a.pid, coalesce(a.application_name, ''), a.state,
       (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - a.xact_start) * 1000::double precision)::bigint
FROM pg_catalog.pg_stat_activity a
JOIN pg_catalog.pg_locks l USING (pid)
WHERE l.relation = pg_catalog.to_regclass($1)::pg_catalog.oid
  AND a.pid <> pg_catalog.pg_backend_pid()
  AND a.state IS NOT NULL
  AND a.xact_start IS NOT NULL
ORDER BY a.state LIKE 'idle in transaction%' DESC, a.xact_start
LIMIT 1

-- name: lock
-- Until the transaction ends, nobody can add a trigger to the table or change
-- its owner.
LOCK TABLE croft.fence IN ROW EXCLUSIVE MODE

-- name: trusted
-- The first column says whether the use of a table can run code that Croft's
-- own table does not have: a rule, a check or the like. The second column names
-- a role that can have code run there, besides this role and superusers. It is
-- the owner of the table, of its schema or of a trigger's function, or nobody.
-- The schema public belongs to the owner of the database.
SELECT c.relkind <> 'r' OR c.relrowsecurity OR c.relchecks > 0
    OR EXISTS (SELECT FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid)
    OR EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid OR h.inhrelid = c.oid)
    OR EXISTS (
        SELECT FROM pg_catalog.pg_index i
        WHERE i.indrelid = c.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL))
    OR EXISTS (
        SELECT FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
        WHERE a.attrelid = c.oid
          AND (a.atthasdef OR y.typnamespace <> 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid)),
    coalesce((
        SELECT pg_catalog.min(o.rolname::text)
        FROM pg_catalog.pg_roles o
        WHERE o.rolname <> current_user
          AND NOT o.rolsuper
          AND (o.oid = c.relowner OR o.oid = s.owner OR o.oid IN (
              SELECT f.proowner
              FROM pg_catalog.pg_trigger t
              JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid
              WHERE t.tgrelid = c.oid))), '')
FROM pg_catalog.pg_class c
JOIN (
    SELECT n.oid,
           CASE pg_catalog.pg_get_userbyid(n.nspowner)::text
               WHEN 'pg_database_owner' THEN d.datdba
               ELSE n.nspowner
           END AS owner
    FROM pg_catalog.pg_namespace n
    JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
) s ON s.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1::text)::pg_catalog.oid
