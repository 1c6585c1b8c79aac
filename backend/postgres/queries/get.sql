SELECT croft.pack(l), croft.past_of(l.key)::text FROM croft.lease l WHERE l.key = $1 AND croft.version_18()
