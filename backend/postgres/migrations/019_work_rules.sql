-- The targets of the guards that an item names, as JSON. Most items have none.
ALTER TABLE croft.item ADD COLUMN IF NOT EXISTS guards json;

-- For taking effects by destination, and counting those that were given up.
CREATE INDEX IF NOT EXISTS effect_due ON croft.effect (dest, ready, item, generation, name) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS effect_line ON croft.effect (dest, created, item, generation, name)
    WHERE state IN ('pending', 'unknown');
CREATE INDEX IF NOT EXISTS effect_failed ON croft.effect (settled) WHERE state = 'failed';

-- How queues hand out their items. A queue without a row hands out all that is
-- ready.
CREATE TABLE IF NOT EXISTS croft.rule (
    queue   text COLLATE "C" PRIMARY KEY,
    paused  boolean NOT NULL,                      -- claims find nothing
    actor   text NOT NULL,                         -- who changed the rule last
    note    text NOT NULL,                         -- and why
    changed bigint NOT NULL                        -- and when
);

-- Notifies the workers that wait for one of these queues, and disarms the
-- queues. The workers arm them again when they next find nothing.
CREATE OR REPLACE FUNCTION croft.wake_v1(queues text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    q text;
BEGIN
    FOR q IN
        SELECT i.queue FROM croft.idle i
        WHERE i.queue = ANY (queues) AND i.wait_until > clock_timestamp()
        FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE croft.idle SET wait_until = '-infinity' WHERE queue = q;
        PERFORM pg_notify('croft.work', q);
    END LOOP;
END
$$;

-- The past of an item that is granted to another at now_us. It includes the
-- newest transfer, which ends now if nothing has ended it before; see tenure's
-- grant. The newest 31 transfers are kept.
CREATE OR REPLACE FUNCTION croft.past_v1(i croft.item, now_us bigint) RETURNS json
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT json_agg(t.term ORDER BY t.n) FROM (
        SELECT t.term, t.n
        FROM json_array_elements(CASE WHEN json_typeof(i.past) = 'array' THEN i.past END)
            WITH ORDINALITY AS t(term, n)
        UNION ALL
        SELECT json_build_object(
            'token', i.token, 'grant', i.grant_id, 'owner', i.owner, 'instance', i.instance,
            'state', CASE WHEN i.ended <> '' THEN 'held' ELSE i.held END,
            'cause', i.cause, 'actor', i.actor, 'note', i.note, 'acquired', i.acquired,
            'finished', CASE
                WHEN i.ended <> '' OR i.held = 'held' AND i.deadline <= now_us THEN i.deadline
                ELSE now_us END,
            'ended', CASE
                WHEN i.ended <> '' THEN i.ended
                WHEN i.held <> 'held' THEN 'superseded'
                WHEN i.deadline <= now_us THEN 'expired'
                ELSE 'taken_over' END), 1000
        ORDER BY 2 DESC LIMIT 31) AS t
$$;

-- Claims up to n items of the queues by the law of package work, in their
-- common order, and returns their rows. It skips rows that another transaction
-- has locked, and queues that are paused. set_at replaces the clock, for tests.
--
-- With again, the answer is the items that run under this grant, if there are
-- any.
--
-- With arm, and fewer than n items found, the function arms the queues. If some
-- were not armed before, a last row says {"armed": true}. Then the client
-- claims once more, because work that was added before the queues were armed
-- told nobody.
CREATE OR REPLACE FUNCTION croft.claim_v1(
    set_at bigint, queue_list json, n integer, g uuid, who text, run text, ttl_us bigint, again boolean, arm boolean
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
    max_token CONSTANT bigint := 9007199254740991;
    queues text[] := ARRAY(SELECT DISTINCT json_array_elements_text(queue_list));
    opened text[] := ARRAY(
        SELECT q FROM unnest(queues) AS q
        WHERE NOT EXISTS (SELECT FROM croft.rule r WHERE r.queue = q AND r.paused));
    now_us bigint := coalesce(set_at, croft.now_us());
    level  integer := 1000000;
    found_ids  uuid[] := '{}';
    more   uuid[];
BEGIN
    -- A standby, or a primary that others have replaced, would find no work for
    -- ever. While it has none, no other statement here fails.
    IF current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION 'cannot claim items in a read-only transaction' USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    IF again THEN
        RETURN QUERY
            SELECT row_to_json(i) FROM croft.item i
            WHERE i.state = 'running' AND i.queue = ANY (queues) AND i.grant_id = g
            ORDER BY i.priority DESC, i.ready, i.id;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    LOOP
        -- One priority after the other: items that wait for their time in one
        -- do not delay the next.
        SELECT max(p.priority) INTO level
        FROM unnest(opened) AS q(queue) CROSS JOIN LATERAL (
            SELECT i.priority FROM croft.item i
            WHERE i.state = 'waiting' AND i.queue = q.queue AND i.priority < level
            ORDER BY i.priority DESC LIMIT 1) AS p;
        EXIT WHEN level IS NULL;
        SELECT coalesce(array_agg(c.id), '{}') INTO more FROM (
            SELECT c.id FROM unnest(opened) AS q(queue) CROSS JOIN LATERAL (
                SELECT i.id, i.ready FROM croft.item i
                WHERE i.state = 'waiting' AND i.queue = q.queue AND i.priority = level AND i.ready <= now_us
                  AND NOT (i.held = 'reserved' AND i.deadline > now_us AND i.owner <> who)
                  AND (i.token IS NULL
                       OR i.token < max_token AND i.grant_id <> g
                          AND (i.past IS NULL
                               OR strpos(replace(i.past::text, '-', ''), replace(g::text, '-', '')) = 0))
                ORDER BY i.ready, i.id LIMIT n - cardinality(found_ids) FOR UPDATE SKIP LOCKED) AS c
            ORDER BY c.ready, c.id LIMIT n - cardinality(found_ids)) AS c;
        found_ids := found_ids || more;
        EXIT WHEN cardinality(found_ids) >= n;
    END LOOP;

    IF cardinality(found_ids) > 0 THEN
        RETURN QUERY WITH taken AS (
            UPDATE croft.item i SET
                state = 'running', attempts = i.attempts + 1,
                token = greatest(coalesce(i.token, 0) + 1, now_us),
                past = CASE WHEN i.token IS NOT NULL THEN croft.past_v1(i, now_us) END,
                cause = CASE
                    WHEN i.token IS NULL THEN 'first'
                    WHEN i.held = 'free' AND i.cause = 'cancelled' AND i.ended = '' THEN 'cancelled'
                    WHEN i.held = 'free' THEN 'released'
                    WHEN i.held = 'reserved' AND now_us < i.deadline THEN 'handoff'
                    ELSE 'expired' END,
                actor = CASE WHEN i.held = 'reserved' AND now_us < i.deadline THEN i.actor ELSE '' END,
                note = CASE WHEN i.held = 'reserved' AND now_us < i.deadline THEN i.note ELSE '' END,
                grant_id = g, owner = who, instance = run, held = 'held', ended = '',
                acquired = now_us, renewed = now_us, deadline = now_us + ttl_us, ttl = ttl_us,
                progress = '', progress_at = NULL, terms = i.terms + 1
            WHERE i.id = ANY (found_ids)
            RETURNING i.*)
        -- At an item's first claim, the claimant knows the other columns.
        SELECT CASE WHEN t.cause = 'first' THEN (
                SELECT row_to_json(f) FROM (
                    SELECT now_us AS first, t.id, t.queue, t.uniq, t.priority, t.ready, t.created, t.tries,
                           t.token, t.payload, t.guards) AS f)
            ELSE row_to_json(t) END
        FROM taken t ORDER BY t.priority DESC, t.ready, t.id;
    END IF;

    -- Look first, and lock a row of idle only if it must change. Until this
    -- transaction ends, a locked row keeps others from notifying. The claim
    -- that follows finds their work.
    IF arm AND cardinality(found_ids) < n AND EXISTS (
        SELECT FROM unnest(queues) AS q
        WHERE NOT EXISTS (
            SELECT FROM croft.idle i
            WHERE i.queue = q AND i.wait_until >= clock_timestamp() + interval '2 minutes'))
    THEN
        BEGIN
            -- A transaction that has the row and stopped halfway must not delay
            -- the claim.
            PERFORM set_config('lock_timeout', '100ms', true);
            INSERT INTO croft.idle AS i (queue, wait_until)
            SELECT q, clock_timestamp() + interval '5 minutes' FROM unnest(queues) AS q ORDER BY q
            ON CONFLICT (queue) DO UPDATE
            SET wait_until = excluded.wait_until
            WHERE i.wait_until < clock_timestamp() + interval '2 minutes';
        EXCEPTION WHEN lock_not_available THEN
            NULL; -- the next claim enters them
        END;
        RETURN NEXT '{"armed": true}'::json;
    END IF;
END
$$;

-- Every statement that calls one of Croft's functions also calls this one. A
-- schema of an older version lacks it. So the statement fails, and the client
-- brings the schema up to date. That costs no round trip of its own. The
-- function is immutable, so the server calls it only when it makes a plan. In
-- PL/pgSQL the call is cheapest.
CREATE OR REPLACE FUNCTION croft.version_19() RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$ BEGIN RETURN true; END $$;
