SELECT l.key, croft.pack(l) FROM croft.lease l WHERE l.key >= $1 AND l.key > $2 AND croft.version_18() ORDER BY l.key LIMIT $3
