-- Claims keys that are nobody's, or ours already.
WITH us AS MATERIALIZED (
    SELECT epoch FROM instances WHERE epoch = $1 FOR KEY SHARE
)
INSERT INTO keys (key, holder, in_flight)
SELECT wanted.key, us.epoch, true FROM us, unnest($2::text[]) AS wanted (key) ORDER BY wanted.key
ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, in_flight = true
WHERE keys.holder IS NULL OR keys.holder = excluded.holder
RETURNING key,
    (extract(epoch FROM opens_at - clock_timestamp()) * 1000000)::bigint AS opens_in,
    (extract(epoch FROM held_until - clock_timestamp()) * 1000000)::bigint AS held_for,
    strikes, 0::bigint AS gap,
    (extract(epoch FROM clock_timestamp() - dark_until) * 1000000)::bigint AS dark_since
