SELECT row_to_json(s)::text FROM (
    SELECT queue, 'item' AS kind, state, ready > $1::bigint AS later, coalesce(deadline <= $1::bigint, false) AS lapsed, count(*) AS n,
           min(ready) AS oldest, min(renewed) AS heartbeat, min(greatest(acquired, progress_at, checkpoint_at)) AS progress
    FROM croft.item WHERE ($2 = '' OR queue = $2) GROUP BY 1, 3, 4, 5
    UNION ALL
    SELECT queue, 'effect', state, false, false, count(*), NULL, NULL, NULL FROM croft.effect WHERE ($2 = '' OR queue = $2) GROUP BY 1, 3
    UNION ALL
    SELECT queue, 'refusal', '', false, false, count(*), NULL, NULL, NULL FROM croft.refusal WHERE queue <> '' AND ($2 = '' OR queue = $2) GROUP BY 1) AS s
