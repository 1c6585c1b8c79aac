SELECT pg_catalog.current_setting('lock_timeout'),
       pg_catalog.set_config('lock_timeout', $1::text, true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', CASE pg_catalog.current_setting('idle_in_transaction_session_timeout')
           WHEN '0' THEN $2::text ELSE pg_catalog.current_setting('idle_in_transaction_session_timeout') END, true)
