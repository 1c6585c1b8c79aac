-- How queues hand out their items, and partitions of queues. A queue without
-- rows hands out all that is ready.
CREATE TABLE croft_rule (
    queue     TEXT NOT NULL,
    partition TEXT NOT NULL,                     -- '' is the whole queue, '*' each partition without a row
    paused    INTEGER NOT NULL,                  -- claims find nothing
    running   INTEGER NOT NULL,                  -- at most so many run; 0 is no limit
    starts    INTEGER NOT NULL,                  -- at most so many start in a span; 0 is no limit
    span      INTEGER NOT NULL,
    actor     TEXT NOT NULL,                     -- who changed the rule last
    note      TEXT NOT NULL,                     -- and why
    changed   INTEGER NOT NULL,                  -- and when
    PRIMARY KEY (queue, partition)
) STRICT;

-- What claims have started where a rule limits the starts. The slot is the time
-- at which n starts count.
CREATE TABLE croft_start (
    queue     TEXT NOT NULL,
    partition TEXT NOT NULL,
    slot      INTEGER NOT NULL,
    n         INTEGER NOT NULL,
    PRIMARY KEY (queue, partition, slot)
) STRICT;

-- The partitions in which items wait, by priority. Claims serve them in the
-- order of since: the time of the last start there or, if it is later, the time
-- from which something is ready. Claims find out if it is too early, and
-- correct it. It is never too late.
CREATE TABLE croft_partition (
    queue    TEXT NOT NULL,
    priority INTEGER NOT NULL,
    name     TEXT NOT NULL,
    since    INTEGER NOT NULL,
    PRIMARY KEY (queue, priority, name)
) STRICT;
CREATE INDEX croft_partition_since ON croft_partition (queue, priority DESC, since, name);

-- The part of its queue that an item belongs to, such as a tenant.
ALTER TABLE croft_item ADD COLUMN partition TEXT NOT NULL DEFAULT '';

DROP INDEX croft_item_waiting;
DROP INDEX croft_item_running;
CREATE INDEX croft_item_waiting ON croft_item (queue, partition, priority DESC, ready, id) WHERE state = 'waiting';
CREATE INDEX croft_item_running ON croft_item (queue, partition, id) WHERE state = 'running';

-- Whatever makes an item wait makes its partition wait. An item that was given
-- back waits since then. Items without a partition cost nothing here.
CREATE TRIGGER croft_item_added AFTER INSERT ON croft_item
WHEN NEW.partition <> '' AND NEW.state = 'waiting'
BEGIN
    INSERT INTO croft_partition (queue, priority, name, since)
    VALUES (NEW.queue, NEW.priority, NEW.partition, NEW.ready)
    ON CONFLICT (queue, priority, name) DO UPDATE
    SET since = min(since, excluded.since);
END;
CREATE TRIGGER croft_item_given_back AFTER UPDATE ON croft_item
WHEN NEW.partition <> '' AND NEW.state = 'waiting'
BEGIN
    INSERT INTO croft_partition (queue, priority, name, since)
    VALUES (NEW.queue, NEW.priority, NEW.partition, max(NEW.ready, coalesce(NEW.renewed, NEW.ready)))
    ON CONFLICT (queue, priority, name) DO UPDATE
    SET since = min(since, excluded.since);
END;

-- A file of an older version lacks these.
CREATE INDEX IF NOT EXISTS croft_effect_due ON croft_effect (dest, ready, item, generation, name)
    WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS croft_effect_line ON croft_effect (dest, created, item, generation, name)
    WHERE state = 'pending' OR state = 'unknown';
CREATE INDEX IF NOT EXISTS croft_effect_failed ON croft_effect (settled) WHERE state = 'failed';

-- An effect that is unknown holds up the others of an ordered destination.
CREATE INDEX croft_effect_unknown ON croft_effect (dest) WHERE state = 'unknown';
