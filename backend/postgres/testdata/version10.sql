
BEGIN;

CREATE SCHEMA IF NOT EXISTS croft;
CREATE TABLE IF NOT EXISTS croft.migration (
    version integer PRIMARY KEY,
    name    text NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
);



CREATE TABLE croft.lease (
    token       bigint NOT NULL,
    acquired    bigint NOT NULL,
    renewed     bigint NOT NULL,
    deadline    bigint NOT NULL,
    ttl         bigint NOT NULL,
    every       bigint NOT NULL DEFAULT 0,
    terms       bigint NOT NULL,
    transfers   bigint NOT NULL,
    awaited     boolean NOT NULL DEFAULT false,
    key         text COLLATE "C" PRIMARY KEY,
    grant_id    text   NOT NULL,
    owner       text   NOT NULL,
    instance    text   NOT NULL,
    state       text   NOT NULL,
    cause       text   NOT NULL,
    ended       text   NOT NULL DEFAULT '',
    actor       text   NOT NULL DEFAULT '',
    note        text   NOT NULL DEFAULT '',
    guards      text   NOT NULL DEFAULT '',
    progress    text   NOT NULL DEFAULT '',
    progress_at bigint,
    succeeded   bigint,
    hold_until  bigint,
    spent       integer[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 70);

CREATE TABLE croft.past (
    token    bigint NOT NULL,
    acquired bigint NOT NULL,
    finished bigint NOT NULL,
    slot     smallint NOT NULL,
    key      text COLLATE "C" NOT NULL,
    grant_id text   NOT NULL,
    owner    text   NOT NULL,
    instance text   NOT NULL,
    state    text   NOT NULL,
    cause    text   NOT NULL,
    actor    text   NOT NULL,
    note     text   NOT NULL,
    ended    text   NOT NULL,
    PRIMARY KEY (key, slot)
) WITH (fillfactor = 70);

CREATE TABLE croft.waiter (
    key        text COLLATE "C" NOT NULL,
    id         text NOT NULL,
    place      bigint GENERATED ALWAYS AS IDENTITY,
    named      boolean NOT NULL DEFAULT false,
    wait_until timestamptz NOT NULL,
    PRIMARY KEY (key, id)
);

CREATE TABLE croft.housekeeping (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    swept_to text COLLATE "C" NOT NULL DEFAULT ''
);
INSERT INTO croft.housekeeping DEFAULT VALUES;

CREATE VIEW croft.leases AS
SELECT key, token, owner, instance,
       CASE WHEN state <> 'free' AND to_timestamp(deadline / 1e6) <= clock_timestamp() THEN 'free' ELSE state END
           AS state,
       cause, ended, actor, note,
       to_timestamp(acquired / 1e6) AS acquired, to_timestamp(renewed / 1e6) AS renewed,
           to_timestamp(deadline / 1e6) AS deadline,
       ttl * interval '1 microsecond' AS ttl, progress, to_timestamp(progress_at / 1e6) AS progress_at, terms
FROM croft.lease;

INSERT INTO croft.migration (version, name) VALUES (1, '001_tables');


CREATE FUNCTION croft.now_us() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint $$;

CREATE FUNCTION croft.short(grant_id text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT ('x' || left(grant_id, 8))::bit(32)::integer $$;

CREATE FUNCTION croft.pack(l croft.lease) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT concat_ws(E'\x1f', l.token, l.grant_id, l.owner, l.instance, l.state, l.cause, l.ended, l.actor, l.note,
        l.acquired, l.renewed, l.deadline, l.ttl, l.every,
        coalesce(l.succeeded::text, ''), coalesce(l.hold_until::text, ''), l.guards, l.progress,
            coalesce(l.progress_at::text, ''), l.terms, l.awaited)
$$;

CREATE FUNCTION croft.past_of(of_key text) RETURNS json
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(json_agg(json_build_object(
        'token', p.token, 'grant', p.grant_id, 'owner', p.owner, 'instance', p.instance, 'state', p.state, 'cause',
            p.cause,
        'actor', p.actor, 'note', p.note, 'acquired', p.acquired, 'finished', p.finished, 'ended', p.ended)
            ORDER BY p.token), '[]')
    FROM (SELECT q.* FROM croft.past q, croft.lease l WHERE l.key = of_key AND q.key = of_key AND q.token < l.token
        ORDER BY q.token DESC
        LIMIT (SELECT least(m.transfers - 1, 31) FROM croft.lease m WHERE m.key = of_key)) AS p
$$;

INSERT INTO croft.migration (version, name) VALUES (2, '002_measures');



CREATE FUNCTION croft.wake_v1(k text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    next_id text;
BEGIN
    SELECT v.id INTO next_id FROM croft.waiter v WHERE v.key = k AND NOT v.named
        AND v.wait_until > clock_timestamp() ORDER BY v.place LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE croft.waiter w SET named = true WHERE w.key = k AND w.id = next_id;
        PERFORM pg_notify('croft.wake', E'\x02' || next_id || ' ' || k);
    END IF;
    UPDATE croft.lease l SET awaited = false
    WHERE l.key = k AND NOT EXISTS (SELECT FROM croft.waiter w WHERE w.key = k AND NOT w.named
        AND w.wait_until > clock_timestamp());
END
$$;

CREATE FUNCTION croft.wait_v1(wait_ms integer, client text, keys text[], for_ms integer) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM set_config('lock_timeout', wait_ms::text, true);
    PERFORM FROM (SELECT FROM croft.lease l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE) AS settled;
    INSERT INTO croft.waiter AS w (key, id, wait_until)
    SELECT k, client, clock_timestamp() + for_ms * interval '1 millisecond'
        FROM (SELECT DISTINCT unnest(keys) COLLATE "C" AS k ORDER BY k) AS sorted
    ON CONFLICT (key, id) DO UPDATE SET wait_until = excluded.wait_until, named = false;
    UPDATE croft.lease l SET awaited = true WHERE l.key = ANY (keys) AND NOT l.awaited;
END
$$;

CREATE FUNCTION croft.pass_v1(wait_ms integer, k text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM set_config('lock_timeout', wait_ms::text, true);
    PERFORM FROM croft.lease l WHERE l.key = k AND l.state = 'free' FOR UPDATE;
    IF FOUND THEN
        PERFORM croft.wake_v1(k);
    END IF;
END
$$;

INSERT INTO croft.migration (version, name) VALUES (3, '003_wait');


CREATE FUNCTION croft.apply_v1(
    set_at bigint, wait_ms integer, for_ms integer, patient boolean, claims integer[], ends integer[],
    verbs text[], keys text[], grants text[], owners text[], instances text[], ttls bigint[], aboves bigint[],
        everys bigint[], holds bigint[],
    guardses text[], resumes boolean[], progresses text[], faileds boolean[], actors text[], notes text[],
        waiters text[]
) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
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
    lo       integer := 1;
    claim_to integer;
    hi       integer;
    spots    integer[];
    held_rows    croft.lease[];
    more_spots   integer[];
    more_rows   croft.lease[];
    seen     integer[];
    looked   croft.lease[];
    a        integer;
    b        integer;
    skipped  text[] := '{}';
    insist   boolean := false;
    answers  text[];
    news     croft.lease[];
    changes  croft.lease[];
    overs    croft.past[];
    made     text[];
    join_keys text[];
    join_ids  text[];
    moved    text[] := '{}';
    taken    text[] := '{}';
    by_force text[] := '{}';
    now_us   bigint;
    verb     text;
    verdict  text;
    past     json;
    lease    croft.lease;
    shown    boolean;
    k        text;
    g        text;
    r        croft.lease;
    o        croft.past;
    present  boolean;
    known    boolean;
    t_state text; t_cause text; t_ended text;
    alive    boolean;
    by_hand  boolean;
    next_state text;
    next_cause text;
    next_token bigint;
    due      bigint;
BEGIN
WHILE wave <= cardinality(ends) LOOP
    claim_to := claims[wave]; hi := ends[wave];

    spots := '{}'; held_rows := '{}'; seen := '{}';
    now_us := coalesce(set_at, croft.now_us());
    IF claim_to >= lo THEN
        SELECT coalesce(array_agg(n), '{}'), array_agg(one.l) INTO spots, held_rows
        FROM generate_series(lo, claim_to) AS n CROSS JOIN LATERAL (
            SELECT l FROM croft.lease l WHERE l.key = keys[n] AND (insist OR waiters[n] <> ''
                OR NOT (l.state = 'held' AND l.deadline > now_us)) FOR UPDATE SKIP LOCKED) AS one(l);
    END IF;
    IF claim_to < hi THEN
        SELECT coalesce(array_agg(n), '{}'), array_agg(one.l) INTO more_spots, more_rows
        FROM generate_series(greatest(lo, claim_to + 1), hi) AS n CROSS JOIN LATERAL (
            SELECT l FROM croft.lease l WHERE l.key = keys[n] FOR UPDATE SKIP LOCKED) AS one(l);
        spots := spots || more_spots; held_rows := held_rows || more_rows;
    END IF;
    IF cardinality(spots) <= hi - lo THEN
        SELECT coalesce(array_agg(n), '{}'), array_agg(one.l) INTO seen, looked
        FROM generate_series(lo, hi) AS n CROSS JOIN LATERAL (SELECT l FROM croft.lease l WHERE l.key = keys[n])
            AS one(l);
    END IF;

    now_us := coalesce(set_at, croft.now_us());
    a := 1; b := 1;
    answers := '{}'; news := '{}'; changes := '{}'; overs := '{}'; join_keys := '{}'; join_ids := '{}';

    FOR n IN lo .. hi LOOP
        k := keys[n]; g := grants[n]; verb := verbs[n];
        verdict := 'refused'; shown := false; past := NULL;
        <<decide>>
        LOOP
            present := spots[a] = n;
            IF present THEN
                r := held_rows[a]; a := a + 1;
            ELSE
                present := false;
                WHILE seen[b] < n LOOP
                    b := b + 1;
                END LOOP;
                IF seen[b] = n THEN
                    r := looked[b];
                    IF verb = 'acquire' AND r.state = 'held' AND now_us < r.deadline AND now_us <= max_token
                        AND waiters[n] = ''
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
                known := r.grant_id = g;
                alive := r.state = 'held' AND now_us < r.deadline;
                IF wave = 1 AND alive AND r.awaited THEN
                    taken := array_append(taken, k);
                END IF;
            END IF;
            IF now_us NOT BETWEEN min_time AND max_token THEN
                EXIT decide;
            END IF;

            IF verb = 'renew' OR verb = 'report' THEN
                IF known AND r.state = 'held' AND (alive OR resumes[n]) THEN
                    IF verb = 'report' THEN
                        r.progress := progresses[n]; r.progress_at := now_us;
                    ELSE
                        IF ttls[n] <> 0 THEN
                            r.ttl := ttls[n];
                        END IF;
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

            IF known THEN
                t_state := CASE WHEN r.ended <> '' THEN 'held' ELSE r.state END; t_cause := r.cause;
                t_ended := r.ended;
            ELSIF present AND croft.short(g) = ANY (r.spent) THEN
                SELECT p.state, p.cause, p.ended INTO t_state, t_cause, t_ended FROM croft.past p WHERE p.key = k
                    AND p.grant_id = g;
                known := FOUND;
            END IF;

            IF verb = 'release' THEN
                IF alive AND r.grant_id = g THEN
                    r.state := 'free'; r.ended := 'released'; r.deadline := now_us;
                    IF faileds[n] THEN
                        r.ended := 'failed'; r.hold_until := NULL;
                    ELSE
                        r.succeeded := r.acquired;
                    END IF;
                    o.key := k; o.slot := r.transfers % 32; o.token := r.token; o.grant_id := g;
                    o.owner := r.owner; o.instance := r.instance;
                    o.state := 'held'; o.cause := r.cause; o.actor := r.actor; o.note := r.note;
                    o.acquired := r.acquired; o.finished := now_us; o.ended := r.ended;
                    verdict := 'done'; lease := r; changes := array_append(changes, r);
                    overs := array_append(overs, o);
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

            by_hand := verb <> 'acquire';
            IF by_hand THEN
                next_state := CASE verb WHEN 'reserve' THEN 'reserved' WHEN 'revoke' THEN 'free' ELSE 'held' END;
                next_cause := CASE verb WHEN 'revoke' THEN 'cancelled' ELSE 'operator' END;
                IF known AND t_state = next_state AND t_cause = next_cause AND r.grant_id = g AND r.ended = ''
                    AND (next_state <> 'held' OR alive) THEN
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
                    OR (everys[n] > 0 AND now_us < r.succeeded + (everys[n] + 1) / 2))
                THEN
                    IF waiters[n] <> '' THEN
                        join_keys := array_append(join_keys, k); join_ids := array_append(join_ids, waiters[n]);
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
            IF known THEN
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
                IF r.ended = '' THEN
                    o.key := k; o.slot := r.transfers % 32; o.token := r.token; o.grant_id := r.grant_id;
                    o.owner := r.owner; o.instance := r.instance;
                    o.state := r.state; o.cause := r.cause; o.actor := r.actor; o.note := r.note;
                    o.acquired := r.acquired; o.finished := now_us;
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
                r.key := k; r.terms := 0; r.transfers := 0; r.every := 0; r.succeeded := NULL;
                r.actor := ''; r.note := ''; r.guards := ''; r.spent := '{}';
                r.awaited := EXISTS (SELECT FROM croft.waiter w WHERE w.key = k);
            END IF;

            r.token := next_token; r.grant_id := g; r.state := next_state; r.cause := next_cause; r.ended := '';
            r.owner := owners[n]; r.instance := instances[n]; r.ttl := ttls[n];
            r.hold_until := NULL; r.progress := ''; r.progress_at := NULL;
            IF by_hand THEN
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
                IF everys[n] > 0 THEN
                    r.every := everys[n];
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
                DELETE FROM croft.waiter w WHERE w.key = k AND w.id = waiters[n];
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
        answers := array_append(answers, concat_ws(E'\x1f', n, verdict, now_us, coalesce(past::text, ''), CASE
            WHEN shown THEN croft.pack(lease) END));
    END LOOP;

    IF cardinality(news) > 0 THEN
        WITH entered AS (INSERT INTO croft.lease SELECT * FROM unnest(news) ON CONFLICT (key) DO NOTHING
            RETURNING key)
        SELECT coalesce(array_agg(key), '{}') INTO made FROM entered;
        IF cardinality(made) < cardinality(news) THEN
            FOR n IN lo .. hi LOOP
                IF NOT keys[n] = ANY (made) AND EXISTS (SELECT FROM unnest(news) AS c WHERE c.key = keys[n]) THEN
                    answers[n - lo + 1] := concat_ws(E'\x1f', n, 'skipped'); skipped := array_append(skipped,
                        keys[n]);
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
        SET token = c.token, grant_id = c.grant_id, owner = c.owner, instance = c.instance, state = c.state,
            cause = c.cause, ended = c.ended,
            actor = c.actor, note = c.note, acquired = c.acquired, renewed = c.renewed, deadline = c.deadline,
                ttl = c.ttl, every = c.every,
            succeeded = c.succeeded, hold_until = c.hold_until, guards = c.guards, progress = c.progress,
                progress_at = c.progress_at,
            terms = c.terms, transfers = c.transfers, awaited = c.awaited, spent = c.spent
        FROM unnest(changes) AS c
        WHERE l.key = c.key;
    END IF;
    IF cardinality(overs) > 0 THEN
        INSERT INTO croft.past SELECT * FROM unnest(overs)
        ON CONFLICT (key, slot) DO UPDATE
        SET token = excluded.token, grant_id = excluded.grant_id, owner = excluded.owner,
            instance = excluded.instance, state = excluded.state,
            cause = excluded.cause, actor = excluded.actor, note = excluded.note, acquired = excluded.acquired,
                finished = excluded.finished,
            ended = excluded.ended;
    END IF;
    IF cardinality(join_keys) > 0 THEN
        INSERT INTO croft.waiter AS w (key, id, wait_until)
        SELECT j.key, j.id, clock_timestamp() + for_ms * interval '1 millisecond' FROM unnest(join_keys, join_ids)
            AS j(key, id)
        ON CONFLICT (key, id) DO UPDATE SET wait_until = excluded.wait_until, named = false;
    END IF;

    RETURN QUERY SELECT unnest(answers);
    lo := hi + 1; wave := wave + 1;
END LOOP;

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
END
$$;

INSERT INTO croft.migration (version, name) VALUES (4, '004_apply');



CREATE FUNCTION croft.acquire_v1(set_at bigint, wait_ms integer, for_ms integer, k text, g text, claimant text,
    run text, ttl_us bigint, guard_list text, waiter_id text) RETURNS text
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $$
DECLARE
    max_token CONSTANT bigint := 9007199254740991;
    moment text := set_config('lock_timeout', '20ms', true);
    now_us bigint := coalesce(set_at, croft.now_us());
    answer text;
    told   boolean;
BEGIN
    UPDATE croft.lease l
    SET token = greatest(l.token + 1, now_us), grant_id = g, owner = claimant, instance = run, state = 'held',
        cause = 'released', ended = '', actor = '', note = '',
        acquired = now_us, renewed = now_us, deadline = now_us + ttl_us, ttl = ttl_us, hold_until = NULL,
            guards = guard_list, progress = '', progress_at = NULL,
        terms = l.terms + 1, transfers = l.transfers + 1, spent = croft.short(l.grant_id) || l.spent[:30]
    WHERE l.key = k AND l.state = 'free' AND l.ended <> '' AND (l.hold_until IS NULL OR l.hold_until <= now_us)
      AND l.grant_id <> g AND NOT croft.short(g) = ANY (l.spent) AND l.token < max_token
          AND now_us BETWEEN l.deadline AND max_token AND now_us > 0
    RETURNING concat_ws(E'\x1f', 1, 'granted', now_us, l.token, l.terms, l.every, coalesce(l.succeeded::text, '')),
        l.awaited INTO answer, told;
    IF FOUND THEN
        IF waiter_id <> '' THEN
            DELETE FROM croft.waiter w WHERE w.key = k AND w.id = waiter_id;
        END IF;
        IF told THEN
            PERFORM pg_notify('croft.wake', E'\x03' || k);
        END IF;
        RETURN answer;
    END IF;

    now_us := coalesce(set_at, croft.now_us());
    SELECT concat_ws(E'\x1f', 1, 'refused', now_us, '', croft.pack(l)), l.state = 'held' AND l.deadline > now_us
        AND l.grant_id <> g AND NOT croft.short(g) = ANY (l.spent)
    INTO answer, told FROM croft.lease l WHERE l.key = k;
    IF told AND waiter_id = '' AND now_us BETWEEN 1 AND max_token THEN
        RETURN answer;
    END IF;
    IF NOT FOUND AND now_us BETWEEN 1 AND max_token THEN
        INSERT INTO croft.lease AS l (token, acquired, renewed, deadline, ttl, terms, transfers, awaited, key,
            grant_id, owner, instance, state, cause, guards)
        VALUES (now_us, now_us, now_us, now_us + ttl_us, ttl_us, 1, 1, EXISTS (SELECT FROM croft.waiter w
            WHERE w.key = k), k, g, claimant, run, 'held', 'first', guard_list)
        ON CONFLICT (key) DO NOTHING
        RETURNING concat_ws(E'\x1f', 1, 'done', now_us, '', croft.pack(l)), l.awaited INTO answer, told;
        IF FOUND THEN
            IF told THEN
                PERFORM pg_notify('croft.wake', k);
            END IF;
            RETURN answer;
        END IF;
    END IF;
    SELECT a INTO answer FROM croft.apply_v1(set_at, wait_ms, for_ms, true, ARRAY[1], ARRAY[1], ARRAY['acquire'],
        ARRAY[k], ARRAY[g], ARRAY[claimant], ARRAY[run], ARRAY[ttl_us],
        ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[guard_list], ARRAY[false], ARRAY[''],
            ARRAY[false], ARRAY[''], ARRAY[''], ARRAY[waiter_id]) AS a;
    RETURN answer;
END
$$;

CREATE FUNCTION croft.release_v1(set_at bigint, wait_ms integer, k text, g text, failure boolean) RETURNS text
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
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
            hold_until = CASE WHEN NOT failure THEN l.hold_until END, succeeded = CASE WHEN failure
                THEN l.succeeded ELSE l.acquired END
        WHERE l.key = k AND l.grant_id = g AND l.state = 'held' AND l.deadline > now_us
          AND now_us BETWEEN greatest(l.renewed, l.progress_at) AND max_token AND now_us > 0
        RETURNING concat_ws(E'\x1f', 1, 'done', now_us, '', croft.pack(l)) AS packed, l.*
    ), over AS (
        INSERT INTO croft.past (key, slot, token, grant_id, owner, instance, state, cause, actor, note, acquired,
            finished, ended)
        SELECT k, transfers % 32, token, g, owner, instance, 'held', cause, actor, note, acquired, now_us, ended
            FROM freed
        ON CONFLICT (key, slot) DO UPDATE
        SET token = excluded.token, grant_id = excluded.grant_id, owner = excluded.owner,
            instance = excluded.instance, state = excluded.state,
            cause = excluded.cause, actor = excluded.actor, note = excluded.note, acquired = excluded.acquired,
                finished = excluded.finished,
            ended = excluded.ended
    )
    SELECT packed, awaited INTO answer, told FROM freed;
    IF FOUND THEN
        IF told THEN
            PERFORM croft.wake_v1(k);
        END IF;
        RETURN answer;
    END IF;
    SELECT a INTO answer FROM croft.apply_v1(set_at, wait_ms, 0, true, ARRAY[0], ARRAY[1], ARRAY['release'],
        ARRAY[k], ARRAY[g], ARRAY[''], ARRAY[''], ARRAY[0::bigint],
        ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[''], ARRAY[false], ARRAY[''], ARRAY[failure],
            ARRAY[''], ARRAY[''], ARRAY['']) AS a;
    RETURN answer;
END
$$;

INSERT INTO croft.migration (version, name) VALUES (5, '005_lone');


CREATE FUNCTION croft.sweep_v1(set_at bigint, wait_ms integer, retention bigint, place text, n integer,
    OUT dropped integer, OUT swept_to text, OUT at_end boolean)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    now_us bigint := coalesce(set_at, croft.now_us());
    start  text := place;
    seen   integer;
BEGIN
    PERFORM set_config('lock_timeout', wait_ms::text, true);
    dropped := 0;
    IF place IS NULL THEN
        SELECT h.swept_to INTO start FROM croft.housekeeping h FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            at_end := true;
            RETURN;
        END IF;
    END IF;
    SELECT max(page.key), count(*) INTO swept_to, seen FROM (SELECT l.key FROM croft.lease l WHERE l.key > start
        ORDER BY l.key LIMIT n) AS page;
    at_end := seen < n;

    WITH old AS (
        SELECT l.key FROM croft.lease l
        WHERE l.key > start AND l.key <= swept_to
          AND now_us - retention >= greatest(l.deadline, l.acquired, l.renewed, l.hold_until, l.token,
              l.succeeded + l.every)
        ORDER BY l.key FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM croft.past p USING old WHERE p.key = old.key
    ), forgotten AS (
        DELETE FROM croft.lease l USING old WHERE l.key = old.key RETURNING l.key
    )
    SELECT count(*) INTO dropped FROM forgotten;

    IF at_end THEN
        DELETE FROM croft.waiter w WHERE w.ctid = ANY (ARRAY(
            SELECT v.ctid FROM croft.waiter v WHERE v.wait_until < clock_timestamp() FOR UPDATE SKIP LOCKED));
    END IF;
    IF place IS NULL THEN
        UPDATE croft.housekeeping h SET swept_to = CASE WHEN at_end THEN '' ELSE sweep_v1.swept_to END;
    END IF;
END
$$;

INSERT INTO croft.migration (version, name) VALUES (6, '006_sweep');


CREATE TABLE croft.fence (
    name        text COLLATE "C" PRIMARY KEY,
    fence_key   text,
    fence_token bigint,
    fence_grant text,
    fence_seq   numeric(20)
) WITH (fillfactor = 70);

CREATE TABLE croft.rekeying (
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    target     text   NOT NULL,
    from_key   text   NOT NULL,
    from_token bigint NOT NULL,
    to_key     text   NOT NULL,
    actor      text   NOT NULL,
    note       text   NOT NULL
);
CREATE INDEX rekeying_target ON croft.rekeying (target, at);

INSERT INTO croft.migration (version, name) VALUES (7, '007_fence');



CREATE TABLE croft.item (
    id            uuid PRIMARY KEY,
    queue         text COLLATE "C" NOT NULL,
    uniq          text COLLATE "C",
    state         text NOT NULL,
    priority      smallint NOT NULL,
    attempts      integer NOT NULL DEFAULT 0,
    tries         integer NOT NULL,
    generation    integer NOT NULL DEFAULT 0,
    ready         bigint NOT NULL,
    created       bigint NOT NULL,
    finished      bigint,
    token         bigint,
    acquired      bigint,
    renewed       bigint,
    deadline      bigint,
    ttl           bigint,
    terms         bigint NOT NULL DEFAULT 0,
    grant_id      uuid,
    owner         text NOT NULL DEFAULT '',
    instance      text NOT NULL DEFAULT '',
    held          text NOT NULL DEFAULT '',
    cause         text NOT NULL DEFAULT '',
    ended         text NOT NULL DEFAULT '',
    actor         text NOT NULL DEFAULT '',
    note          text NOT NULL DEFAULT '',
    progress      text NOT NULL DEFAULT '',
    error         text NOT NULL DEFAULT '',
    progress_at   bigint,
    checkpoint_at bigint,
    payload       bytea,
    checkpoint    bytea,
    result        bytea,
    past          json
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE INDEX item_waiting ON croft.item (queue, priority DESC, ready, id) WHERE state = 'waiting';
CREATE INDEX item_running ON croft.item (queue, id) WHERE state = 'running';
CREATE INDEX item_given_up ON croft.item (queue, id) WHERE state IN ('dead', 'cancelled');
CREATE INDEX item_finished ON croft.item (finished) WHERE finished IS NOT NULL;
CREATE UNIQUE INDEX item_uniq ON croft.item (queue, uniq) WHERE uniq IS NOT NULL;

CREATE TABLE croft.effect (
    item         uuid NOT NULL,
    generation   integer NOT NULL,
    name         text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    dest         text NOT NULL,
    at_most_once boolean NOT NULL,
    token        bigint NOT NULL,
    grant_id     uuid NOT NULL,
    owner        text NOT NULL,
    state        text NOT NULL,
    attempts     integer NOT NULL DEFAULT 0,
    ready        bigint NOT NULL,
    sender       bigint NOT NULL DEFAULT 0,
    created      bigint NOT NULL,
    settled      bigint,
    error        text NOT NULL DEFAULT '',
    actor        text NOT NULL DEFAULT '',
    note         text NOT NULL DEFAULT '',
    body         bytea,
    PRIMARY KEY (item, generation, name)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX effect_open ON croft.effect (state, ready, item, generation, name) WHERE state IN ('pending', 'unknown');

CREATE TABLE croft.dispatcher (
    key      text COLLATE "C" PRIMARY KEY,
    token    bigint NOT NULL DEFAULT 0,
    grant_id text NOT NULL DEFAULT ''
);

CREATE TABLE croft.refusal (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at              bigint NOT NULL,
    item            text NOT NULL,
    queue           text COLLATE "C" NOT NULL,
    verb            text NOT NULL,
    why             text NOT NULL,
    presented       bigint NOT NULL,
    presented_grant text NOT NULL,
    presented_owner text NOT NULL,
    newest          bigint NOT NULL,
    newest_grant    text NOT NULL,
    newest_owner    text NOT NULL
);
CREATE INDEX refusal_item ON croft.refusal (item) WHERE item <> '';
CREATE INDEX refusal_at ON croft.refusal (at);

CREATE TABLE croft.idle (
    queue      text COLLATE "C" PRIMARY KEY,
    wait_until timestamptz NOT NULL
);

CREATE VIEW croft.items AS
SELECT replace(id::text, '-', '') AS id, queue, state, priority, attempts, tries, to_timestamp(ready / 1e6)
    AS ready, to_timestamp(created / 1e6) AS created,
       to_timestamp(finished / 1e6) AS finished, token, owner, instance, cause, to_timestamp(renewed / 1e6)
           AS heartbeat, to_timestamp(deadline / 1e6) AS deadline,
       progress, to_timestamp(progress_at / 1e6) AS progress_at, actor, note, error
FROM croft.item;

INSERT INTO croft.migration (version, name) VALUES (8, '008_work');


CREATE FUNCTION croft.wake_v1(queues text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    q text;
BEGIN
    FOR q IN SELECT i.queue FROM croft.idle i WHERE i.queue = ANY (queues)
        AND i.wait_until > clock_timestamp() FOR UPDATE SKIP LOCKED LOOP
        UPDATE croft.idle SET wait_until = '-infinity' WHERE queue = q;
        PERFORM pg_notify('croft.work', q);
    END LOOP;
END
$$;

CREATE FUNCTION croft.past_v1(i croft.item, now_us bigint) RETURNS json
LANGUAGE sql STABLE
AS $$
    SELECT json_agg(t.term ORDER BY t.n) FROM (
        SELECT t.term, t.n FROM json_array_elements(CASE WHEN json_typeof(i.past) = 'array' THEN i.past
            END) WITH ORDINALITY AS t(term, n)
        UNION ALL
        SELECT json_build_object(
            'token', i.token, 'grant', i.grant_id, 'owner', i.owner, 'instance', i.instance,
            'state', CASE WHEN i.ended <> '' THEN 'held' ELSE i.held END,
            'cause', i.cause, 'actor', i.actor, 'note', i.note, 'acquired', i.acquired,
            'finished', CASE WHEN i.ended <> '' OR i.held = 'held' AND i.deadline <= now_us THEN i.deadline
                ELSE now_us END,
            'ended', CASE WHEN i.ended <> '' THEN i.ended WHEN i.held <> 'held' THEN 'superseded'
                WHEN i.deadline <= now_us THEN 'expired' ELSE 'taken_over' END), 1000
        ORDER BY 2 DESC LIMIT 31) AS t
$$;

CREATE FUNCTION croft.claim_v1(set_at bigint, queue_list json, n integer, g uuid, who text, run text,
    ttl_us bigint, again boolean, arm boolean) RETURNS SETOF json
LANGUAGE plpgsql VOLATILE
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
    now_us bigint := coalesce(set_at, croft.now_us());
    level  integer := 1000000;
    found_ids  uuid[] := '{}';
    more   uuid[];
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION 'cannot claim items in a read-only transaction' USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    IF again THEN
        RETURN QUERY SELECT row_to_json(i) FROM croft.item i WHERE i.state = 'running' AND i.queue = ANY (queues)
            AND i.grant_id = g ORDER BY i.priority DESC, i.ready, i.id;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    LOOP
        SELECT max(p.priority) INTO level
        FROM unnest(queues) AS q(queue) CROSS JOIN LATERAL (
            SELECT i.priority FROM croft.item i WHERE i.state = 'waiting' AND i.queue = q.queue
                AND i.priority < level ORDER BY i.priority DESC LIMIT 1) AS p;
        EXIT WHEN level IS NULL;
        SELECT coalesce(array_agg(c.id), '{}') INTO more FROM (
            SELECT c.id FROM unnest(queues) AS q(queue) CROSS JOIN LATERAL (
                SELECT i.id, i.ready FROM croft.item i
                WHERE i.state = 'waiting' AND i.queue = q.queue AND i.priority = level AND i.ready <= now_us
                  AND NOT (i.held = 'reserved' AND i.deadline > now_us AND i.owner <> who)
                  AND (i.token IS NULL OR i.token < max_token AND i.grant_id <> g AND (i.past IS NULL
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
                cause = CASE WHEN i.token IS NULL THEN 'first' WHEN i.held = 'free' AND i.cause = 'cancelled'
                    AND i.ended = '' THEN 'cancelled'
                             WHEN i.held = 'free' THEN 'released' WHEN i.held = 'reserved' AND now_us < i.deadline
                                 THEN 'handoff' ELSE 'expired' END,
                actor = CASE WHEN i.held = 'reserved' AND now_us < i.deadline THEN i.actor ELSE '' END,
                note = CASE WHEN i.held = 'reserved' AND now_us < i.deadline THEN i.note ELSE '' END,
                grant_id = g, owner = who, instance = run, held = 'held', ended = '',
                acquired = now_us, renewed = now_us, deadline = now_us + ttl_us, ttl = ttl_us, progress = '',
                    progress_at = NULL, terms = i.terms + 1
            WHERE i.id = ANY (found_ids)
            RETURNING i.*)
        SELECT CASE WHEN t.cause = 'first' THEN (
                SELECT row_to_json(f) FROM (SELECT now_us AS first, t.id, t.queue, t.uniq, t.priority, t.ready,
                    t.created, t.tries, t.token, t.payload) AS f) ELSE row_to_json(t) END
        FROM taken t ORDER BY t.priority DESC, t.ready, t.id;
    END IF;

    IF arm AND cardinality(found_ids) < n AND EXISTS (
        SELECT FROM unnest(queues) AS q WHERE NOT EXISTS (SELECT FROM croft.idle i WHERE i.queue = q
            AND i.wait_until >= clock_timestamp() + interval '2 minutes'))
    THEN
        BEGIN
            PERFORM set_config('lock_timeout', '100ms', true);
            INSERT INTO croft.idle AS i (queue, wait_until) SELECT q, clock_timestamp() + interval '5 minutes'
                FROM unnest(queues) AS q ORDER BY q
            ON CONFLICT (queue) DO UPDATE SET wait_until = excluded.wait_until
                WHERE i.wait_until < clock_timestamp() + interval '2 minutes';
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
        RETURN NEXT '{"armed": true}'::json;
    END IF;
END
$$;

INSERT INTO croft.migration (version, name) VALUES (9, '009_work_claim');


CREATE FUNCTION croft.work_v1(set_at bigint, wait_ms integer, adds json, beats json, dones json) RETURNS SETOF json
LANGUAGE plpgsql VOLATILE
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
            INSERT INTO croft.item AS i (id, queue, uniq, state, priority, tries, ready, created, payload)
            SELECT a.id, a.queue, a.uniq, 'waiting', a.priority, a.tries, CASE WHEN a.not_before IS NULL
                THEN now_us + a.delay ELSE greatest(a.not_before, now_us) END, now_us, a.payload
            FROM json_to_recordset(adds) AS a(n integer, id uuid, queue text, uniq text, priority smallint,
                tries integer, delay bigint, not_before bigint, payload bytea)
            WHERE a.not_before IS NULL OR a.not_before <= now_us + 366 * 86400000000
            ORDER BY a.id
            ON CONFLICT DO NOTHING
            RETURNING i.id, i.queue, i.ready)
        SELECT array_agg(json_build_object('id', new.id, 'ready', new.ready, 'now', now_us)),
            array_agg(DISTINCT new.queue) FILTER (WHERE new.ready <= now_us) INTO answers, due FROM new;
        IF answers IS NOT NULL THEN
            RETURN QUERY SELECT unnest(answers);
        END IF;
    END IF;

    IF beats IS NOT NULL THEN
        RETURN QUERY WITH ours AS MATERIALIZED (
            SELECT i.id, b.ttl FROM json_to_recordset(beats) AS b(id uuid, token bigint, grant_id uuid,
                ttl bigint) CROSS JOIN LATERAL (
                SELECT i.id FROM croft.item i WHERE i.id = b.id AND i.state = 'running' AND i.token = b.token
                    AND i.grant_id = b.grant_id FOR UPDATE SKIP LOCKED) AS i
        ), clock AS MATERIALIZED (
            SELECT coalesce(set_at, croft.now_us()) AS us FROM (SELECT count(*) FROM ours) AS locked
        ), beaten AS (
            UPDATE croft.item i SET
                ttl = coalesce(ours.ttl, i.ttl), renewed = clock.us,
                deadline = CASE WHEN clock.us < i.renewed THEN clock.us + coalesce(ours.ttl, i.ttl)
                    ELSE greatest(i.deadline, clock.us + coalesce(ours.ttl, i.ttl)) END
            FROM ours, clock WHERE i.id = ours.id
            RETURNING i.*)
        SELECT json_build_object('now', b.renewed, 'id', b.id, 'queue', b.queue, 'state', b.state, 'attempts',
            b.attempts, 'tries', b.tries, 'generation', b.generation,
            'owner', b.owner, 'instance', b.instance, 'held', b.held, 'cause', b.cause, 'renewed', b.renewed,
                'deadline', b.deadline, 'ttl', b.ttl) FROM beaten b;
    END IF;

    IF dones IS NOT NULL THEN
        WITH asked AS MATERIALIZED (
            SELECT d.* FROM json_to_recordset(dones) AS d(id uuid, token bigint, grant_id uuid, result bytea,
                effects json)
        ), ours AS MATERIALIZED (
            SELECT d.id, d.result, d.effects FROM asked d CROSS JOIN LATERAL (
                SELECT FROM croft.item i WHERE i.id = d.id AND i.state = 'running' AND i.token = d.token
                    AND i.grant_id = d.grant_id FOR UPDATE SKIP LOCKED) AS i
        ), clock AS MATERIALIZED (
            SELECT coalesce(set_at, croft.now_us()) AS us FROM (SELECT count(*) FROM ours) AS locked
        ), done AS (
            UPDATE croft.item i SET
                state = 'done', finished = clock.us, renewed = clock.us, deadline = clock.us, held = 'free',
                    ended = 'released',
                result = d.result, error = '', checkpoint = NULL, checkpoint_at = NULL
            FROM ours d, clock WHERE i.id = d.id
            RETURNING i.id, i.queue, i.attempts, i.tries, i.generation, i.token, i.grant_id, i.owner, i.instance,
                i.cause, i.finished, d.effects
        ), sent AS (
            INSERT INTO croft.effect (item, generation, name, queue, dest, at_most_once, token, grant_id, owner,
                state, ready, created, body)
            SELECT done.id, done.generation, e.name, done.queue, e.dest, e.at_most_once, done.token, done.grant_id,
                done.owner, 'pending', done.finished, done.finished, e.body
            FROM done CROSS JOIN LATERAL json_to_recordset(done.effects) AS e(name text, dest text,
                at_most_once boolean, body bytea)
            ON CONFLICT DO NOTHING
            RETURNING 1)
        SELECT array_agg(json_build_object('now', done.finished, 'id', done.id, 'queue', done.queue, 'attempts',
            done.attempts, 'tries', done.tries, 'generation', done.generation,
            'owner', done.owner, 'instance', done.instance, 'cause', done.cause)),
                bool_or(done.effects IS NOT NULL) INTO answers, effects FROM done;
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

INSERT INTO croft.migration (version, name) VALUES (10, '010_work_apply');

COMMIT;
