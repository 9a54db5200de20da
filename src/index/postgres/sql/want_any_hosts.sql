-- Something is to be asked of these hosts, whether they have documents or not: claims those that are nobody's.
WITH us AS MATERIALIZED (
    SELECT epoch FROM instances WHERE epoch = $1 FOR KEY SHARE
)
INSERT INTO hosts (host, holder, in_flight)
SELECT wanted.host, us.epoch, true FROM us, unnest($2::text[]) AS wanted (host) ORDER BY wanted.host
ON CONFLICT (host) DO UPDATE SET holder = excluded.holder, in_flight = true
WHERE hosts.holder IS NULL OR hosts.holder = excluded.holder
RETURNING host,
    (extract(epoch FROM opens_at - clock_timestamp()) * 1000000)::bigint AS opens_in,
    (extract(epoch FROM held_until - clock_timestamp()) * 1000000)::bigint AS held_for,
    strikes, gap,
    (extract(epoch FROM clock_timestamp() - dark_until) * 1000000)::bigint AS dark_since,
    paused,
    (extract(epoch FROM blocked_until - clock_timestamp()) * 1000000)::bigint AS blocked_for,
    delay, ordered
