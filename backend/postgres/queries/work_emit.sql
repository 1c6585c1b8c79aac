INSERT INTO croft.effect SELECT n.* FROM pg_catalog.json_populate_recordset(NULL::croft.effect, $1::text::json) AS n ON CONFLICT DO NOTHING
