SELECT pg_catalog.row_to_json(e)::text FROM croft.effect AS e JOIN pg_catalog.json_to_recordset($1::text::json) AS n(item uuid, generation integer, name text)
    ON e.item = n.item AND e.generation = n.generation AND e.name = n.name
ORDER BY e.item, e.generation, e.name FOR UPDATE OF e
