SELECT max(priority) FROM main.croft_item WHERE state = 'waiting' AND queue = ?1 AND priority < ?2
