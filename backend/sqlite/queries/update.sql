UPDATE main.croft_lease SET quiet = ?2, record = ?3 WHERE id = ?1
