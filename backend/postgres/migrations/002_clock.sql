-- The clock of leases: whole microseconds since 1970, read when it is called and not when the transaction began.
CREATE FUNCTION croft.now_us() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;
