UPDATE croft.item i SET
    state = n.state, ready = n.ready, finished = n.finished, attempts = n.attempts, generation = n.generation,
    checkpoint = n.checkpoint, checkpoint_at = n.checkpoint_at, result = n.result, error = n.error,
    token = n.token, grant_id = n.grant_id, owner = n.owner, instance = n.instance, held = n.held, cause = n.cause, ended = n.ended, actor = n.actor, note = n.note,
    acquired = n.acquired, renewed = n.renewed, deadline = n.deadline, ttl = n.ttl, progress = n.progress, progress_at = n.progress_at, terms = n.terms, past = n.past
FROM pg_catalog.json_populate_recordset(NULL::croft.item, $1::text::json) AS n
WHERE i.id = n.id
