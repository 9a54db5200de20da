-- Holds that last.
SELECT key, (extract(epoch FROM held_until - clock_timestamp()) * 1000000)::bigint AS held_for, strikes
FROM keys
WHERE shared AND held_until > clock_timestamp()
ORDER BY held_until
LIMIT $1
