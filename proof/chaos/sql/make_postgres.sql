CREATE TABLE chaos_state (key text PRIMARY KEY, holds text NOT NULL);
CREATE TABLE chaos_applied (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text NOT NULL,
    id text NOT NULL
);
