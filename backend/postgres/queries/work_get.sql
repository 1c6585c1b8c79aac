SELECT pg_catalog.row_to_json(i)::text FROM croft.item i WHERE i.id = $1::text::uuid
