INSERT INTO croft.waiter AS w (key, wait_until)
SELECT k, clock_timestamp() + $2::integer * interval '1 millisecond' FROM (SELECT DISTINCT unnest($1::text[]) COLLATE "C" AS k ORDER BY k) AS sorted
ON CONFLICT (key) DO UPDATE SET wait_until = greatest(w.wait_until, excluded.wait_until)
