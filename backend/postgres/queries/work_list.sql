-- {after} and {order} are > ASC, or < DESC for the newest first.
SELECT pg_catalog.row_to_json(l)::text FROM (
    SELECT i.id, i.queue, i.uniq, i.state, i.priority, i.ready, i.created, i.finished, i.attempts, i.tries, i.generation, i.checkpoint_at, i.error,
           i.token, i.grant_id, i.owner, i.instance, i.held, i.cause, i.ended, i.actor, i.note, i.acquired, i.renewed, i.deadline, i.ttl, i.progress, i.progress_at, i.terms
    FROM croft.item i
    WHERE ($1 = '' OR i.queue = $1) AND ($2::text::json IS NULL OR i.state = ANY (ARRAY(SELECT pg_catalog.json_array_elements_text($2::text::json)))) AND ($3 = '' OR i.owner = $3)
      AND ($4::text::uuid IS NULL OR i.id {after} $4::text::uuid)
    ORDER BY i.id {order} LIMIT $5) AS l
