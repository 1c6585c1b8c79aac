-- The same law for requests on a single key, in their order: see apply_v1, whose handful of statements for many keys is more than one key needs. It waits for a
-- row that another transaction has, at most wait_ms.
CREATE FUNCTION croft.apply_one_v1(
    set_at bigint, wait_ms integer, k text,
    verbs text[], grants text[], owners text[], instances text[], ttls bigint[], aboves bigint[], everys bigint[], holds bigint[],
    guardses text[], resumes boolean[], progresses text[], faileds boolean[], actors text[], notes text[]
) RETURNS TABLE (i integer, verdict text, now_us bigint, lease croft.lease, past json)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    max_token CONSTANT bigint := 9007199254740991;
    min_time  CONSTANT bigint := -62135596799999999;
    limited text := set_config('lock_timeout', wait_ms::text, true);
    verb    text;
    g       text;              -- the request's grant
    r       croft.lease;       -- the key's record
    present boolean;           -- it has a record
    locked  boolean := false;  -- and the record is ours
    insist  boolean;           -- lock it, whatever it says
    known   boolean;           -- the request's grant is remembered:
    t_state text; t_cause text; t_ended text; -- what of its transfer
    alive   boolean;           -- the newest term is held and its deadline has not passed
    by_hand boolean;
    next_state text;
    next_cause text;
    next_token bigint;
    due     bigint;
