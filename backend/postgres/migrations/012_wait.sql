-- All notifications to clients go over one channel. Waiting clients hear these:
--   key           The key may have changed. All who wait for it ask.
--   \x02 id key   The key is free, and it is this client's turn to ask. That is
--                 a hint, no reservation. The others ask only if they hear
--                 nothing more of the key.
--   \x03 key      The key has been granted. The others need not ask.
-- Clients that hold leases hear this:
--   \x04 key      An operator has acted on the key. Its holder asks.
-- The last one costs a notification for every act of an operator, even if
-- nobody waits.

-- Names the client that has waited longest for a key that is free now. It
-- passes over a client that is just leaving, which would take its turn with it.
-- The caller has locked the lease's row. So no client can begin to wait unseen
-- between the look for waiters and the commit.
CREATE OR REPLACE FUNCTION croft.wake_v1(k text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    next_id text;
BEGIN
    -- Two statements, because a plan that joins them may run the first more
    -- than once. It finds another client each time.
    SELECT v.id INTO next_id FROM croft.waiter v
    WHERE v.key = k AND NOT v.named AND v.wait_until > clock_timestamp()
    ORDER BY v.place LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE croft.waiter w SET named = true WHERE w.key = k AND w.id = next_id;
        PERFORM pg_notify('croft.wake', E'\x02' || next_id || ' ' || k); -- sent by the commit
    END IF;
    UPDATE croft.lease l SET awaited = false
    WHERE l.key = k AND NOT EXISTS (
        SELECT FROM croft.waiter w
        WHERE w.key = k AND NOT w.named AND w.wait_until > clock_timestamp());
END
$$;

-- Whether a client is in the queue of a key, and stays there for at least half
-- of for_ms. Such a client need not lock a row to be entered: every later
-- change finds it. "Line" in the name, which databases have stored, means
-- queue.
CREATE OR REPLACE FUNCTION croft.in_line_v1(k text, client text, for_ms integer) RETURNS boolean
LANGUAGE plpgsql STABLE -- it sees what the calling statement sees
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off -- as in apply_v1
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM croft.waiter w JOIN croft.lease l ON l.key = w.key
        WHERE w.key = k AND w.id = client AND NOT w.named AND l.awaited
          AND w.wait_until > clock_timestamp() + for_ms * interval '0.5 milliseconds');
END
$$;

-- Enters a client in the queues of keys, for a while. It locks the leases' rows
-- first. So a change under way is over by then, and the client sees it when it
-- next asks. Every later change finds the waiter. A key without a record has no
-- row to lock. If another transaction is creating it at this moment, the client
-- is found when it next enters.
CREATE OR REPLACE FUNCTION croft.wait_v1(wait_ms integer, client text, keys text[], for_ms integer)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM unnest(keys) AS k WHERE NOT croft.in_line_v1(k, client, for_ms))
    THEN
        RETURN;
    END IF;
    PERFORM set_config('lock_timeout', wait_ms::text, true);
    PERFORM FROM (
        SELECT FROM croft.lease l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE) AS settled;
    INSERT INTO croft.waiter AS w (key, id, wait_until)
    SELECT k, client, clock_timestamp() + for_ms * interval '1 millisecond'
    FROM (SELECT DISTINCT unnest(keys) COLLATE "C" AS k ORDER BY k) AS sorted
    ON CONFLICT (key, id) DO UPDATE SET wait_until = excluded.wait_until, named = false;
    UPDATE croft.lease l SET awaited = true WHERE l.key = ANY (keys) AND NOT l.awaited;
END
$$;

-- Older clients passed their turn on with this. Now the others come by
-- themselves after a while.
DROP FUNCTION IF EXISTS croft.pass_v1(integer, text);
