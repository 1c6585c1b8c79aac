-- {after} and {order} are > ASC, or < DESC for the newest first. ?4 is where it begins, before all IDs for the first page: with an OR, each page would read those before it again.
SELECT id, queue, uniq, state, priority, ready, created, finished, attempts, tries, generation, checkpoint_at, error, token, grant_id, owner, instance, held, cause, ended, actor, note, acquired, renewed, deadline, ttl, progress, progress_at, terms, NULL, NULL, NULL, NULL
FROM main.croft_item
WHERE (?1 = '' OR queue = ?1) AND (?2 = '[]' OR state IN (SELECT value FROM json_each(?2))) AND (?3 = '' OR owner = ?3) AND id {after} ?4
ORDER BY id {order} LIMIT ?5
