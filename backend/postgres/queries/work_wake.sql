SELECT croft.wake_v1(ARRAY(SELECT pg_catalog.json_array_elements_text($1::text::json))) WHERE croft.version_18()
