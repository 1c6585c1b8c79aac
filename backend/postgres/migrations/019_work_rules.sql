-- The targets of the guards that an item names, as JSON. Most items have none.
ALTER TABLE croft.item ADD COLUMN IF NOT EXISTS guards json;

-- For taking effects by destination, and counting those that were given up.
CREATE INDEX IF NOT EXISTS effect_due ON croft.effect (dest, ready, item, generation, name) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS effect_line ON croft.effect (dest, created, item, generation, name)
    WHERE state IN ('pending', 'unknown');
CREATE INDEX IF NOT EXISTS effect_failed ON croft.effect (settled) WHERE state = 'failed';

-- An effect that is unknown holds up the others of an ordered destination.
CREATE INDEX IF NOT EXISTS effect_unknown ON croft.effect (dest) WHERE state = 'unknown';

-- How queues hand out their items, and partitions of queues. A queue without
-- rows hands out all that is ready.
CREATE TABLE IF NOT EXISTS croft.rule (
    queue     text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL,           -- '' is the whole queue, '*' each partition without a row
    paused    boolean NOT NULL,                    -- claims find nothing
    running   integer NOT NULL,                    -- at most so many run; 0 is no limit
    starts    integer NOT NULL,                    -- at most so many start in a span; 0 is no limit
    span      bigint NOT NULL,
    actor     text NOT NULL,                       -- who changed the rule last
    note      text NOT NULL,                       -- and why
    changed   bigint NOT NULL,                     -- and when
    PRIMARY KEY (queue, partition)
);

-- The row of no queue changes with every rule. See claim_v2.
INSERT INTO croft.rule (queue, partition, paused, running, starts, span, actor, note, changed)
VALUES ('', '', false, 0, 0, 0, '', '', 0)
ON CONFLICT DO NOTHING;

-- What claims have started where a rule limits the starts. The slot is the time
-- at which n starts count.
CREATE TABLE IF NOT EXISTS croft.start (
    queue     text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL,
    slot      bigint NOT NULL,
    n         integer NOT NULL,
    PRIMARY KEY (queue, partition, slot)
);

-- The partitions in which items wait, by priority. Claims serve them in the
-- order of since: the time of the last start there or, if it is later, the time
-- from which something is ready. Claims find out if it is too early, and
-- correct it. It is never too late.
CREATE TABLE IF NOT EXISTS croft.partition (
    queue    text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    name     text COLLATE "C" NOT NULL,
    since    bigint NOT NULL,
    PRIMARY KEY (queue, priority, name)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
-- With an expression, so that no plan takes this index to find a partition by
-- its name, and reads all of them.
CREATE INDEX IF NOT EXISTS partition_since ON croft.partition (queue, (- priority), since, name);

-- The part of its queue that an item belongs to, such as a tenant.
ALTER TABLE croft.item ADD COLUMN IF NOT EXISTS partition text COLLATE "C" DEFAULT '';

CREATE INDEX IF NOT EXISTS item_next ON croft.item (queue, partition, priority DESC, ready, id)
    WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS item_owned ON croft.item (queue, partition, id) WHERE state = 'running';
DROP INDEX IF EXISTS croft.item_waiting;
DROP INDEX IF EXISTS croft.item_running;

-- An older client may write an item without the column.
CREATE OR REPLACE FUNCTION croft.item_whole_v1() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$ BEGIN NEW.partition := ''; RETURN NEW; END $$;
DROP TRIGGER IF EXISTS item_whole ON croft.item;
CREATE TRIGGER item_whole BEFORE INSERT ON croft.item
    FOR EACH ROW WHEN (NEW.partition IS NULL) EXECUTE FUNCTION croft.item_whole_v1();

-- Whatever makes an item wait makes its partition wait. An item that was given
-- back waits since then. Items without a partition cost nothing here.
--
-- A partition that waits already is locked so that nobody forgets it before
-- this transaction ends. Other transactions may add to it meanwhile, and claims
-- may serve it.
CREATE OR REPLACE FUNCTION croft.item_waits_v1() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    at bigint := CASE
        WHEN TG_OP = 'INSERT' THEN NEW.ready
        ELSE greatest(NEW.ready, coalesce(NEW.renewed, NEW.ready)) END;
BEGIN
    PERFORM FROM croft.partition p
    WHERE p.queue = NEW.queue AND p.priority = NEW.priority AND p.name = NEW.partition AND p.since <= at
    FOR KEY SHARE;
    IF NOT FOUND THEN
        INSERT INTO croft.partition AS p (queue, priority, name, since)
        VALUES (NEW.queue, NEW.priority, NEW.partition, at)
        ON CONFLICT (queue, priority, name) DO UPDATE
        SET since = least(p.since, excluded.since);
    END IF;
    RETURN NULL;
END
$$;
DROP TRIGGER IF EXISTS item_added ON croft.item;
CREATE TRIGGER item_added AFTER INSERT ON croft.item
    FOR EACH ROW WHEN (NEW.partition <> '' AND NEW.state = 'waiting') EXECUTE FUNCTION croft.item_waits_v1();
DROP TRIGGER IF EXISTS item_given_back ON croft.item;
CREATE TRIGGER item_given_back AFTER UPDATE ON croft.item
    FOR EACH ROW WHEN (NEW.partition <> '' AND NEW.state = 'waiting') EXECUTE FUNCTION croft.item_waits_v1();

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

-- Whether a queue has rules that restrict it, or partitions.
CREATE OR REPLACE FUNCTION croft.governed_v1(q text) RETURNS boolean
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM croft.rule r WHERE r.queue = q AND (r.paused OR r.running > 0 OR r.starts > 0))
        OR EXISTS (SELECT FROM croft.partition p WHERE p.queue = q)
