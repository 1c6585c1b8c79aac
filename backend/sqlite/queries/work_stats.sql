SELECT queue, 'item' AS kind, state, ready > ?1 AS later, coalesce(deadline <= ?1, 0) AS lapsed, count(*), min(ready), min(renewed), min(max(acquired, coalesce(progress_at, acquired), coalesce(checkpoint_at, acquired)))
FROM main.croft_item WHERE ?2 = '' OR queue = ?2 GROUP BY queue, state, later, lapsed
UNION ALL
SELECT queue, 'effect', state, 0, 0, count(*), NULL, NULL, NULL FROM main.croft_effect WHERE ?2 = '' OR queue = ?2 GROUP BY queue, state
UNION ALL
SELECT queue, 'refusal', '', 0, 0, count(*), NULL, NULL, NULL FROM main.croft_refusal WHERE queue <> '' AND (?2 = '' OR queue = ?2) GROUP BY queue
