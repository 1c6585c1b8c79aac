SELECT croft.release_v1($1, $2, $3, $4, $5) WHERE croft.version_18()
