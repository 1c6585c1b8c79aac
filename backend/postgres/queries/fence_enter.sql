INSERT INTO croft.fence (name) VALUES ($1) ON CONFLICT (name) DO NOTHING
