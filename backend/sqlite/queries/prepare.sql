CREATE TABLE IF NOT EXISTS croft_migration (
    version INTEGER PRIMARY KEY,
    name    TEXT NOT NULL,
    applied TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
) STRICT
