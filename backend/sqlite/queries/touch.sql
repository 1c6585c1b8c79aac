-- Changes as little as can be: SQLite writes, and flushes, only what differs.
UPDATE main.croft_lease SET quiet = quiet + 1 WHERE id = ?1
