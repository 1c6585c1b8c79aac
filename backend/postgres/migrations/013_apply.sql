-- The law of ownership (package tenure), for a whole batch in one call. Every
-- request gets one answer, in one text; see pack. It has the request's number,
-- a verdict, the time of the decision, the past and the packed record. The
-- verdicts:
--   done     The request took effect, or the record shows its effect already.
--            The record is the one after it.
--   refused  The law refuses the request, and nothing was changed. The record
--            is the present one, or missing if there is none. The past is there
--            if the refusal depends on more than the newest transfer. The
--            client derives the reason with the same law.
--   skipped  Another transaction has locked the key's row. Nothing is known:
--            ask again.
--
-- Requests come in waves. In each wave every key occurs once. The acquires come
-- first, and each part is ordered by key. Wave w ends at ends[w], its acquires
-- at claims[w]. A wave locks its rows, reads the clock, decides in memory, and
-- writes. That takes a handful of statements, however many requests there are.
--
-- The function waits for no locked row. Only for a row that another transaction
-- is just inserting, it waits at most wait_ms. A patient call is for a single
-- key, with every request in a wave of its own. It also waits for the key's
-- row.
--
-- Of a checkpoint, progresses has the bytes, in base64.
--
-- set_at replaces the clock, for tests. A refused acquire puts its client in
-- the queue for for_ms, if waiters names the client.
CREATE OR REPLACE FUNCTION croft.apply_v1(
    set_at bigint, wait_ms integer, for_ms integer, patient boolean, claims integer[], ends integer[],
    verbs text[], keys text[], grants text[], owners text[], instances text[],
    ttls bigint[], aboves bigint[], everys bigint[], holds bigint[], guardses text[], resumes boolean[],
    progresses text[], faileds boolean[], actors text[], notes text[], waiters text[]
) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
-- The server makes each plan once. A plan made while a table is small must
-- still serve when it has grown. So keys are always looked up by their index.
SET plan_cache_mode = force_generic_plan
SET jit = off
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    max_token CONSTANT bigint := 9007199254740991;
    min_time  CONSTANT bigint := -62135596799999999;
    limited  text := set_config('lock_timeout', wait_ms::text, true);
    wave     integer := 1;
    lo       integer := 1;        -- the first request of the wave
    claim_to integer;             -- the last acquire of the wave
    hi       integer;             -- the last request of the wave
    spots    integer[];           -- the requests whose rows are locked now
    held_rows    croft.lease[];   -- the rows of spots
    more_spots   integer[];
    more_rows   croft.lease[];
    seen     integer[];           -- the requests that have a row, locked or not; filled if not all are locked
    looked   croft.lease[];       -- the rows of seen
    a        integer;             -- how far spots has been read
    b        integer;             -- how far seen has been read
    skipped  text[] := '{}';      -- keys whose rows another transaction has
    insist   boolean := false;    -- lock the row even if the key is held
    answers  text[];              -- the answers of the wave
    news     croft.lease[];       -- the rows that the wave inserts
    changes  croft.lease[];       -- the rows that the wave updates
    overs    croft.past[];        -- the transfers that the wave ends
    made     text[];              -- the keys of news that were inserted
    joins    text[] := waiters;   -- waiters that are not in line yet; '' for the others
    join_keys text[];             -- the keys for which a client begins to wait
    join_ids  text[];             -- the clients of join_keys
    moved    text[] := '{}';      -- awaited keys that have changed hands
    taken    text[] := '{}';      -- awaited keys that were held before the call
    by_force text[] := '{}';      -- keys in moved of which all waiters are told
    acted    text[] := '{}';      -- keys that an operator acted on, awaited or not
    now_us   bigint;
    verb     text;
    verdict  text;
    past     json;
    lease    croft.lease;         -- the record in the answer
    shown    boolean;             -- the answer has a record
    k        text;                -- the request's key
    g        text;                -- the request's grant
    r        croft.lease;         -- the key's record
    o        croft.past;          -- the transfer of the record that is over
    present  boolean;             -- the key has a record
    known    boolean;             -- the record or its past has the request's grant
    t_state text; t_cause text; t_ended text; -- the transfer of that grant
    alive    boolean;             -- the newest term is held and its deadline has not passed
    by_hand  boolean;
    next_state text;
    next_cause text;
    next_token bigint;
    due      bigint;
