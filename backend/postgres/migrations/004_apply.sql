-- The law of ownership (package tenure), for a whole batch in one call. Every request gets one row:
--   done     it took effect, or the record shows its effect already; lease is the record after it
--   refused  the law refuses it and nothing was changed; lease is the record as it stands, NULL if nothing is remembered. past is
--            set where the refusal rests on more than the newest transfer. The client derives the reason with the same law
--   skipped  another transaction has the key's row: nothing is known, ask again
--
-- set_at replaces the clock, for tests. patient waits for a row that another transaction has, at most wait_ms; otherwise it is skipped.
-- Keys are visited in their order, so that two batches that meet never wait for each other in a circle.
CREATE FUNCTION croft.apply_v1(
    set_at bigint, patient boolean, wait_ms integer,
    verbs text[], keys text[], grants text[], owners text[], instances text[], ttls bigint[], aboves bigint[], everys bigint[], holds bigint[],
    guardses text[], resumes boolean[], progresses text[], faileds boolean[], actors text[], notes text[]
) RETURNS TABLE (i bigint, verdict text, now_us bigint, lease croft.lease, past json)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    max_token CONSTANT bigint := 9007199254740991;
    min_time  CONSTANT bigint := -62135596799999999;
    q       record;
    r       croft.lease;       -- the key's record
    t_state text; t_cause text; t_ended text; -- of the transfer that q's grant had
    at_key  text;              -- the key being worked on
    present boolean;           -- it has a record
    locked  boolean;           -- and the record is ours
    skip    boolean;           -- or another's
    known   boolean;           -- q's grant is remembered
    alive   boolean;           -- the newest term is held and its deadline has not passed
    by_hand boolean;
    next_state text;
    next_cause text;
    next_token bigint;
    due     bigint;
