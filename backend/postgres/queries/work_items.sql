SELECT row_to_json(i)::text FROM croft.item i WHERE i.id = ANY (ARRAY(SELECT json_array_elements_text($1::text::json)::uuid)) ORDER BY i.id FOR UPDATE
