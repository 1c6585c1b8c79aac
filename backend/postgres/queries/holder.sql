SELECT a.pid, coalesce(a.application_name, ''), a.state, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - a.xact_start) * 1000::double precision)::bigint
FROM pg_catalog.pg_stat_activity a JOIN pg_catalog.pg_locks l USING (pid)
WHERE l.relation = pg_catalog.to_regclass($1)::pg_catalog.oid AND a.pid <> pg_catalog.pg_backend_pid() AND a.state IS NOT NULL AND a.xact_start IS NOT NULL
ORDER BY a.state LIKE 'idle in transaction%' DESC, a.xact_start
LIMIT 1
