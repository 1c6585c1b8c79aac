SELECT count(*) FROM croft.lease
