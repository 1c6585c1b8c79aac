SELECT count(DISTINCT a.pid), coalesce(min(a.pid), 0)
FROM pg_stat_activity a JOIN pg_locks l USING (pid)
WHERE l.relation IN (to_regclass('croft.lease'), to_regclass('croft.fence')) AND l.mode <> 'AccessShareLock'
  AND a.state LIKE 'idle in transaction%' AND a.state_change < clock_timestamp() - interval '10 seconds'
