-- Items that are not done, among any number that are: each state by an index that has nothing else in it. The indexes are named because SQLite would rather go through all IDs than sort a few. {after} and {order} are as in work_list.
SELECT id, queue, uniq, state, priority, ready, created, finished, attempts, tries, generation, checkpoint_at, error, token, grant_id, owner, instance, held, cause, ended, actor, note, acquired, renewed, deadline, ttl, progress, progress_at, terms, NULL, NULL, NULL, NULL
FROM main.croft_item
WHERE id IN (
    SELECT id FROM (
        SELECT w.id FROM main.croft_item w INDEXED BY croft_item_waiting
        WHERE w.state = 'waiting' AND 'waiting' IN (SELECT value FROM json_each(?2)) AND (?1 = '' OR w.queue = ?1) AND (?3 = '' OR w.owner = ?3) AND w.id {after} ?4
        ORDER BY w.id {order} LIMIT ?5)
    UNION ALL
    SELECT id FROM (
        SELECT r.id FROM main.croft_item r INDEXED BY croft_item_running
        WHERE r.state = 'running' AND 'running' IN (SELECT value FROM json_each(?2)) AND (?1 = '' OR r.queue = ?1) AND (?3 = '' OR r.owner = ?3) AND r.id {after} ?4
        ORDER BY r.id {order} LIMIT ?5)
    UNION ALL
    SELECT id FROM (
        SELECT g.id FROM main.croft_item g INDEXED BY croft_item_given_up
        WHERE (g.state = 'dead' OR g.state = 'cancelled') AND g.state IN (SELECT value FROM json_each(?2)) AND (?1 = '' OR g.queue = ?1) AND (?3 = '' OR g.owner = ?3) AND g.id {after} ?4
        ORDER BY g.id {order} LIMIT ?5))
ORDER BY id {order} LIMIT ?5
