INSERT INTO main.croft_rekeying (target, from_key, from_token, to_key, actor, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
