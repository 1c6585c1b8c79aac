SELECT dropped, coalesce(swept_to, $4, ''), at_end FROM croft.sweep_v1($1, $2, $3, $4, $5) WHERE croft.version_18()
