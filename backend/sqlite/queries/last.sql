SELECT coalesce(max(id), 0) FROM croft_lease
