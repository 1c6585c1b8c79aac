WITH old AS MATERIALIZED (
    SELECT i.id FROM croft.item i
    WHERE i.finished IS NOT NULL AND (i.state IN ('done', 'cancelled') AND i.finished <= $1 OR i.state = 'dead' AND i.finished <= $2)
      AND i.finished <= greatest($1::bigint, $2::bigint)
      AND NOT EXISTS (SELECT FROM croft.effect e WHERE e.item = i.id AND e.state IN ('pending', 'unknown'))
    ORDER BY i.finished LIMIT $3 FOR UPDATE SKIP LOCKED
), locked AS MATERIALIZED (
    SELECT e.item FROM croft.effect e JOIN old ON e.item = old.id ORDER BY e.item, e.generation, e.name FOR UPDATE OF e
)
SELECT old.id::text FROM old CROSS JOIN (SELECT pg_catalog.count(*) FROM locked) AS all_locked
