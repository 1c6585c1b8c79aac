-- Keys that operators have acted on lately, so that their holders learn of it
-- at once. A higher id is a later act. Only the newest rows are kept.
CREATE TABLE croft_act (
    id  INTEGER PRIMARY KEY,
    key TEXT    NOT NULL
) STRICT;
