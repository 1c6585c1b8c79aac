-- The tables of the resources in SQLite and PostgreSQL, and their statements.
-- Package statements splits this file.

-- name: make_postgres
CREATE TABLE chaos_state (key text PRIMARY KEY, holds text NOT NULL);
CREATE TABLE chaos_applied (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text NOT NULL,
    id text NOT NULL
);

-- name: make_sqlite
CREATE TABLE chaos_state (key TEXT PRIMARY KEY, holds TEXT NOT NULL);
CREATE TABLE chaos_applied (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, id TEXT NOT NULL);

-- name: read
SELECT holds FROM chaos_state WHERE key = $1

-- name: write
INSERT INTO chaos_state (key, holds) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET holds = excluded.holds

-- name: apply
INSERT INTO chaos_applied (key, id) VALUES ($1, $2)

-- name: applied
SELECT id FROM chaos_applied WHERE key = $1 ORDER BY number
