INSERT INTO main.croft_lease (key, quiet, record) VALUES (?1, ?2, ?3)
