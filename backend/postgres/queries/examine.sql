-- Statements of `croft doctor`.

-- name: examine
SELECT pg_catalog.current_setting('server_version'),
       pg_catalog.current_setting('server_version_num')::integer,
       pg_catalog.pg_is_in_recovery(),
       pg_catalog.current_setting('transaction_read_only') = 'on',
       pg_catalog.current_setting('synchronous_commit'),
       pg_catalog.current_setting('fsync'),
       pg_catalog.current_setting('full_page_writes'),
       pg_catalog.current_setting('synchronous_standby_names'),
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication),
       (SELECT pg_catalog.pg_encoding_to_char(encoding)
        FROM pg_catalog.pg_database
        WHERE datname = pg_catalog.current_database()),
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
       pg_catalog.to_regclass('croft.migration') IS NOT NULL,
       pg_catalog.current_setting('transaction_isolation'),
       coalesce((
           SELECT pg_catalog.pg_get_userbyid(nspowner)::text
           FROM pg_catalog.pg_namespace
           WHERE nspname = 'croft'), '')

-- name: clock
SELECT pg_catalog.clock_timestamp()

-- name: count
SELECT pg_catalog.count(*) FROM croft.lease

-- name: idle
-- Transactions that have locked rows of leases or guards, and have done nothing
-- for ten seconds.
SELECT pg_catalog.count(DISTINCT a.pid), coalesce(pg_catalog.min(a.pid), 0)
FROM pg_catalog.pg_stat_activity a
JOIN pg_catalog.pg_locks l USING (pid)
WHERE l.relation IN (
          pg_catalog.to_regclass('croft.lease')::pg_catalog.oid,
          pg_catalog.to_regclass('croft.fence')::pg_catalog.oid)
  AND l.mode <> 'AccessShareLock'
  AND a.state LIKE 'idle in transaction%'
  AND a.state_change < pg_catalog.clock_timestamp() - interval '10 seconds'
