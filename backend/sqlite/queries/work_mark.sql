SELECT token, grant_id FROM croft_dispatcher WHERE key = ?1
