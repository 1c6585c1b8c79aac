SELECT pg_catalog.row_to_json(e)::text FROM croft.effect e
WHERE e.state = 'pending' AND e.ready <= $1 AND ($2::text::json IS NULL OR e.dest = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($2::text::json))))
ORDER BY e.ready, e.item, e.generation, e.name LIMIT $3 FOR UPDATE SKIP LOCKED
