DELETE FROM main.croft_effect WHERE item = ?1