BEGIN
    FOR n IN 1 .. cardinality(verbs) LOOP
        i := n; verb := verbs[n]; g := grants[n]; past := NULL; insist := false;
        <<attempt>>
        LOOP
            IF locked THEN
                NULL;
            ELSIF verb = 'acquire' AND NOT insist THEN
                -- Who is only told that another holds the key pays for no lock, no transaction number and no flush.
                now_us := coalesce(set_at, croft.now_us());
                SELECT * INTO r FROM croft.lease l WHERE l.key = k AND NOT (l.state = 'held' AND l.deadline > now_us) FOR UPDATE SKIP LOCKED;
                present := FOUND; locked := FOUND;
                IF NOT FOUND THEN
                    SELECT * INTO r FROM croft.lease l WHERE l.key = k;
                    IF FOUND THEN
                        now_us := coalesce(set_at, croft.now_us());
                        IF r.state = 'held' AND now_us < r.deadline AND now_us <= max_token THEN
                            lease := r; known := false;
                            IF r.grant_id = g THEN
                                verdict := 'done';
                                EXIT attempt;
                            ELSIF NOT croft.short(g) = ANY (r.spent) THEN
                                verdict := 'refused';
                                EXIT attempt;
                            END IF;
                        END IF;
                        insist := true; -- another transaction has it, or has just changed it
                        CONTINUE attempt;
                    END IF;
                END IF;
            ELSE
                SELECT * INTO r FROM croft.lease l WHERE l.key = k FOR UPDATE;
                present := FOUND; locked := FOUND;
            END IF;

            -- After the lock: a request that waited is judged by the time at which it came through.
            now_us := coalesce(set_at, croft.now_us());
            IF present THEN
                lease := r;
            ELSE
                lease := NULL;
            END IF;
            verdict := 'refused';
            known := present AND r.grant_id = g;
            alive := present AND r.state = 'held' AND now_us < r.deadline;
            IF now_us NOT BETWEEN min_time AND max_token THEN
                EXIT attempt; -- nothing that such a clock decides could be undone
            END IF;

            IF verb = 'renew' OR verb = 'report' THEN
                IF NOT known OR r.state <> 'held' OR (NOT alive AND NOT resumes[n]) THEN
                    EXIT attempt;
                END IF;
                IF verb = 'report' THEN
                    r.progress := progresses[n]; r.progress_at := now_us;
                    UPDATE croft.lease l SET progress = r.progress, progress_at = r.progress_at WHERE l.key = k;
                ELSE
                    IF ttls[n] <> 0 THEN
                        r.ttl := ttls[n];
                    END IF;
                    -- A shorter TTL takes nothing back, unless the clock has stepped back.
                    due := now_us + r.ttl;
                    IF due < r.deadline AND now_us >= r.renewed THEN
                        due := r.deadline;
                    END IF;
                    r.renewed := now_us; r.deadline := due;
                    UPDATE croft.lease l SET ttl = r.ttl, renewed = r.renewed, deadline = r.deadline WHERE l.key = k;
                END IF;
                verdict := 'done'; lease := r;
                EXIT attempt;
            END IF;

            -- What is remembered of the request's grant.
            IF known THEN
                t_state := CASE WHEN r.ended <> '' THEN 'held' ELSE r.state END; t_cause := r.cause; t_ended := r.ended;
            ELSIF present AND croft.short(g) = ANY (r.spent) THEN
                SELECT p.state, p.cause, p.ended INTO t_state, t_cause, t_ended FROM croft.past p WHERE p.key = k AND p.grant_id = g;
                known := FOUND;
            END IF;

            IF verb = 'release' THEN
                IF NOT alive OR r.grant_id <> g THEN
                    IF known AND t_ended IN ('released', 'failed') THEN
                        verdict := 'done';
                    END IF;
                    EXIT attempt;
                END IF;
                r.state := 'free'; r.ended := 'released'; r.deadline := now_us;
                IF faileds[n] THEN
                    r.ended := 'failed'; r.hold_until := NULL;
                ELSE
                    r.succeeded := r.acquired;
                END IF;
                UPDATE croft.lease l SET state = r.state, ended = r.ended, deadline = r.deadline, hold_until = r.hold_until, succeeded = r.succeeded
                WHERE l.key = k;
                verdict := 'done'; lease := r;
                EXIT attempt;
            END IF;

            -- The rest are grants: by the law's leave, or by hand.
            by_hand := verb <> 'acquire';
            IF by_hand THEN
                next_state := CASE verb WHEN 'reserve' THEN 'reserved' WHEN 'revoke' THEN 'free' ELSE 'held' END;
                next_cause := CASE verb WHEN 'revoke' THEN 'cancelled' ELSE 'operator' END;
                IF known THEN
                    IF t_state = next_state AND t_cause = next_cause AND r.grant_id = g AND r.ended = '' AND (next_state <> 'held' OR alive) THEN
                        verdict := 'done';
                    END IF;
                    EXIT attempt;
                END IF;
            ELSE
                next_state := 'held';
                IF alive AND r.grant_id = g THEN
                    verdict := 'done';
                    EXIT attempt;
                END IF;
                IF known OR alive OR (present AND (
                       (r.state = 'reserved' AND now_us < r.deadline AND r.owner <> owners[n])
                    OR (r.state = 'free' AND r.ended = 'released' AND now_us < r.hold_until)
                    OR (everys[n] > 0 AND now_us < r.succeeded + (everys[n] + 1) / 2))) -- half a period, rounded up: times are whole
                THEN
                    EXIT attempt;
                END IF;
                next_cause := CASE
                    WHEN aboves[n] > 0 AND (NOT present OR aboves[n] >= r.token) THEN 'recovery'
                    WHEN NOT present THEN 'first'
                    WHEN r.state = 'free' AND r.cause = 'cancelled' AND r.ended = '' THEN 'cancelled'
                    WHEN r.state = 'free' THEN 'released'
                    WHEN r.state = 'reserved' AND now_us < r.deadline THEN 'handoff'
                    ELSE 'expired' END;
            END IF;

            next_token := greatest(aboves[n] + 1, 1, now_us);
            IF present AND r.token >= next_token THEN
                next_token := r.token + 1;
            END IF;
            IF next_token > max_token THEN
                EXIT attempt;
            END IF;

            IF present THEN -- the term before becomes the past
                INSERT INTO croft.past AS p (key, slot, token, grant_id, owner, instance, state, cause, actor, note, acquired, finished, ended)
                VALUES (k, r.transfers % 31, r.token, r.grant_id, r.owner, r.instance,
                       CASE WHEN r.ended <> '' THEN 'held' ELSE r.state END, r.cause, r.actor, r.note, r.acquired,
                       CASE WHEN r.ended <> '' OR (r.state = 'held' AND now_us >= r.deadline) THEN r.deadline ELSE now_us END,
                       CASE WHEN r.ended <> '' THEN r.ended
                            WHEN r.state <> 'held' THEN 'superseded'
                            WHEN now_us >= r.deadline THEN 'expired'
                            ELSE 'taken_over' END)
                ON CONFLICT (key, slot) DO UPDATE
                SET token = excluded.token, grant_id = excluded.grant_id, owner = excluded.owner, instance = excluded.instance, state = excluded.state,
                    cause = excluded.cause, actor = excluded.actor, note = excluded.note, acquired = excluded.acquired, finished = excluded.finished,
                    ended = excluded.ended;
                r.spent := croft.short(r.grant_id) || r.spent[:30];
            ELSE
                r.key := k; r.terms := 0; r.transfers := 0; r.every := 0; r.succeeded := NULL;
                r.actor := ''; r.note := ''; r.guards := ''; r.spent := '{}';
            END IF;

            IF by_hand THEN
                r.actor := actors[n]; r.note := notes[n];
            ELSIF next_cause <> 'handoff' THEN
                r.actor := ''; r.note := '';
            END IF;
            r.token := next_token; r.grant_id := g; r.state := next_state; r.cause := next_cause; r.ended := '';
            r.owner := owners[n]; r.instance := instances[n]; r.ttl := ttls[n];
            IF verb = 'reserve' THEN
                r.instance := '';
            ELSIF verb = 'revoke' THEN
                r.owner := ''; r.instance := ''; r.ttl := 0;
            END IF;
            r.acquired := now_us; r.renewed := now_us; r.deadline := now_us + r.ttl;
            r.hold_until := NULL; r.progress := ''; r.progress_at := NULL;
            IF NOT by_hand OR guardses[n] <> '' THEN
                r.guards := guardses[n];
            END IF;
            IF NOT by_hand AND everys[n] > 0 THEN
                r.every := everys[n];
            END IF;
            IF NOT by_hand AND holds[n] > 0 THEN
                r.hold_until := now_us + holds[n];
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
                    terms = r.terms, transfers = r.transfers, spent = r.spent
                WHERE l.key = k;
            ELSE
                INSERT INTO croft.lease SELECT r.* ON CONFLICT (key) DO NOTHING;
                IF NOT FOUND THEN -- another was faster by a moment
                    insist := true;
                    CONTINUE attempt;
                END IF;
                present := true; locked := true;
                DELETE FROM croft.past p WHERE p.key = k; -- of a record that somebody deleted by hand
            END IF;
            verdict := 'done'; lease := r;
            EXIT attempt;
        END LOOP;

        IF verdict = 'done' THEN
            IF verb <> 'renew' AND verb <> 'report' AND locked
                AND EXISTS (SELECT FROM croft.waiter w WHERE w.key = k AND w.wait_until > clock_timestamp())
            THEN
                PERFORM pg_notify('croft.wake', k); -- it goes out when the change is committed
            END IF;
        ELSIF verdict = 'refused' AND present AND (known OR verb <> 'acquire') THEN
            past := croft.past_of(k);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
