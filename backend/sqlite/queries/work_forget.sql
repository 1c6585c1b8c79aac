DELETE FROM croft_item WHERE id = ?1
