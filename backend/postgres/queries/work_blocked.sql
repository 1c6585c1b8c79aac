SELECT i.id::text FROM croft.item i WHERE i.id = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json)::uuid))
    AND i.id NOT IN (SELECT free.id FROM (SELECT f.id FROM croft.item f WHERE f.id = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json)::uuid)) FOR UPDATE SKIP LOCKED) AS free)
