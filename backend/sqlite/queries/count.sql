SELECT count(*) FROM main.croft_lease
