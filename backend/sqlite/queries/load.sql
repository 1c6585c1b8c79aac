SELECT id, record FROM croft_lease WHERE key = ?1
