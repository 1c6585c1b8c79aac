SELECT pg_catalog.to_regclass($1::text) IS NOT NULL
