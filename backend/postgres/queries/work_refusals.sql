SELECT pg_catalog.row_to_json(r)::text FROM croft.refusal r
WHERE ($1 = '' OR r.item = $1) AND ($2 = '' OR r.queue = $2) AND r.at >= $3 AND ($4::bigint = 0 OR r.id < $4)
ORDER BY r.id DESC LIMIT $5
