SELECT key, record FROM croft_lease WHERE key >= ?1 AND key > ?2 ORDER BY key LIMIT ?3
