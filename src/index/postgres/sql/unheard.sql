-- Orders for hosts of ours that we may not know yet.
SELECT host, paused,
    (extract(epoch FROM blocked_until - clock_timestamp()) * 1000000)::bigint AS blocked_for,
    delay, ordered
FROM hosts
WHERE holder = $1 AND unheard
ORDER BY ordered
LIMIT $2
