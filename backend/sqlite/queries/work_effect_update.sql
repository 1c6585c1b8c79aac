UPDATE main.croft_effect SET state = ?10, attempts = ?11, ready = ?12, sender = ?13, settled = ?15, error = ?16, actor = ?17, note = ?18 WHERE item = ?1 AND generation = ?2 AND name = ?3
