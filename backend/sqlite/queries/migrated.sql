INSERT INTO main.croft_migration (version, name) VALUES (?1, ?2)
