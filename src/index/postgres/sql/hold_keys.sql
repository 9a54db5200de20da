-- Holds of keys that nobody claims. The longer one counts; strikes are of one series of refusals.
INSERT INTO keys (key, shared, held_until, strikes)
SELECT given.key, true, clock_timestamp() + given.held_for * interval '1 microsecond', given.strikes
FROM unnest($1::text[], $2::bigint[], $3::smallint[]) AS given (key, held_for, strikes)
ORDER BY given.key
ON CONFLICT (key) DO UPDATE
SET shared = true,
    held_until = greatest(keys.held_until, excluded.held_until),
    strikes = greatest(
        CASE WHEN keys.held_until > clock_timestamp() THEN keys.strikes ELSE 0 END, excluded.strikes)
