DELETE FROM main.croft_item WHERE id = ?1
