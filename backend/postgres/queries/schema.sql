-- Statements that make the schema, look for it, and begin a session.

-- name: pin
-- Sets the path for the whole session. It must not do so if a pooler is in
-- between: then the session is not this client's own, and other clients would
-- find it changed. A pooler gives its clients a process number of its own, so
-- the numbers differ.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)
WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) $1::integer

-- name: there
SELECT pg_catalog.to_regclass($1::text) IS NOT NULL

-- name: work_there
SELECT pg_catalog.to_regprocedure('croft.version_19()') IS NOT NULL

-- name: making
-- Settings of the transaction that makes the schema.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('lock_timeout', '30s', true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', '30s', true)

-- name: prepare
CREATE SCHEMA IF NOT EXISTS croft;
CREATE TABLE IF NOT EXISTS croft.migration (
    version integer PRIMARY KEY,
    name    text NOT NULL,
    applied timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- name: version
SELECT coalesce(pg_catalog.max(version), 0)
FROM croft.migration

-- name: migrated
INSERT INTO croft.migration (version, name) VALUES ($1, $2)
