SELECT pg_catalog.pg_notify('croft.wake', $1)
