SELECT pg_catalog.count(*) FROM croft.lease
