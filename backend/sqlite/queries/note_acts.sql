INSERT INTO main.croft_act (key) SELECT value FROM json_each(?1)
