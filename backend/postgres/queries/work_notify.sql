SELECT pg_notify('croft.work', q) FROM json_array_elements_text($1::text::json) AS q
