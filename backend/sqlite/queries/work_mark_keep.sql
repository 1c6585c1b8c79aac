INSERT INTO main.croft_dispatcher (key, token, grant_id) VALUES (?1, ?2, ?3) ON CONFLICT (key) DO UPDATE SET token = excluded.token, grant_id = excluded.grant_id
