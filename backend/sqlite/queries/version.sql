SELECT coalesce(max(version), 0) FROM croft_migration
