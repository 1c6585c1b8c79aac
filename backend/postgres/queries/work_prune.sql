WITH old AS MATERIALIZED (
    SELECT i.id FROM croft.item i
    WHERE i.finished IS NOT NULL AND (i.state IN ('done', 'cancelled') AND i.finished <= $1 OR i.state = 'dead' AND i.finished <= $2)
      AND i.finished <= greatest($1::bigint, $2::bigint)
      AND NOT EXISTS (SELECT FROM croft.effect e WHERE e.item = i.id AND e.state IN ('pending', 'unknown'))
    ORDER BY i.finished LIMIT $4 FOR UPDATE SKIP LOCKED
), effects AS (
    DELETE FROM croft.effect e USING old WHERE e.item = old.id
), items AS (
    DELETE FROM croft.item i USING old WHERE i.id = old.id RETURNING 1
), refusals AS (
    DELETE FROM croft.refusal r WHERE r.id = ANY (ARRAY(SELECT o.id FROM croft.refusal o WHERE o.at <= $3 ORDER BY o.at LIMIT $4 FOR UPDATE SKIP LOCKED)) RETURNING 1
)
SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM refusals)
