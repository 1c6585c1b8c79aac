INSERT INTO main.croft_fence (name) VALUES (?1) ON CONFLICT (name) DO NOTHING
