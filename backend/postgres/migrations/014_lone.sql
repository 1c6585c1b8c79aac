-- The two most frequent requests, as one statement each, for a request that
-- comes alone. apply_v1 is the law, and these functions are its fast path. They
-- leave every unusual case to apply_v1.
--
-- Each function decides by a time that it reads just before it locks the row.
-- So it waits for the row only for 20 ms. After that the call fails and has
-- changed nothing, and the client asks again with patience. Another transaction
-- may have changed the row in those 20 ms, later than the time that the
-- function read. The function leaves such a row to apply_v1, too.

-- Grants a key that was given back, or that has no record. For a key that was
-- given back the answer is short: "granted", the time, and the parts of the
-- record that the client cannot know.
CREATE OR REPLACE FUNCTION croft.acquire_v1(
    set_at bigint, wait_ms integer, for_ms integer,
    k text, g text, claimant text, run text, ttl_us bigint, guard_list text, waiter_id text
) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off -- as in apply_v1
AS $$
DECLARE
    max_token CONSTANT bigint := 9007199254740991;
    moment text := set_config('lock_timeout', '20ms', true);
    now_us bigint := coalesce(set_at, croft.now_us());
    answer text;
    told   boolean;
BEGIN
    UPDATE croft.lease l
    SET token = greatest(l.token + 1, now_us), grant_id = g, owner = claimant, instance = run,
        state = 'held', cause = 'released', ended = '', actor = '', note = '',
        acquired = now_us, renewed = now_us, deadline = now_us + ttl_us, ttl = ttl_us,
        hold_until = NULL, guards = guard_list, progress = '', progress_at = NULL,
        terms = l.terms + 1, transfers = l.transfers + 1, spent = croft.short(l.grant_id) || l.spent[:30]
    WHERE l.key = k AND l.state = 'free' AND l.ended <> '' AND (l.hold_until IS NULL OR l.hold_until <= now_us)
      AND l.grant_id <> g AND NOT croft.short(g) = ANY (l.spent) AND l.token < max_token
      AND now_us BETWEEN l.deadline AND max_token AND now_us > 0
      AND croft.sound(l)
    RETURNING
        concat_ws(E'\x1f', 1, 'granted', now_us, l.token, l.terms, l.every,
            coalesce(l.succeeded::text, ''), coalesce(l.grid::text, ''), l.checkpoint),
        l.awaited
    INTO answer, told;
    IF FOUND THEN
        IF waiter_id <> '' THEN
            DELETE FROM croft.waiter w WHERE w.key = k AND w.id = waiter_id; -- it waits no more
        END IF;
        IF told THEN
            PERFORM pg_notify('croft.wake', E'\x03' || k);
        END IF;
        RETURN answer;
    END IF;

    now_us := coalesce(set_at, croft.now_us());
    SELECT concat_ws(E'\x1f', 1, 'refused', now_us, '', croft.pack(l)),
        l.state = 'held' AND l.deadline > now_us AND l.grant_id <> g AND NOT croft.short(g) = ANY (l.spent)
            AND (waiter_id = '' OR croft.in_line_v1(k, waiter_id, for_ms))
    INTO answer, told FROM croft.lease l WHERE l.key = k;
    IF told AND now_us BETWEEN 1 AND max_token THEN -- another holds it
        RETURN answer;
    END IF;
    IF NOT FOUND AND now_us BETWEEN 1 AND max_token THEN
        INSERT INTO croft.lease AS l (
            token, acquired, renewed, deadline, ttl, terms, transfers,
            awaited,
            key, grant_id, owner, instance, state, cause, guards)
        VALUES (
            now_us, now_us, now_us, now_us + ttl_us, ttl_us, 1, 1,
            EXISTS (SELECT FROM croft.waiter w WHERE w.key = k),
            k, g, claimant, run, 'held', 'first', guard_list)
        ON CONFLICT (key) DO NOTHING
        RETURNING concat_ws(E'\x1f', 1, 'done', now_us, '', croft.pack(l)), l.awaited INTO answer, told;
        IF FOUND THEN
            IF waiter_id <> '' THEN
                DELETE FROM croft.waiter w WHERE w.key = k AND w.id = waiter_id; -- it waits no more
            END IF;
            IF told THEN
                PERFORM pg_notify('croft.wake', k);
            END IF;
            RETURN answer;
        END IF;
    END IF;
    SELECT a INTO answer FROM croft.apply_v1(
        set_at, wait_ms, for_ms, true, ARRAY[1], ARRAY[1],
        ARRAY['acquire'], ARRAY[k], ARRAY[g], ARRAY[claimant], ARRAY[run],
        ARRAY[ttl_us], ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[guard_list], ARRAY[false],
        ARRAY[''], ARRAY[false], ARRAY[''], ARRAY[''], ARRAY[waiter_id]) AS a;
    RETURN answer;
END
$$;

-- Gives a key back.
CREATE OR REPLACE FUNCTION croft.release_v1(
    set_at bigint, wait_ms integer, k text, g text, failure boolean
) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off -- as in apply_v1
AS $$
DECLARE
    max_token CONSTANT bigint := 9007199254740991;
    moment text := set_config('lock_timeout', '20ms', true);
    now_us bigint := coalesce(set_at, croft.now_us());
    answer text;
    told   boolean;
BEGIN
    WITH freed AS (
        UPDATE croft.lease l
        SET state = 'free', ended = CASE WHEN failure THEN 'failed' ELSE 'released' END, deadline = now_us,
            hold_until = CASE WHEN NOT failure THEN l.hold_until END,
            succeeded = CASE WHEN failure THEN l.succeeded ELSE l.acquired END,
            grid = CASE WHEN failure OR l.every = 0 THEN l.grid ELSE coalesce(l.grid, l.acquired) END
        WHERE l.key = k AND l.grant_id = g AND l.state = 'held' AND l.deadline > now_us
          AND now_us BETWEEN greatest(l.renewed, l.progress_at) AND max_token AND now_us > 0 AND croft.sound(l)
        RETURNING concat_ws(E'\x1f', 1, 'done', now_us, '', croft.pack(l)) AS packed, l.*
    ), over AS (
        INSERT INTO croft.past (
            key, slot, token, grant_id, owner, instance, state, cause, actor, note, acquired, finished, ended)
        SELECT
            k, transfers % 32, token, g, owner, instance, 'held', cause, actor, note, acquired, now_us, ended
        FROM freed
        ON CONFLICT (key, slot) DO UPDATE
        SET token = excluded.token, grant_id = excluded.grant_id, owner = excluded.owner,
            instance = excluded.instance, state = excluded.state, cause = excluded.cause,
            actor = excluded.actor, note = excluded.note,
            acquired = excluded.acquired, finished = excluded.finished, ended = excluded.ended
    )
    SELECT packed, awaited INTO answer, told FROM freed;
    IF FOUND THEN
        IF told THEN
            PERFORM croft.wake_v1(k);
        END IF;
        RETURN answer;
    END IF;
    SELECT a INTO answer FROM croft.apply_v1(
        set_at, wait_ms, 0, true, ARRAY[0], ARRAY[1],
        ARRAY['release'], ARRAY[k], ARRAY[g], ARRAY[''], ARRAY[''],
        ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[''], ARRAY[false],
        ARRAY[''], ARRAY[failure], ARRAY[''], ARRAY[''], ARRAY['']) AS a;
    RETURN answer;
END
$$;
