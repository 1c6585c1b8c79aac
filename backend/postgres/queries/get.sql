SELECT l.key, croft.past_of(l.key),
       l.token, l.grant_id, l.owner, l.instance, l.state, l.cause, l.ended, l.actor, l.note, l.acquired, l.renewed, l.deadline, l.ttl, l.every,
       l.succeeded, l.hold_until, l.guards, l.progress, l.progress_at, l.terms
FROM croft.lease l
WHERE l.key = $1