BEGIN
    PERFORM set_config('lock_timeout', wait_ms::text, true);
    FOR q IN
        SELECT * FROM unnest(verbs, keys, grants, owners, instances, ttls, aboves, everys, holds, guardses, resumes, progresses, faileds, actors, notes)
            WITH ORDINALITY AS request(verb, key, grant_id, owner, instance, ttl, above, every, hold, guards, resume, progress, failed, actor, note, i)
        ORDER BY key COLLATE "C", i
    LOOP
        IF at_key IS DISTINCT FROM q.key THEN
            at_key := q.key; present := false; locked := false; skip := false;
        END IF;
        i := q.i; past := NULL;
        by_hand := q.verb IN ('takeover', 'reserve', 'revoke');
        <<attempt>>
        LOOP
            IF skip THEN
                verdict := 'skipped'; now_us := NULL; lease := NULL;
                EXIT attempt;
            END IF;

            -- A look before the lock: being told that another holds the key must not cost a lock, a transaction number and a flush.
            IF NOT locked AND q.verb = 'acquire' THEN
                SELECT * INTO r FROM croft.lease l WHERE l.key = q.key;
                now_us := coalesce(set_at, croft.now_us());
                IF FOUND AND r.state = 'held' AND now_us < r.deadline AND now_us <= max_token THEN
                    known := false;
                    IF r.grant_id = q.grant_id THEN
                        verdict := 'done'; lease := r;
                        EXIT attempt;
                    ELSIF NOT EXISTS (SELECT FROM croft.past p WHERE p.key = q.key AND p.grant_id = q.grant_id) THEN
                        verdict := 'refused'; lease := r;
                        EXIT attempt;
                    END IF;
                END IF;
            END IF;

            IF NOT locked THEN
                IF patient THEN
                    SELECT * INTO r FROM croft.lease l WHERE l.key = q.key FOR UPDATE;
                    present := FOUND;
                ELSE
                    SELECT * INTO r FROM croft.lease l WHERE l.key = q.key FOR UPDATE SKIP LOCKED;
                    present := FOUND;
                    IF NOT present AND EXISTS (SELECT FROM croft.lease l WHERE l.key = q.key) THEN
                        skip := true;
                        CONTINUE attempt;
                    END IF;
                END IF;
                locked := present;
            END IF;

            -- After the lock: a request that waited is judged by the time at which it came through.
            now_us := coalesce(set_at, croft.now_us());
            lease := CASE WHEN present THEN r END;
            verdict := 'refused';
            alive := present AND r.state = 'held' AND now_us < r.deadline;
            known := false;
            IF now_us NOT BETWEEN min_time AND max_token THEN
                EXIT attempt; -- nothing that such a clock decides could be undone
            END IF;

            -- What is remembered of the request's grant.
            IF present AND r.grant_id = q.grant_id THEN
                known := true;
                t_state := CASE WHEN r.ended <> '' THEN 'held' ELSE r.state END; t_cause := r.cause; t_ended := r.ended;
            ELSIF present AND q.verb NOT IN ('renew', 'report') THEN
                SELECT p.state, p.cause, p.ended INTO t_state, t_cause, t_ended FROM croft.past p WHERE p.key = q.key AND p.grant_id = q.grant_id;
                known := FOUND;
            END IF;

            IF q.verb IN ('renew', 'report') THEN
                IF NOT present OR r.grant_id <> q.grant_id OR r.state <> 'held' OR (now_us >= r.deadline AND NOT q.resume) THEN
                    EXIT attempt;
                END IF;
                IF q.verb = 'report' THEN
                    r.progress := q.progress; r.progress_at := now_us;
                    UPDATE croft.lease l SET progress = r.progress, progress_at = r.progress_at WHERE l.key = q.key;
                ELSE
                    IF q.ttl <> 0 THEN
                        r.ttl := q.ttl;
                    END IF;
                    -- A shorter TTL takes nothing back, unless the clock has stepped back.
                    due := now_us + r.ttl;
                    IF due < r.deadline AND now_us >= r.renewed THEN
                        due := r.deadline;
                    END IF;
                    r.renewed := now_us; r.deadline := due;
                    UPDATE croft.lease l SET ttl = r.ttl, renewed = r.renewed, deadline = r.deadline WHERE l.key = q.key;
                END IF;
                verdict := 'done'; lease := r;
                EXIT attempt;
            END IF;

            IF q.verb = 'release' THEN
                IF NOT (alive AND r.grant_id = q.grant_id) THEN
                    IF known AND t_ended IN ('released', 'failed') THEN
                        verdict := 'done';
                    END IF;
                    EXIT attempt;
                END IF;
                r.state := 'free'; r.ended := 'released'; r.deadline := now_us;
                IF q.failed THEN
                    r.ended := 'failed'; r.hold_until := NULL;
                ELSE
                    r.succeeded := r.acquired;
                END IF;
                UPDATE croft.lease l SET state = r.state, ended = r.ended, deadline = r.deadline, hold_until = r.hold_until, succeeded = r.succeeded
                WHERE l.key = q.key;
                verdict := 'done'; lease := r;
                PERFORM croft.wake(q.key);
                EXIT attempt;
            END IF;

            -- The rest are grants: by the law's leave, or by hand.
            next_state := CASE q.verb WHEN 'reserve' THEN 'reserved' WHEN 'revoke' THEN 'free' ELSE 'held' END;
            IF by_hand THEN
                next_cause := CASE q.verb WHEN 'revoke' THEN 'cancelled' ELSE 'operator' END;
                IF known THEN
                    IF t_state = next_state AND t_cause = next_cause AND r.grant_id = q.grant_id AND r.ended = '' AND (next_state <> 'held' OR alive) THEN
                        verdict := 'done';
                    END IF;
                    EXIT attempt;
                END IF;
            ELSE
                IF alive AND r.grant_id = q.grant_id THEN
                    verdict := 'done';
                    EXIT attempt;
                END IF;
                IF known OR alive
                    OR (present AND r.state = 'reserved' AND now_us < r.deadline AND r.owner <> q.owner)
                    OR (present AND r.state = 'free' AND r.ended = 'released' AND now_us < r.hold_until)
                    -- Half a period, rounded up: times are whole.
                    OR (present AND q.every > 0 AND now_us < r.succeeded + (q.every + 1) / 2)
                THEN
                    EXIT attempt;
                END IF;
                next_cause := CASE
                    WHEN q.above > 0 AND (NOT present OR q.above >= r.token) THEN 'recovery'
                    WHEN NOT present THEN 'first'
                    WHEN r.state = 'free' AND r.cause = 'cancelled' AND r.ended = '' THEN 'cancelled'
                    WHEN r.state = 'free' THEN 'released'
                    WHEN r.state = 'reserved' AND now_us < r.deadline THEN 'handoff'
                    ELSE 'expired' END;
            END IF;

            next_token := greatest(CASE WHEN present THEN r.token END + 1, q.above + 1, 1, now_us);
            IF next_token > max_token THEN
                EXIT attempt;
            END IF;

            IF present THEN -- the term before becomes the past
                INSERT INTO croft.past AS p (key, slot, token, grant_id, owner, instance, state, cause, actor, note, acquired, finished, ended)
                SELECT q.key, r.transfers % 31, r.token, r.grant_id, r.owner, r.instance,
                       CASE WHEN r.ended <> '' THEN 'held' ELSE r.state END, r.cause, r.actor, r.note, r.acquired,
                       CASE WHEN r.ended <> '' OR (r.state = 'held' AND now_us >= r.deadline) THEN r.deadline ELSE now_us END,
                       CASE WHEN r.ended <> '' THEN r.ended
                            WHEN r.state <> 'held' THEN 'superseded'
                            WHEN now_us >= r.deadline THEN 'expired'
                            ELSE 'taken_over' END
                ON CONFLICT (key, slot) DO UPDATE
                SET token = excluded.token, grant_id = excluded.grant_id, owner = excluded.owner, instance = excluded.instance, state = excluded.state,
                    cause = excluded.cause, actor = excluded.actor, note = excluded.note, acquired = excluded.acquired, finished = excluded.finished,
                    ended = excluded.ended;
            ELSE
                r.key := q.key; r.terms := 0; r.transfers := 0; r.every := 0; r.succeeded := NULL;
                r.actor := ''; r.note := ''; r.guards := '';
            END IF;

            IF by_hand THEN
                r.actor := q.actor; r.note := q.note;
            ELSIF next_cause <> 'handoff' THEN
                r.actor := ''; r.note := '';
            END IF;
            r.token := next_token; r.grant_id := q.grant_id; r.state := next_state; r.cause := next_cause; r.ended := '';
            r.owner := q.owner; r.instance := q.instance; r.ttl := q.ttl;
            IF q.verb = 'reserve' THEN
                r.instance := '';
            ELSIF q.verb = 'revoke' THEN
                r.owner := ''; r.instance := ''; r.ttl := 0;
            END IF;
            r.acquired := now_us; r.renewed := now_us; r.deadline := now_us + r.ttl;
            r.hold_until := NULL; r.progress := ''; r.progress_at := NULL;
            IF NOT by_hand OR q.guards <> '' THEN
                r.guards := q.guards;
            END IF;
            IF NOT by_hand AND q.every > 0 THEN
                r.every := q.every;
            END IF;
            IF NOT by_hand AND q.hold > 0 THEN
                r.hold_until := now_us + q.hold;
            END IF;
            r.transfers := r.transfers + 1;
            IF next_state = 'held' THEN
                r.terms := r.terms + 1;
            END IF;

            IF present THEN
                UPDATE croft.lease l
                SET token = r.token, grant_id = r.grant_id, owner = r.owner, instance = r.instance, state = r.state, cause = r.cause, ended = r.ended,
                    actor = r.actor, note = r.note, acquired = r.acquired, renewed = r.renewed, deadline = r.deadline, ttl = r.ttl, every = r.every,
                    hold_until = r.hold_until, guards = r.guards, progress = r.progress, progress_at = r.progress_at,
                    terms = r.terms, transfers = r.transfers
                WHERE l.key = q.key;
            ELSE
                INSERT INTO croft.lease SELECT r.* ON CONFLICT (key) DO NOTHING;
                IF NOT FOUND THEN -- another was faster by a moment
                    skip := NOT patient;
                    CONTINUE attempt;
                END IF;
                present := true; locked := true;
                DELETE FROM croft.past p WHERE p.key = q.key; -- of a record that somebody deleted by hand
            END IF;
            verdict := 'done'; lease := r;
            PERFORM croft.wake(q.key);
            EXIT attempt;
        END LOOP;

        IF verdict = 'refused' AND present AND (known OR q.verb <> 'acquire') THEN
            past := croft.past_of(q.key);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
