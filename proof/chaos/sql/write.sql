INSERT INTO chaos_state (key, holds) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET holds = excluded.holds
