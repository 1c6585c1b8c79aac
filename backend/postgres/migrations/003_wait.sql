-- Registers waiters for keys, in two steps that close the gap in which a wake-up could be lost: first the lease's row is locked, so that a change under way
-- is over and will be seen by whoever asks next; then the waiter is entered, so that every later change finds it.
CREATE FUNCTION croft.wait_v1(wait_ms integer, keys text[], for_ms integer) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM set_config('lock_timeout', wait_ms::text, true);
    PERFORM FROM (SELECT FROM croft.lease l WHERE l.key = ANY (keys) ORDER BY l.key FOR SHARE) AS settled;
    INSERT INTO croft.waiter AS w (key, wait_until)
    SELECT k, clock_timestamp() + for_ms * interval '1 millisecond' FROM (SELECT DISTINCT unnest(keys) COLLATE "C" AS k ORDER BY k) AS sorted
    ON CONFLICT (key) DO UPDATE SET wait_until = greatest(w.wait_until, excluded.wait_until);
END
$$;

-- The transfers before a key's newest one, oldest first.
CREATE FUNCTION croft.past_of(of_key text) RETURNS json
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(json_agg(json_build_object(
        'token', p.token, 'grant', p.grant_id, 'owner', p.owner, 'instance', p.instance, 'state', p.state, 'cause', p.cause,
        'actor', p.actor, 'note', p.note, 'acquired', p.acquired, 'finished', p.finished, 'ended', p.ended) ORDER BY p.token), '[]')
    FROM croft.past p WHERE p.key = of_key
$$;
