SELECT at, from_key, from_token, to_key, actor, note FROM croft.rekeying WHERE target = $1 ORDER BY at DESC LIMIT 1
