SELECT coalesce(max(id), 0) FROM main.croft_act
