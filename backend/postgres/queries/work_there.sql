SELECT pg_catalog.to_regprocedure('croft.work_v1(bigint, integer, json, json, json)') IS NOT NULL
