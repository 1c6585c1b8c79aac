-- The clock of leases: whole microseconds since 1970, read when it is called and not when the transaction began.
CREATE FUNCTION croft.now_us() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- The first 32 bits of a grant's fingerprint, as a number: the same on every version of the server, unlike its own hashes.
CREATE FUNCTION croft.short(grant_id text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT ('x' || left(grant_id, 8))::bit(32)::integer $$;
