-- The fast path for the most frequent requests: adding items, heartbeats, and
-- completions with their effects, each for a whole batch. It carries out a
-- request only if the law of package work surely allows it. Each such request
-- is answered by a row with the item's ID, the time, and the item's fields that
-- the client needs. All other requests have no row, and nothing of them
-- happens: repetitions, refusals, and items that another transaction has
-- locked. The client then carries them out by the law itself, with their rows
-- locked.
CREATE OR REPLACE FUNCTION croft.work_v1(
    set_at bigint, wait_ms integer, adds json, beats json, dones json
) RETURNS SETOF json
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET jit = off
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    limited text := set_config('lock_timeout', wait_ms::text, true);
    now_us  bigint := coalesce(set_at, croft.now_us());
    due     text[];
    effects boolean := false;
    answers json[];
BEGIN
    IF adds IS NOT NULL THEN
        WITH new AS (
            INSERT INTO croft.item AS i (id, queue, uniq, state, priority, tries, ready, created, payload, guards)
            SELECT a.id, a.queue, a.uniq, 'waiting', a.priority, a.tries,
                CASE WHEN a.not_before IS NULL THEN now_us + a.delay ELSE greatest(a.not_before, now_us) END,
                now_us, a.payload, a.guards
            FROM json_to_recordset(adds) AS a(
                n integer, id uuid, queue text, uniq text, priority smallint, tries integer,
                delay bigint, not_before bigint, payload bytea, guards json)
            WHERE a.not_before IS NULL OR a.not_before <= now_us + 366 * 86400000000
            ORDER BY a.id
            ON CONFLICT DO NOTHING
            RETURNING i.id, i.queue, i.ready)
        SELECT array_agg(json_build_object('id', new.id, 'ready', new.ready, 'now', now_us)),
            array_agg(DISTINCT new.queue) FILTER (WHERE new.ready <= now_us)
        INTO answers, due FROM new;
        IF answers IS NOT NULL THEN
            RETURN QUERY SELECT unnest(answers);
        END IF;
    END IF;

    IF beats IS NOT NULL THEN
        RETURN QUERY WITH ours AS MATERIALIZED (
            SELECT i.id, b.ttl
            FROM json_to_recordset(beats) AS b(id uuid, token bigint, grant_id uuid, ttl bigint)
            CROSS JOIN LATERAL (
                SELECT i.id FROM croft.item i
                WHERE i.id = b.id AND i.state = 'running' AND i.token = b.token AND i.grant_id = b.grant_id
                FOR UPDATE SKIP LOCKED) AS i
        ), clock AS MATERIALIZED (
            -- The count makes the server read the clock after the locks.
            SELECT coalesce(set_at, croft.now_us()) AS us FROM (SELECT count(*) FROM ours) AS locked
        ), beaten AS (
            UPDATE croft.item i SET
                ttl = coalesce(ours.ttl, i.ttl), renewed = clock.us,
                deadline = CASE
                    WHEN clock.us < i.renewed THEN clock.us + coalesce(ours.ttl, i.ttl)
                    ELSE greatest(i.deadline, clock.us + coalesce(ours.ttl, i.ttl)) END
            FROM ours, clock WHERE i.id = ours.id
            RETURNING i.*)
        SELECT json_build_object(
            'now', b.renewed, 'id', b.id, 'queue', b.queue, 'state', b.state,
            'attempts', b.attempts, 'tries', b.tries, 'generation', b.generation,
            'owner', b.owner, 'instance', b.instance, 'held', b.held, 'cause', b.cause,
            'renewed', b.renewed, 'deadline', b.deadline, 'ttl', b.ttl)
        FROM beaten b;
    END IF;

    IF dones IS NOT NULL THEN
        WITH asked AS MATERIALIZED (
            SELECT d.*
            FROM json_to_recordset(dones) AS d(id uuid, token bigint, grant_id uuid, result bytea, effects json)
        ), ours AS MATERIALIZED (
            SELECT d.id, d.result, d.effects FROM asked d CROSS JOIN LATERAL (
                SELECT FROM croft.item i
                WHERE i.id = d.id AND i.state = 'running' AND i.token = d.token AND i.grant_id = d.grant_id
                FOR UPDATE SKIP LOCKED) AS i
        ), clock AS MATERIALIZED (
            -- The count makes the server read the clock after the locks.
            SELECT coalesce(set_at, croft.now_us()) AS us FROM (SELECT count(*) FROM ours) AS locked
        ), done AS (
            UPDATE croft.item i SET
                state = 'done', finished = clock.us, renewed = clock.us, deadline = clock.us,
                held = 'free', ended = 'released',
                result = d.result, error = '', checkpoint = NULL, checkpoint_at = NULL
            FROM ours d, clock WHERE i.id = d.id
            RETURNING i.id, i.queue, i.attempts, i.tries, i.generation, i.token, i.grant_id,
                i.owner, i.instance, i.cause, i.finished, d.effects
        ), sent AS (
            INSERT INTO croft.effect (
                item, generation, name, queue, dest, at_most_once,
                token, grant_id, owner, state, ready, created, body)
            SELECT
                done.id, done.generation, e.name, done.queue, e.dest, e.at_most_once,
                done.token, done.grant_id, done.owner, 'pending', done.finished, done.finished, e.body
            FROM done
            CROSS JOIN LATERAL json_to_recordset(done.effects)
                AS e(name text, dest text, at_most_once boolean, body bytea)
            ON CONFLICT DO NOTHING
            RETURNING 1)
        SELECT
            array_agg(json_build_object(
                'now', done.finished, 'id', done.id, 'queue', done.queue,
                'attempts', done.attempts, 'tries', done.tries, 'generation', done.generation,
                'owner', done.owner, 'instance', done.instance, 'cause', done.cause)),
            bool_or(done.effects IS NOT NULL)
        INTO answers, effects FROM done;
        IF answers IS NOT NULL THEN
            RETURN QUERY SELECT unnest(answers);
        END IF;
    END IF;

    IF due IS NOT NULL THEN
        PERFORM croft.wake_v1(due);
    END IF;
    IF effects THEN
        PERFORM croft.wake_v1(ARRAY['']);
    END IF;
END
$$;
