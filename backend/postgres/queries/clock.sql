SELECT pg_catalog.clock_timestamp()
