-- Something is about to be sent to these hosts of ours: they are kept until the second expiry.
UPDATE hosts SET in_flight = true
WHERE host = ANY ($2::text[]) AND holder = $1
RETURNING host,
    (extract(epoch FROM opens_at - clock_timestamp()) * 1000000)::bigint AS opens_in,
    (extract(epoch FROM held_until - clock_timestamp()) * 1000000)::bigint AS held_for,
    strikes, gap,
    (extract(epoch FROM clock_timestamp() - dark_until) * 1000000)::bigint AS dark_since,
    paused,
    (extract(epoch FROM blocked_until - clock_timestamp()) * 1000000)::bigint AS blocked_for,
    delay, ordered
