INSERT INTO croft.migration (version, name) VALUES ($1, $2)
