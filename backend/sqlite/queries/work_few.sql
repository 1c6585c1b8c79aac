-- How many items there are in states other than done, counted as far as ?2.
SELECT count(*) FROM (
    SELECT 1 FROM main.croft_item w INDEXED BY croft_item_waiting WHERE w.state = 'waiting' AND 'waiting' IN (SELECT value FROM json_each(?1))
    UNION ALL
    SELECT 1 FROM main.croft_item r INDEXED BY croft_item_running WHERE r.state = 'running' AND 'running' IN (SELECT value FROM json_each(?1))
    UNION ALL
    SELECT 1 FROM main.croft_item g INDEXED BY croft_item_given_up WHERE (g.state = 'dead' OR g.state = 'cancelled') AND g.state IN (SELECT value FROM json_each(?1))
    LIMIT ?2)
