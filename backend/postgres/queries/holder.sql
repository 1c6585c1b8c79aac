SELECT a.pid, coalesce(a.application_name, ''), a.state, (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint
FROM pg_stat_activity a JOIN pg_locks l USING (pid)
WHERE l.relation = to_regclass($1) AND a.pid <> pg_backend_pid() AND a.state IS NOT NULL AND a.xact_start IS NOT NULL
ORDER BY a.state LIKE 'idle in transaction%' DESC, a.xact_start
LIMIT 1
