SELECT pg_catalog.row_to_json(s)::text FROM (
    SELECT queue, 'item' AS kind, state, ready > $1::bigint AS later, coalesce(deadline <= $1::bigint, false) AS lapsed, pg_catalog.count(*) AS n,
           pg_catalog.min(ready) AS oldest, pg_catalog.min(renewed) AS heartbeat, pg_catalog.min(greatest(acquired, progress_at, checkpoint_at)) AS progress
    FROM croft.item WHERE ($2 = '' OR queue = $2) GROUP BY 1, 3, 4, 5
    UNION ALL
    SELECT queue, 'effect', state, false, false, pg_catalog.count(*), NULL, NULL, NULL FROM croft.effect WHERE ($2 = '' OR queue = $2) GROUP BY 1, 3
    UNION ALL
    SELECT queue, 'refusal', '', false, false, pg_catalog.count(*), NULL, NULL, NULL FROM croft.refusal WHERE queue <> '' AND ($2 = '' OR queue = $2) GROUP BY 1) AS s
