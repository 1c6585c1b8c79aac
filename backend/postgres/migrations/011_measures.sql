-- In Croft's functions all names mean the server's own objects, whatever the
-- caller's search_path. Otherwise a role that may create objects in a schema on
-- that path could have its function or operator run as the caller. Most
-- functions set the path for themselves. The server merges some functions into
-- the calling statement. These cannot set the path, and name the schema of
-- everything they use.

-- The clock of leases, in whole microseconds since 1970. It is read when the
-- function is called, not when the transaction began. A double has 53 bits,
-- which are exact to the microsecond until 2255.
CREATE OR REPLACE FUNCTION croft.now_us() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint
$$;

-- The first 32 bits of a grant's fingerprint, as a number. Unlike the server's
-- own hashes, it is the same on every version of the server.
CREATE OR REPLACE FUNCTION croft.short(grant_id text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT ('x' OPERATOR(pg_catalog.||) pg_catalog.left(grant_id, 8))::bit(32)::integer $$;

-- Version 10 of the schema has no grid and no checkpoint.
ALTER TABLE croft.lease ADD COLUMN IF NOT EXISTS grid bigint;
ALTER TABLE croft.lease ADD COLUMN IF NOT EXISTS checkpoint text NOT NULL DEFAULT '';

-- A record as clients read it: one text, whose fields are separated by a
-- character that is in none of them. Several columns would cost the server more
-- than their contents.
CREATE OR REPLACE FUNCTION croft.pack(l croft.lease) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT pg_catalog.concat_ws(E'\x1f',
        l.token, l.grant_id, l.owner, l.instance, l.state, l.cause, l.ended, l.actor, l.note,
        l.acquired, l.renewed, l.deadline, l.ttl, l.every,
        coalesce(l.succeeded::pg_catalog.text, ''), coalesce(l.grid::pg_catalog.text, ''),
        coalesce(l.hold_until::pg_catalog.text, ''),
        l.guards, l.progress, coalesce(l.progress_at::pg_catalog.text, ''), l.checkpoint, l.terms, l.awaited)
$$;

-- The transfers before a key's newest one, the oldest first. The limit leaves
-- out transfers of an earlier record of the key that somebody deleted by hand.
CREATE OR REPLACE FUNCTION croft.past_of(of_key text) RETURNS json
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(json_agg(json_build_object(
        'token', p.token, 'grant', p.grant_id, 'owner', p.owner, 'instance', p.instance,
        'state', p.state, 'cause', p.cause, 'actor', p.actor, 'note', p.note,
        'acquired', p.acquired, 'finished', p.finished, 'ended', p.ended) ORDER BY p.token), '[]')
    FROM (
        SELECT q.*
        FROM croft.past q, croft.lease l
        WHERE l.key = of_key AND q.key = of_key AND q.token < l.token
        ORDER BY q.token DESC
        LIMIT (SELECT least(m.transfers - 1, 31) FROM croft.lease m WHERE m.key = of_key)) AS p
$$;

-- Whether the law can have written a row; see tenure.Record.Check. If not,
-- somebody has changed it by hand. Nothing is decided from such a row, and the
-- client says so. Only functions that set the path call this one.
CREATE OR REPLACE FUNCTION croft.sound(l croft.lease) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT l.token BETWEEN 1 AND 9007199254740991 AND pg_catalog.length(l.grant_id) = 32
        AND l.cause IN ('first', 'released', 'expired', 'handoff', 'operator', 'cancelled', 'recovery')
        AND CASE l.state
            WHEN 'held' THEN l.ended = '' WHEN 'reserved' THEN l.ended = ''
            WHEN 'free' THEN l.ended IN ('released', 'failed') OR l.ended = '' AND l.cause = 'cancelled' ELSE false END
        AND (l.state = 'free' OR l.ttl BETWEEN 10000 AND 2592000000000)
        AND (l.every BETWEEN 0 AND 31622400000000 OR l.every = 6307200000000000)
        -- No time is further away, so croft.due and sweeps do not overflow.
        AND coalesce(l.succeeded, 1) BETWEEN -62135596799999999 AND 9007199254740991
        AND coalesce(l.grid, 1) BETWEEN -62135596799999999 AND 9007199254740991
        -- Clients can decode it, and it has at most 1024 bytes.
        AND (l.checkpoint = '' OR pg_catalog.length(l.checkpoint) <= 1368 AND pg_catalog.length(l.checkpoint) % 4 = 0
            AND l.checkpoint ~ '^[A-Za-z0-9+/]+={0,2}$')
$$;

-- When the slot of a key's last success ends: see tenure.Record.Due. NULL if
-- nothing has succeeded. The row is sound, and the period is more than 0.
CREATE OR REPLACE FUNCTION croft.due(l croft.lease, period bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    -- % has the sign of its left side.
    SELECT l.succeeded + period - ((l.succeeded - m.middle + period / 2) % period + period) % period
    FROM (SELECT CASE WHEN l.every = period THEN coalesce(l.grid, l.succeeded) ELSE l.succeeded END) AS m(middle)
$$;
