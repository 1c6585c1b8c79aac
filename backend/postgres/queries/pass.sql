SELECT croft.pass_v1($1, $2) WHERE croft.version_18()
