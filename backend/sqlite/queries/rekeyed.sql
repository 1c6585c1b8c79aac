SELECT at, from_key, from_token, to_key, actor, note FROM main.croft_rekeying WHERE target = ?1 ORDER BY id DESC LIMIT 1
