SELECT pg_catalog.current_setting('server_version'), pg_catalog.current_setting('server_version_num')::integer, pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on',
       pg_catalog.current_setting('synchronous_commit'), pg_catalog.current_setting('fsync'), pg_catalog.current_setting('full_page_writes'), pg_catalog.current_setting('synchronous_standby_names'),
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication),
       (SELECT pg_catalog.pg_encoding_to_char(encoding) FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()),
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
       pg_catalog.to_regclass('croft.migration') IS NOT NULL,
       pg_catalog.current_setting('transaction_isolation'),
       coalesce((SELECT pg_catalog.pg_get_userbyid(nspowner)::text FROM pg_catalog.pg_namespace WHERE nspname = 'croft'), '')
