-- What the reconciler asks for again and again: only with the state in the text the index of what runs can be used, and what is finished costs nothing.
SELECT row_to_json(l)::text FROM (
    SELECT i.id, i.queue, i.uniq, i.state, i.priority, i.ready, i.created, i.finished, i.attempts, i.tries, i.generation, i.checkpoint_at, i.error,
           i.token, i.grant_id, i.owner, i.instance, i.held, i.cause, i.ended, i.actor, i.note, i.acquired, i.renewed, i.deadline, i.ttl, i.progress, i.progress_at, i.terms
    FROM croft.item i
    WHERE i.state = 'running' AND ($1 = '' OR i.queue = $1) AND ($2 = '' OR i.owner = $2)
      AND ($3::text::uuid IS NULL OR i.id > $3::text::uuid)
    ORDER BY i.id LIMIT $4) AS l
