INSERT INTO croft.refusal (at, item, queue, verb, why, presented, presented_grant, presented_owner, newest, newest_grant, newest_owner)
SELECT at, item, queue, verb, why, presented, presented_grant, presented_owner, newest, newest_grant, newest_owner
FROM pg_catalog.json_populate_recordset(NULL::croft.refusal, $1::text::json)
