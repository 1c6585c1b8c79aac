SELECT id FROM main.croft_item
WHERE finished IS NOT NULL AND finished <= max(?1, ?2) AND (state IN ('done', 'cancelled') AND finished <= ?1 OR state = 'dead' AND finished <= ?2)
    AND NOT EXISTS (SELECT 1 FROM main.croft_effect e WHERE e.item = croft_item.id AND e.state IN ('pending', 'unknown'))
ORDER BY finished LIMIT ?3
