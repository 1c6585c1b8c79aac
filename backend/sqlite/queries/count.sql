SELECT count(*) FROM croft_lease
