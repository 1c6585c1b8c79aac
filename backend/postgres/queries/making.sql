SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('lock_timeout', '30s', true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', '30s', true)
