SELECT item, generation, name, queue, dest, at_most_once, token, grant_id, owner, state, attempts, ready, sender, created, settled, error, actor, note, body FROM main.croft_effect WHERE (?1 = '' OR item = ?1) AND (?2 = '' OR queue = ?2) AND (?3 = '[]' OR state IN (SELECT value FROM json_each(?3)))
    AND (?4 IS NULL OR state = 'unknown' AND ready <= ?4) AND (item, generation, name) > (?5, ?6, ?7)
ORDER BY item, generation, name LIMIT ?8
