DELETE FROM main.croft_refusal WHERE id IN (SELECT id FROM main.croft_refusal WHERE at <= ?1 ORDER BY at LIMIT ?2)
