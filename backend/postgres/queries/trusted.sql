-- Who besides this role and superusers can have code run by whoever uses a table:
-- the owner of the table or of its schema, or of a trigger's function. Empty if
-- nobody can.
SELECT coalesce((
    SELECT pg_catalog.min(o.rolname::text) FROM pg_catalog.pg_roles o
    WHERE o.rolname <> current_user AND NOT o.rolsuper AND (o.oid = c.relowner OR o.oid = n.nspowner OR o.oid IN (
        SELECT f.proowner FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid WHERE t.tgrelid = c.oid))), '')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1::text)::pg_catalog.oid
