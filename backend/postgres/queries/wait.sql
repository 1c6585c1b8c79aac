SELECT croft.wait_v1($1, $2, $3, $4) WHERE croft.version_18()
