-- A view keeps the operators that it was made with. An older version may have
-- made these views with another role's operators, from the search_path.

-- For people: the leases with readable times.
CREATE OR REPLACE VIEW croft.leases AS
SELECT key, token, owner, instance,
       CASE
           WHEN state <> 'free' AND to_timestamp(deadline / 1e6) <= clock_timestamp() THEN 'free'
           ELSE state
       END AS state,
       cause, ended, actor, note,
       to_timestamp(acquired / 1e6) AS acquired, to_timestamp(renewed / 1e6) AS renewed,
       to_timestamp(deadline / 1e6) AS deadline,
       ttl * interval '1 microsecond' AS ttl, progress, to_timestamp(progress_at / 1e6) AS progress_at, terms
FROM croft.lease;

-- For people: the items with readable times, without payload, checkpoint and
-- result.
CREATE OR REPLACE VIEW croft.items AS
SELECT replace(id::text, '-', '') AS id, queue, state, priority, attempts, tries,
       to_timestamp(ready / 1e6) AS ready, to_timestamp(created / 1e6) AS created,
       to_timestamp(finished / 1e6) AS finished, token, owner, instance, cause,
       to_timestamp(renewed / 1e6) AS heartbeat, to_timestamp(deadline / 1e6) AS deadline,
       progress, to_timestamp(progress_at / 1e6) AS progress_at, actor, note, error
FROM croft.item;

-- Clients of this version ask for it. See version_19.
CREATE OR REPLACE FUNCTION croft.version_18() RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$ BEGIN RETURN true; END $$;
