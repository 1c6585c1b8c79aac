SELECT pg_notify('croft.wake', $1)
