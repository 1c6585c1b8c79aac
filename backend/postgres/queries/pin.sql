-- Sets the path for the whole session, unless a pooler stands in between: then the
-- session is not this client's own, and others would find it changed. A pooler
-- gives its clients a process number of its own.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false) WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) $1::integer
