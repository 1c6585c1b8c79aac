-- Keys that operators have acted on of late: their holders are told at once.
-- A higher id is a later act, and only the newest are kept.
CREATE TABLE croft_act (
    id  INTEGER PRIMARY KEY,
    key TEXT    NOT NULL
) STRICT;
