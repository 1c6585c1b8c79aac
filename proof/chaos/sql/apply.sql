INSERT INTO chaos_applied (key, id) VALUES ($1, $2)