$$;

-- Claims up to n items of the queues by the law of package work, in their
-- common order, and returns their rows. It skips rows that another transaction
-- has locked. set_at replaces the clock, for tests.
--
-- With again, the answer is the items that run under this grant, if there are
-- any.
--
-- If one of the queues has rules or partitions, the function claims nothing,
-- and its only row says {"governed": true}. The client then claims by the law
-- of package work, in a transaction. The advisory lock lets changes of rules
-- wait for the claims under way, which do not know of them.
--
-- With arm, and fewer than n items found, the function arms the queues. If some
-- were not armed before, a last row says {"armed": true}. Then the client
-- claims once more, because work that was added before the queues were armed
-- told nobody.
CREATE OR REPLACE FUNCTION croft.claim_v2(
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
    PERFORM pg_advisory_xact_lock_shared(hashtext('croft.rule'), 0);
    -- A snapshot that is older than the newest change of a rule must not hide
    -- it. There this fails, and the transaction is to be tried again.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM FROM croft.rule r WHERE r.queue = '' FOR SHARE;
    END IF;
    IF EXISTS (SELECT FROM unnest(queues) AS q WHERE croft.governed_v1(q)) THEN
        RETURN NEXT '{"governed": true}'::json;
        RETURN;
    END IF;
    LOOP
        -- One priority after the other: items that wait for their time in one
        -- do not delay the next.
        SELECT max(p.priority) INTO level
        FROM unnest(queues) AS q(queue) CROSS JOIN LATERAL (
            SELECT i.priority FROM croft.item i
            WHERE i.state = 'waiting' AND i.queue = q.queue AND i.partition = '' AND i.priority < level
            ORDER BY i.priority DESC LIMIT 1) AS p;
        EXIT WHEN level IS NULL;
        SELECT coalesce(array_agg(c.id), '{}') INTO more FROM (
            SELECT c.id FROM unnest(queues) AS q(queue) CROSS JOIN LATERAL (
                SELECT i.id, i.ready FROM croft.item i
                WHERE i.state = 'waiting' AND i.queue = q.queue AND i.partition = ''
                  AND i.priority = level AND i.ready <= now_us
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
                           t.token, t.payload, t.guards, t.partition) AS f)
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

-- For older clients, which know no rules and no partitions: they find nothing
-- in queues that have some. If a queue gets its first one meanwhile, they find
-- nothing at all, for once.
CREATE OR REPLACE FUNCTION croft.claim_v1(
    set_at bigint, queue_list json, n integer, g uuid, who text, run text, ttl_us bigint, again boolean, arm boolean
) RETURNS SETOF json
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c
    FROM croft.claim_v2(set_at, (
        SELECT coalesce(json_agg(q), '[]') FROM json_array_elements_text(queue_list) AS q WHERE NOT croft.governed_v1(q)
    ), n, g, who, run, ttl_us, again, arm) AS c
    WHERE c::text <> '{"governed": true}'
$$;

-- The next ready items of each partition of a queue, at most n of each, behind
-- the cursors (partition, ready, id). Locks them, and skips rows that another
-- transaction has locked.
CREATE OR REPLACE FUNCTION croft.ready_v1(q text, level integer, now_us bigint, cursors json, n integer)
RETURNS SETOF json
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET jit = off
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
    RETURN QUERY
        SELECT row_to_json(r)
        FROM json_to_recordset(cursors) AS c(partition text, ready bigint, id uuid)
        CROSS JOIN LATERAL (
            SELECT * FROM croft.item i
            WHERE i.state = 'waiting' AND i.queue = q AND i.partition = c.partition AND i.priority = level
              AND i.ready <= now_us AND (i.ready, i.id) > (c.ready, c.id)
            ORDER BY i.ready, i.id LIMIT n FOR UPDATE SKIP LOCKED) AS r;
END
$$;

-- The highest priority below the given one at which an item without a partition
-- waits, or a partition. NULL if there is none.
CREATE OR REPLACE FUNCTION croft.level_v1(q text, below integer) RETURNS integer
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    RETURN greatest(
        (SELECT i.priority FROM croft.item i
         WHERE i.state = 'waiting' AND i.queue = q AND i.partition = '' AND i.priority < below
         ORDER BY i.priority DESC LIMIT 1),
        (SELECT p.priority FROM croft.partition p
         WHERE p.queue = q AND - p.priority > - below
         ORDER BY - p.priority LIMIT 1));
END
$$;

-- The next n partitions of one priority that wait at now_us, after the one that
-- waits since the time last_since and has the name last_name.
CREATE OR REPLACE FUNCTION croft.partitions_turns_v1(
    q text, level integer, now_us bigint, last_since bigint, last_name text, n integer
) RETURNS SETOF json
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
AS $$
BEGIN
    RETURN QUERY
        SELECT json_build_object('name', p.name, 'since', p.since) FROM croft.partition p
        WHERE p.queue = q AND - p.priority = - level AND p.since <= now_us
          AND (p.since, p.name) > (last_since, last_name)
        ORDER BY p.since, p.name LIMIT n;
END
$$;

-- Writes what a claim changes in items.
CREATE OR REPLACE FUNCTION croft.grant_v1(granted json) RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
    RETURN QUERY
        UPDATE croft.item i SET
            state = n.state, attempts = n.attempts, token = n.token, grant_id = n.grant_id,
            owner = n.owner, instance = n.instance, held = n.held, cause = n.cause, ended = n.ended,
            actor = n.actor, note = n.note,
            acquired = n.acquired, renewed = n.renewed, deadline = n.deadline, ttl = n.ttl,
            progress = n.progress, progress_at = n.progress_at, terms = n.terms, past = n.past
        FROM json_populate_recordset(NULL::croft.item, granted) AS n
        WHERE i.id = n.id
        RETURNING i.id;
END
$$;

-- Lets partitions wait since other times. Those that others have locked stay
-- where they are: a transaction that adds to one must not hold up claims.
CREATE OR REPLACE FUNCTION croft.partitions_wait_v1(q text, level integer, turns json) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    t record;
BEGIN
    FOR t IN SELECT n.name, n.since FROM json_to_recordset(turns) AS n(name text, since bigint) LOOP
        PERFORM FROM croft.partition p
        WHERE p.queue = q AND p.priority = level AND p.name = t.name FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE croft.partition p SET since = t.since
            WHERE p.queue = q AND p.priority = level AND p.name = t.name;
        END IF;
    END LOOP;
END
$$;

-- Lets partitions wait since their first item is ready, and forgets those in
-- which nothing waits. It locks them before it looks, and skips those to which
-- another transaction is just adding. So it sees all that others have added. A
-- transaction with a single snapshot would not, so it leaves them alone.
CREATE OR REPLACE FUNCTION croft.partitions_settle_v1(q text, level integer, names json, now_us bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    p     text;
    first bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    FOR p IN SELECT json_array_elements_text(names) LOOP
        PERFORM FROM croft.partition o
        WHERE o.queue = q AND o.priority = level AND o.name = p FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        SELECT i.ready INTO first FROM croft.item i
        WHERE i.state = 'waiting' AND i.queue = q AND i.partition = p AND i.priority = level
        ORDER BY i.ready LIMIT 1;
        IF FOUND THEN
            UPDATE croft.partition o SET since = greatest(now_us, first)
            WHERE o.queue = q AND o.priority = level AND o.name = p;
        ELSE
            DELETE FROM croft.partition o WHERE o.queue = q AND o.priority = level AND o.name = p;
        END IF;
    END LOOP;
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
