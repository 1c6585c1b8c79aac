SELECT id, key FROM main.croft_act
WHERE id > ?1 AND octet_length(key) <= ?2
ORDER BY id DESC LIMIT ?3
