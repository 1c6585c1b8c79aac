SELECT current_setting('server_version'), current_setting('server_version_num')::integer, pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
       current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
       (SELECT count(*) FROM pg_stat_replication),
       (SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()),
       has_database_privilege(current_database(), 'CREATE'),
       to_regclass('croft.migration') IS NOT NULL,
       current_setting('transaction_isolation')
