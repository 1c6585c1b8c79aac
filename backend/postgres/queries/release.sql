SELECT croft.release_v1($1, $2, $3, $4, $5)
