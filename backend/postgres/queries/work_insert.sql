INSERT INTO croft.item AS i
SELECT n.* FROM pg_catalog.json_populate_recordset(NULL::croft.item, $1::text::json) AS n ORDER BY n.id
ON CONFLICT DO NOTHING
RETURNING i.id::text
