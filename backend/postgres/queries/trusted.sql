-- Whether the use of a table can run code that Croft's own table has none of (a
-- rule, a check or the like), and which role besides this one and superusers
-- can have code run there: the owner of the table, of its schema or of a
-- trigger's function, or nobody. The schema public belongs to the owner of the
-- database.
SELECT c.relkind <> 'r' OR c.relrowsecurity OR c.relchecks > 0
    OR EXISTS (SELECT FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid)
    OR EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid OR h.inhrelid = c.oid)
    OR EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL))
    OR EXISTS (SELECT FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
        WHERE a.attrelid = c.oid AND (a.atthasdef OR y.typnamespace <> 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid)),
    coalesce((
        SELECT pg_catalog.min(o.rolname::text) FROM pg_catalog.pg_roles o
        WHERE o.rolname <> current_user AND NOT o.rolsuper AND (o.oid = c.relowner OR o.oid = s.owner OR o.oid IN (
            SELECT f.proowner FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid WHERE t.tgrelid = c.oid))), '')
FROM pg_catalog.pg_class c
JOIN (
    SELECT n.oid, CASE pg_catalog.pg_get_userbyid(n.nspowner)::text WHEN 'pg_database_owner' THEN d.datdba ELSE n.nspowner END AS owner
    FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
) s ON s.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1::text)::pg_catalog.oid
