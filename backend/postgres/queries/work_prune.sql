WITH items AS (
    DELETE FROM croft.item i WHERE i.id = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json)::uuid))
      AND NOT EXISTS (SELECT FROM croft.effect e WHERE e.item = i.id AND e.state IN ('pending', 'unknown')) RETURNING i.id
), effects AS (
    DELETE FROM croft.effect e USING items WHERE e.item = items.id
), refusals AS (
    DELETE FROM croft.refusal r WHERE r.id = ANY (ARRAY(SELECT o.id FROM croft.refusal o WHERE o.at <= $2 ORDER BY o.at LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING 1
)
SELECT (SELECT pg_catalog.count(*) FROM items), (SELECT pg_catalog.count(*) FROM refusals)
