SELECT token, grant_id FROM main.croft_dispatcher WHERE key = ?1
