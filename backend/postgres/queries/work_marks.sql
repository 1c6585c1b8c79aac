SELECT pg_catalog.json_build_object('key', d.key, 'token', d.token, 'grant', d.grant_id)::text FROM croft.dispatcher d
WHERE d.key = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json))) ORDER BY d.key FOR UPDATE
