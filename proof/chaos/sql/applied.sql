SELECT id FROM chaos_applied WHERE key = $1 ORDER BY number
