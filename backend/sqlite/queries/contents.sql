SELECT count(*), coalesce(sum(name = 'croft_migration'), 0) FROM sqlite_schema WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\'
