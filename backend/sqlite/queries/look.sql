SELECT coalesce(max(id), ?1), count(*), coalesce(sum(quiet <= ?3), 0)
FROM (SELECT id, quiet FROM main.croft_lease WHERE id > ?1 ORDER BY id LIMIT ?2)
