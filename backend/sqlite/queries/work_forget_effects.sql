DELETE FROM croft_effect WHERE item = ?1
