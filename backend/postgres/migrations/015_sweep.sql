-- Deletes records among the next n keys after the key place. It deletes a
-- record that has had no effect on a claim for a retention; see
-- tenure.Record.Quiet. Without that key it goes on where the last such call
-- ended, unless another client is doing that now. So many clients share the
-- housekeeping, and each pays a little. A row that another transaction has
-- locked stays for the next time. A damaged row stays. at_end says that there
-- are no more keys.
CREATE OR REPLACE FUNCTION croft.sweep_v1(
    set_at bigint, wait_ms integer, retention bigint, place text, n integer,
    OUT dropped integer, OUT swept_to text, OUT at_end boolean)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    now_us bigint := coalesce(set_at, croft.now_us()); -- read before any record, so no record seems older than it is
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
    SELECT max(page.key), count(*) INTO swept_to, seen
    FROM (SELECT l.key FROM croft.lease l WHERE l.key > start ORDER BY l.key LIMIT n) AS page;
    at_end := seen < n;

    WITH old AS (
        SELECT l.key FROM croft.lease l
        WHERE l.key > start AND l.key <= swept_to
          AND CASE WHEN croft.sound(l) THEN now_us - retention >= -- the sum overflows in a damaged row
              greatest(l.deadline, l.acquired, l.renewed, l.hold_until, l.token, l.succeeded + l.every) END
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
