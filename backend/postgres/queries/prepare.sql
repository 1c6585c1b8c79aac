CREATE SCHEMA IF NOT EXISTS croft;
CREATE TABLE IF NOT EXISTS croft.migration (
    version integer PRIMARY KEY,
    name    text NOT NULL,
    applied timestamptz NOT NULL DEFAULT pg_catalog.now()
);
