SELECT coalesce(max(version), 0) FROM main.croft_migration
