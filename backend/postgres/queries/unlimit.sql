SELECT pg_catalog.set_config('lock_timeout', $1::text, true)
