-- Items that are not done, among any number that are: each state by an index that has nothing else in it, or in the order of IDs if there are many. {after} and {order} are as in work_list.
SELECT pg_catalog.row_to_json(l)::text FROM (
    SELECT i.id, i.queue, i.uniq, i.state, i.priority, i.ready, i.created, i.finished, i.attempts, i.tries, i.generation, i.checkpoint_at, i.error,
           i.token, i.grant_id, i.owner, i.instance, i.held, i.cause, i.ended, i.actor, i.note, i.acquired, i.renewed, i.deadline, i.ttl, i.progress, i.progress_at, i.terms
    FROM croft.item i
    WHERE i.id IN (
        (SELECT w.id FROM croft.item w
         WHERE w.state = 'waiting' AND $2::text::jsonb @> '"waiting"' AND ($1 = '' OR w.queue = $1) AND ($3 = '' OR w.owner = $3) AND ($4::text::uuid IS NULL OR w.id {after} $4::text::uuid)
         ORDER BY w.id {order} LIMIT $5)
        UNION ALL
        (SELECT r.id FROM croft.item r
         WHERE r.state = 'running' AND $2::text::jsonb @> '"running"' AND ($1 = '' OR r.queue = $1) AND ($3 = '' OR r.owner = $3) AND ($4::text::uuid IS NULL OR r.id {after} $4::text::uuid)
         ORDER BY r.id {order} LIMIT $5)
        UNION ALL
        (SELECT d.id FROM croft.item d
         WHERE d.state IN ('dead', 'cancelled') AND $2::text::jsonb @> pg_catalog.to_jsonb(d.state) AND ($1 = '' OR d.queue = $1) AND ($3 = '' OR d.owner = $3) AND ($4::text::uuid IS NULL OR d.id {after} $4::text::uuid)
         ORDER BY d.id {order} LIMIT $5))
    ORDER BY i.id {order} LIMIT $5) AS l
