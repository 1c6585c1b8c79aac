SELECT pg_catalog.pg_notify('croft.work', q) FROM pg_catalog.json_array_elements_text($1::text::json) AS q
