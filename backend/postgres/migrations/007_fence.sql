-- The marks of guarded resources. A mark is the newest stamp whose write was
-- admitted. A writer locks the row in its own transaction, so that check and
-- write are one step.
CREATE TABLE croft.fence (
    name        text COLLATE "C" PRIMARY KEY,
    fence_key   text,
    fence_token bigint,
    fence_grant text,
    fence_seq   numeric(20)
) WITH (fillfactor = 70);

-- The moves of resources to other keys: by which actor, and why.
CREATE TABLE croft.rekeying (
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    target     text   NOT NULL,
    from_key   text   NOT NULL,
    from_token bigint NOT NULL,
    to_key     text   NOT NULL,
    actor      text   NOT NULL,
    note       text   NOT NULL
);
CREATE INDEX rekeying_target ON croft.rekeying (target, at);
