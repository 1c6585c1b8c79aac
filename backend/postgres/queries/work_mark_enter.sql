INSERT INTO croft.dispatcher (key) SELECT k FROM pg_catalog.json_array_elements_text($1::text::json) AS k ORDER BY k ON CONFLICT DO NOTHING
