INSERT INTO croft.idle AS i (queue, wait_until) SELECT q, pg_catalog.clock_timestamp() + interval '5 minutes' FROM pg_catalog.json_array_elements_text($1::text::json) AS q
WHERE NOT EXISTS (SELECT FROM croft.idle n WHERE n.queue = q AND n.wait_until >= pg_catalog.clock_timestamp() + interval '2 minutes') ORDER BY q
ON CONFLICT (queue) DO UPDATE SET wait_until = excluded.wait_until WHERE i.wait_until < pg_catalog.clock_timestamp() + interval '2 minutes'
