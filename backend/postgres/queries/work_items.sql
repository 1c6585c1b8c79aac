SELECT pg_catalog.row_to_json(l)::text FROM (
    SELECT i.id, i.queue, i.uniq, i.state, i.priority, i.ready, i.created, i.finished, i.attempts, i.tries, i.generation, i.checkpoint, i.checkpoint_at, i.result, i.error,
           i.token, i.grant_id, i.owner, i.instance, i.held, i.cause, i.ended, i.actor, i.note, i.acquired, i.renewed, i.deadline, i.ttl, i.progress, i.progress_at, i.terms, i.past,
           CASE WHEN $2::boolean THEN i.payload END AS payload
    FROM croft.item i WHERE i.id = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json)::uuid)) ORDER BY i.id FOR UPDATE) AS l
