-- Clients are told by notifications on one channel. Waiting clients are told this:
--   key           the key may have changed: everybody who waits for it asks
--   \x02 id key   the key is free, and it is this client's turn to ask: a hint and no reservation. The others ask only if nothing more is heard of the key
--   \x03 key      the key has been granted: the others need not ask
-- Clients that hold leases are told this:
--   \x04 key      an operator has acted on the key: its holder asks
-- Only operators' acts cost this one, whether somebody waits or not.
-- Whoever calls these functions has the lease's row locked, so that between looking for waiters and committing nobody can come to wait unseen.

-- Names the client that has waited longest for a key that is free now. One that is just leaving is passed over: it would take its turn with it.
CREATE OR REPLACE FUNCTION croft.wake_v1(k text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    next_id text;
BEGIN
    -- In two statements: a plan that joins them may look for the first more than once, and finds another each time.
    SELECT v.id INTO next_id FROM croft.waiter v WHERE v.key = k AND NOT v.named AND v.wait_until > clock_timestamp() ORDER BY v.place LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE croft.waiter w SET named = true WHERE w.key = k AND w.id = next_id;
        PERFORM pg_notify('croft.wake', E'\x02' || next_id || ' ' || k); -- it goes out when the change is committed
    END IF;
    UPDATE croft.lease l SET awaited = false
    WHERE l.key = k AND NOT EXISTS (SELECT FROM croft.waiter w WHERE w.key = k AND NOT w.named AND w.wait_until > clock_timestamp());
END
$$;

-- Enters a client as waiting for keys, for a while. The leases' rows are locked first: a change under way is over then and seen by whoever asks next, and every later one
-- finds the waiter. A key without a record has no row to lock; if it is being made at this very moment, the client is found when it enters itself the next time.
CREATE OR REPLACE FUNCTION croft.wait_v1(wait_ms integer, client text, keys text[], for_ms integer) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM set_config('lock_timeout', wait_ms::text, true);
    PERFORM FROM (SELECT FROM croft.lease l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE) AS settled;
    INSERT INTO croft.waiter AS w (key, id, wait_until)
    SELECT k, client, clock_timestamp() + for_ms * interval '1 millisecond' FROM (SELECT DISTINCT unnest(keys) COLLATE "C" AS k ORDER BY k) AS sorted
    ON CONFLICT (key, id) DO UPDATE SET wait_until = excluded.wait_until, named = false;
    UPDATE croft.lease l SET awaited = true WHERE l.key = ANY (keys) AND NOT l.awaited;
END
$$;

-- Passes the turn on: for a client that was named and does not want the key any more.
CREATE OR REPLACE FUNCTION croft.pass_v1(wait_ms integer, k text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM set_config('lock_timeout', wait_ms::text, true);
    PERFORM FROM croft.lease l WHERE l.key = k AND l.state = 'free' FOR UPDATE;
    IF FOUND THEN
        PERFORM croft.wake_v1(k);
    END IF;
END
$$;
