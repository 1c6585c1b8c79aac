SELECT key, record FROM main.croft_lease WHERE key >= ?1 AND key > ?2 ORDER BY key LIMIT ?3
