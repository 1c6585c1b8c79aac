UPDATE croft.dispatcher SET token = $2, grant_id = $3 WHERE key = $1
