-- An operator's word on a host, known or not; what is null stays as it is. The row's lock makes one word the later.
INSERT INTO hosts (host, paused, blocked_until, delay, stopped, ordered, unheard)
VALUES (
    $1, coalesce($2::boolean, false), clock_timestamp() + $3::bigint * interval '1 microsecond',
    coalesce($4::bigint, 0), coalesce($2::boolean, false) OR coalesce($3::bigint > 0, false), nextval('orders'), true
)
ON CONFLICT (host) DO UPDATE
SET paused = coalesce($2::boolean, hosts.paused),
    blocked_until = CASE WHEN $3::bigint IS NULL THEN hosts.blocked_until
        ELSE clock_timestamp() + $3::bigint * interval '1 microsecond'
    END,
    delay = coalesce($4::bigint, hosts.delay),
    stopped = coalesce($2::boolean, hosts.paused)
        OR coalesce($3::bigint > 0, hosts.blocked_until > clock_timestamp(), false),
    ordered = nextval('orders'),
    unheard = true
RETURNING host, holder, paused,
    (extract(epoch FROM blocked_until - clock_timestamp()) * 1000000)::bigint AS blocked_for,
    delay, ordered
