SELECT pg_catalog.count(DISTINCT a.pid), coalesce(pg_catalog.min(a.pid), 0)
FROM pg_catalog.pg_stat_activity a JOIN pg_catalog.pg_locks l USING (pid)
WHERE l.relation IN (pg_catalog.to_regclass('croft.lease')::pg_catalog.oid, pg_catalog.to_regclass('croft.fence')::pg_catalog.oid) AND l.mode <> 'AccessShareLock'
  AND a.state LIKE 'idle in transaction%' AND a.state_change < pg_catalog.clock_timestamp() - interval '10 seconds'
