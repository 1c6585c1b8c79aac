DELETE FROM main.croft_lease WHERE id > ?1 AND id <= ?2 AND quiet <= ?3
