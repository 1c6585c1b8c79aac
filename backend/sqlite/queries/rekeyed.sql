SELECT at, from_key, from_token, to_key, actor, note FROM croft_rekeying WHERE target = ?1 ORDER BY id DESC LIMIT 1
