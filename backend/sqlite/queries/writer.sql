-- What the connection that writes needs, whatever the pool's own settings are; {wait} is in milliseconds, for as long as it is being set up.
PRAGMA busy_timeout = {wait};
PRAGMA synchronous = FULL;
PRAGMA fullfsync = 1;
PRAGMA query_only = 0;
-- The log is cut back after a large change, and not to less than it usually needs: a log that has to grow again costs twice the flushes.
PRAGMA journal_size_limit = 16777216;
-- However the pool is set: a log that nobody copies back grows without end.
PRAGMA wal_autocheckpoint = 1000;
