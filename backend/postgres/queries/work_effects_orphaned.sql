SELECT pg_catalog.row_to_json(l)::text FROM (
    SELECT e.item, e.generation, e.name, e.queue, e.dest, e.at_most_once, e.token, e.grant_id, e.owner, e.state, e.attempts, e.ready, e.sender, e.created, e.settled, e.error, e.actor, e.note, e.body
    FROM croft.effect e
    WHERE ($1::text::uuid IS NULL OR e.item = $1::text::uuid) AND ($2 = '' OR e.queue = $2)
      AND ($3::text::json IS NULL OR e.state = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($3::text::json))))
      AND e.state = 'unknown' AND e.ready <= $4::bigint
      AND ($5::text::uuid IS NULL OR (e.item, e.generation, e.name) > ($5::text::uuid, $6::integer, $7::text))
    ORDER BY e.item, e.generation, e.name LIMIT $8) AS l