BEGIN
IF '' <> ANY (waiters) THEN
    joins := ARRAY(SELECT CASE WHEN w = '' OR croft.in_line_v1(key, w, for_ms) THEN '' ELSE w END
        FROM unnest(keys, waiters) WITH ORDINALITY AS asked(key, w, n) ORDER BY n);
END IF;
WHILE wave <= cardinality(ends) LOOP
    claim_to := claims[wave]; hi := ends[wave];

    -- Lock. An acquire of a key that another holds needs no row lock. So its
    -- refusal costs no transaction number and no flush of the log.
    spots := '{}'; held_rows := '{}'; seen := '{}';
    now_us := coalesce(set_at, croft.now_us());
    IF claim_to >= lo THEN
        SELECT coalesce(array_agg(n), '{}'), array_agg(one.l) INTO spots, held_rows
        FROM generate_series(lo, claim_to) AS n CROSS JOIN LATERAL (
            SELECT l FROM croft.lease l
            WHERE l.key = keys[n]
              AND (insist OR joins[n] <> '' OR NOT (l.state = 'held' AND l.deadline > now_us))
            FOR UPDATE SKIP LOCKED) AS one(l);
    END IF;
    IF claim_to < hi THEN
        SELECT coalesce(array_agg(n), '{}'), array_agg(one.l) INTO more_spots, more_rows
        FROM generate_series(greatest(lo, claim_to + 1), hi) AS n CROSS JOIN LATERAL (
            SELECT l FROM croft.lease l WHERE l.key = keys[n] FOR UPDATE SKIP LOCKED) AS one(l);
        spots := spots || more_spots; held_rows := held_rows || more_rows;
    END IF;
    IF cardinality(spots) <= hi - lo THEN
        SELECT coalesce(array_agg(n), '{}'), array_agg(one.l) INTO seen, looked
        FROM generate_series(lo, hi) AS n CROSS JOIN LATERAL (
            SELECT l FROM croft.lease l WHERE l.key = keys[n]) AS one(l);
    END IF;

    -- The clock is read after the locks, so a request that waited is judged by
    -- the time when it got the lock.
    now_us := coalesce(set_at, croft.now_us());
    a := 1; b := 1;
    answers := '{}'; news := '{}'; changes := '{}'; overs := '{}'; join_keys := '{}'; join_ids := '{}';

    FOR n IN lo .. hi LOOP
        k := keys[n]; g := grants[n]; verb := verbs[n];
        verdict := 'refused'; shown := false; past := NULL;
        <<decide>>
        LOOP -- runs once; EXIT leaves it as soon as the answer is clear
            present := spots[a] = n;
            IF present THEN
                r := held_rows[a]; a := a + 1;
            ELSE
                present := false;
                WHILE seen[b] < n LOOP
                    b := b + 1;
                END LOOP;
                IF seen[b] = n THEN -- the row exists, but is not locked here
                    r := looked[b];
                    IF verb = 'acquire' AND r.state = 'held' AND now_us < r.deadline
                        AND now_us <= max_token AND joins[n] = ''
                        AND (r.grant_id = g OR NOT croft.short(g) = ANY (r.spent)) AND NOT k = ANY (skipped)
                    THEN
                        lease := r; shown := true;
                        IF r.grant_id = g THEN
                            verdict := 'done';
                        END IF;
                        EXIT decide;
                    END IF;
                    skipped := array_append(skipped, k);
                END IF;
            END IF;
            IF k = ANY (skipped) THEN
                verdict := 'skipped';
                EXIT decide;
            END IF;

            known := false; alive := false;
            IF present THEN
                lease := r; shown := true;
                IF NOT croft.sound(r) THEN
                    past := croft.past_of(k); -- the client finds the damage there
                    EXIT decide;
                END IF;
                known := r.grant_id = g;
                alive := r.state = 'held' AND now_us < r.deadline;
                IF wave = 1 AND alive AND r.awaited THEN
                    taken := array_append(taken, k);
                END IF;
            END IF;
            IF now_us NOT BETWEEN min_time AND max_token THEN
                EXIT decide; -- a decision by such a clock could never be undone
            END IF;

            IF verb = 'renew' OR verb = 'report' OR verb = 'checkpoint' THEN
                IF known AND r.state = 'held' AND (alive OR resumes[n]) THEN
                    IF verb = 'report' THEN
                        r.progress := progresses[n]; r.progress_at := now_us;
                    ELSIF verb = 'checkpoint' THEN -- no other request changes it
                        r.checkpoint := progresses[n]; r.progress_at := now_us;
                    ELSE
                        IF ttls[n] <> 0 THEN
                            r.ttl := ttls[n];
                        END IF;
                        -- A shorter TTL takes no time back, unless the clock
                        -- has stepped back.
                        due := now_us + r.ttl;
                        IF due > r.deadline OR now_us < r.renewed THEN
                            r.deadline := due;
                        END IF;
                        r.renewed := now_us;
                    END IF;
                    verdict := 'done'; lease := r; changes := array_append(changes, r);
                ELSIF present THEN
                    past := croft.past_of(k);
                END IF;
                EXIT decide;
            END IF;

            -- Look for the request's grant in the past.
            IF known THEN
                t_state := CASE WHEN r.ended <> '' THEN 'held' ELSE r.state END; t_cause := r.cause; t_ended := r.ended;
            ELSIF present AND croft.short(g) = ANY (r.spent) THEN
                SELECT p.state, p.cause, p.ended INTO t_state, t_cause, t_ended
                FROM croft.past p
                WHERE p.key = k AND p.grant_id = g;
                known := FOUND;
            END IF;

            IF verb = 'release' THEN
                IF alive AND r.grant_id = g THEN
                    r.state := 'free'; r.ended := 'released'; r.deadline := now_us;
                    IF faileds[n] THEN
                        r.ended := 'failed'; r.hold_until := NULL;
                    ELSE
                        r.succeeded := r.acquired;
                        IF r.every > 0 THEN
                            r.grid := coalesce(r.grid, r.acquired);
                        END IF;
                    END IF;
                    o.key := k; o.slot := r.transfers % 32; o.token := r.token; o.grant_id := g;
                    o.owner := r.owner; o.instance := r.instance; o.state := 'held'; o.cause := r.cause;
                    o.actor := r.actor; o.note := r.note; o.acquired := r.acquired; o.finished := now_us;
                    o.ended := r.ended;
                    verdict := 'done'; lease := r; changes := array_append(changes, r); overs := array_append(overs, o);
                    IF r.awaited THEN
                        moved := array_append(moved, k);
                    END IF;
                ELSIF known AND t_ended IN ('released', 'failed') THEN
                    verdict := 'done';
                ELSIF present THEN
                    past := croft.past_of(k);
                END IF;
                EXIT decide;
            END IF;

            -- All other verbs grant the key: acquire by the law's rules, the
            -- others by hand.
            by_hand := verb <> 'acquire';
            IF by_hand THEN
                next_state := CASE verb WHEN 'reserve' THEN 'reserved' WHEN 'revoke' THEN 'free' ELSE 'held' END;
                next_cause := CASE verb WHEN 'revoke' THEN 'cancelled' ELSE 'operator' END;
                IF known AND t_state = next_state AND t_cause = next_cause AND r.grant_id = g AND r.ended = ''
                    AND (next_state <> 'held' OR alive)
                THEN
                    verdict := 'done';
                    EXIT decide;
                END IF;
            ELSE
                IF alive AND r.grant_id = g THEN
                    verdict := 'done';
                    EXIT decide;
                END IF;
                IF present AND NOT known AND (alive
                    OR (r.state = 'reserved' AND now_us < r.deadline AND r.owner <> owners[n])
                    OR (r.state = 'free' AND r.ended = 'released' AND now_us < r.hold_until)
                    OR (everys[n] > 0 AND now_us < croft.due(r, everys[n])))
                THEN
                    IF joins[n] <> '' THEN
                        join_keys := array_append(join_keys, k); join_ids := array_append(join_ids, joins[n]);
                        r.awaited := true; changes := array_append(changes, r);
                    END IF;
                    EXIT decide;
                END IF;
                next_state := 'held';
                next_cause := CASE
                    WHEN aboves[n] > 0 AND (NOT present OR aboves[n] >= r.token) THEN 'recovery'
                    WHEN NOT present THEN 'first'
                    WHEN r.state = 'free' AND r.cause = 'cancelled' AND r.ended = '' THEN 'cancelled'
                    WHEN r.state = 'free' THEN 'released'
                    WHEN r.state = 'reserved' AND now_us < r.deadline THEN 'handoff'
                    ELSE 'expired' END;
            END IF;
            IF known THEN -- a secret is granted once
                past := croft.past_of(k);
                EXIT decide;
            END IF;

            next_token := greatest(aboves[n] + 1, 1, now_us);
            IF present AND r.token >= next_token THEN
                next_token := r.token + 1;
            END IF;
            IF next_token > max_token THEN
                EXIT decide;
            END IF;

            IF present THEN
                IF r.ended = '' THEN -- the newest term ends now
                    o.key := k; o.slot := r.transfers % 32; o.token := r.token; o.grant_id := r.grant_id;
                    o.owner := r.owner; o.instance := r.instance; o.state := r.state; o.cause := r.cause;
                    o.actor := r.actor; o.note := r.note; o.acquired := r.acquired; o.finished := now_us;
                    IF r.state <> 'held' THEN
                        o.ended := 'superseded';
                    ELSIF alive THEN
                        o.ended := 'taken_over';
                    ELSE
                        o.ended := 'expired'; o.finished := r.deadline;
                    END IF;
                    overs := array_append(overs, o);
                END IF;
                r.spent := croft.short(r.grant_id) || r.spent[:30];
            ELSE
                r.key := k; r.terms := 0; r.transfers := 0; r.every := 0; r.succeeded := NULL; r.grid := NULL;
                r.actor := ''; r.note := ''; r.guards := ''; r.checkpoint := ''; r.spent := '{}';
                r.awaited := EXISTS (SELECT FROM croft.waiter w WHERE w.key = k);
            END IF;

            r.token := next_token; r.grant_id := g; r.state := next_state; r.cause := next_cause; r.ended := '';
            r.owner := owners[n]; r.instance := instances[n]; r.ttl := ttls[n];
            r.hold_until := NULL; r.progress := ''; r.progress_at := NULL;
            IF by_hand THEN
                acted := array_append(acted, k);
                r.actor := actors[n]; r.note := notes[n];
                IF guardses[n] <> '' THEN
                    r.guards := guardses[n];
                END IF;
                IF verb <> 'takeover' THEN
                    r.instance := '';
                END IF;
                IF verb = 'revoke' THEN
                    r.owner := ''; r.ttl := 0;
                END IF;
            ELSE
                IF next_cause <> 'handoff' THEN
                    r.actor := ''; r.note := '';
                END IF;
                r.guards := guardses[n];
                IF everys[n] > 0 AND everys[n] <> r.every THEN
                    r.every := everys[n]; r.grid := NULL;
                END IF;
                IF holds[n] > 0 THEN
                    r.hold_until := now_us + holds[n];
                END IF;
            END IF;
            r.acquired := now_us; r.renewed := now_us; r.deadline := now_us + r.ttl;
            r.transfers := r.transfers + 1;
            IF next_state = 'held' THEN
                r.terms := r.terms + 1;
            END IF;
            verdict := 'done'; lease := r; shown := true;
            IF waiters[n] <> '' THEN
                DELETE FROM croft.waiter w WHERE w.key = k AND w.id = waiters[n]; -- it waits no more
            END IF;
            IF r.awaited THEN
                moved := array_append(moved, k);
                IF next_state = 'reserved' OR verb = 'takeover' OR NOT present THEN
                    by_force := array_append(by_force, k);
                END IF;
            END IF;
            IF present THEN
                changes := array_append(changes, r);
            ELSE
                news := array_append(news, r);
            END IF;
            EXIT decide;
        END LOOP;
        answers := array_append(answers, concat_ws(E'\x1f',
            n, verdict, now_us, coalesce(past::text, ''), CASE WHEN shown THEN croft.pack(lease) END));
    END LOOP;

    -- Write.
    IF cardinality(news) > 0 THEN
        WITH entered AS (INSERT INTO croft.lease SELECT * FROM unnest(news) ON CONFLICT (key) DO NOTHING RETURNING key)
        SELECT coalesce(array_agg(key), '{}') INTO made FROM entered;
        IF cardinality(made) < cardinality(news) THEN -- another transaction was faster
            FOR n IN lo .. hi LOOP
                IF NOT keys[n] = ANY (made) AND EXISTS (SELECT FROM unnest(news) AS c WHERE c.key = keys[n]) THEN
                    answers[n - lo + 1] := concat_ws(E'\x1f', n, 'skipped'); skipped := array_append(skipped, keys[n]);
                END IF;
            END LOOP;
        END IF;
    END IF;
    IF patient AND cardinality(skipped) > 0 THEN
        PERFORM FROM croft.lease l WHERE l.key = keys[lo] FOR UPDATE;
        skipped := '{}'; insist := true;
        CONTINUE;
    END IF;
    IF cardinality(changes) > 0 THEN
        UPDATE croft.lease l
        SET token = c.token, grant_id = c.grant_id, owner = c.owner, instance = c.instance,
            state = c.state, cause = c.cause, ended = c.ended, actor = c.actor, note = c.note,
            acquired = c.acquired, renewed = c.renewed, deadline = c.deadline, ttl = c.ttl, every = c.every,
            succeeded = c.succeeded, grid = c.grid, hold_until = c.hold_until, guards = c.guards,
            progress = c.progress, progress_at = c.progress_at, checkpoint = c.checkpoint,
            terms = c.terms, transfers = c.transfers, awaited = c.awaited, spent = c.spent
        FROM unnest(changes) AS c
        WHERE l.key = c.key;
    END IF;
    IF cardinality(overs) > 0 THEN
        INSERT INTO croft.past SELECT * FROM unnest(overs)
        ON CONFLICT (key, slot) DO UPDATE
        SET token = excluded.token, grant_id = excluded.grant_id, owner = excluded.owner,
            instance = excluded.instance, state = excluded.state, cause = excluded.cause,
            actor = excluded.actor, note = excluded.note,
            acquired = excluded.acquired, finished = excluded.finished, ended = excluded.ended;
    END IF;
    IF cardinality(join_keys) > 0 THEN
        INSERT INTO croft.waiter AS w (key, id, wait_until)
        SELECT j.key, j.id, clock_timestamp() + for_ms * interval '1 millisecond'
        FROM unnest(join_keys, join_ids) AS j(key, id)
        ON CONFLICT (key, id) DO UPDATE SET wait_until = excluded.wait_until, named = false;
    END IF;

    RETURN QUERY SELECT unnest(answers);
    lo := hi + 1; wave := wave + 1;
END LOOP;

-- Tell the waiters the final state of their keys. The states in between concern
-- nobody.
IF cardinality(moved) > 0 THEN
    FOR k, next_state IN SELECT l.key, l.state FROM croft.lease l WHERE l.key = ANY (moved) ORDER BY l.key LOOP
        IF k = ANY (by_force) THEN
            PERFORM pg_notify('croft.wake', k);
        ELSIF next_state = 'free' THEN
            PERFORM croft.wake_v1(k);
        ELSIF NOT k = ANY (taken) THEN
            PERFORM pg_notify('croft.wake', E'\x03' || k);
        END IF;
    END LOOP;
END IF;

-- Tell the holders of keys that an operator acted on. A notification fails the
-- transaction if the server's queue is full. So an act is not told while the
-- queue is half full: holders learn of it by renewing.
IF cardinality(acted) > 0 AND pg_notification_queue_usage() < 0.5 THEN
    PERFORM pg_notify('croft.wake', E'\x04' || one)
    FROM unnest(acted) AS one WHERE NOT one = ANY (skipped);
END IF;
END
$$;
