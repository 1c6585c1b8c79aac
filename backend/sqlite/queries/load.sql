SELECT id, record FROM main.croft_lease WHERE key = ?1
