SELECT row_to_json(i)::text FROM croft.item i JOIN json_to_recordset($1::text::json) AS u(queue text, uniq text) ON i.queue = u.queue AND i.uniq = u.uniq ORDER BY i.id FOR UPDATE OF i
