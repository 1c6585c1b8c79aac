UPDATE croft.effect e SET state = n.state, attempts = n.attempts, ready = n.ready, sender = n.sender, settled = n.settled, error = n.error, actor = n.actor, note = n.note
FROM pg_catalog.json_populate_recordset(NULL::croft.effect, $1::text::json) AS n
WHERE e.item = n.item AND e.generation = n.generation AND e.name = n.name
