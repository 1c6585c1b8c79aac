DELETE FROM croft_refusal WHERE id IN (SELECT id FROM croft_refusal WHERE at <= ?1 ORDER BY at LIMIT ?2)
