-- How queues hand out their items. A queue without a row hands out all that is
-- ready.
CREATE TABLE croft_rule (
    queue   TEXT NOT NULL PRIMARY KEY,
    paused  INTEGER NOT NULL,                    -- claims find nothing
    actor   TEXT NOT NULL,                       -- who changed the rule last
    note    TEXT NOT NULL,                       -- and why
    changed INTEGER NOT NULL                     -- and when
) STRICT;
