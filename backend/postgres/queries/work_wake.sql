SELECT croft.wake_v1(ARRAY(SELECT json_array_elements_text($1::text::json)))
