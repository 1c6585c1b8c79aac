SELECT croft.pass_v1($1, $2)
