-- The next open documents of each host, from where we are in its line.
SELECT line.nth, next.doc, next.place, next.url, next.attempts, next.lost,
    (greatest(
        next.not_before - extract(epoch FROM clock_timestamp()),
        extract(epoch FROM next.retry_at - clock_timestamp()),
        0
    ) * 1000000)::bigint AS wait
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS line (host_id, after, nth)
CROSS JOIN LATERAL (
    SELECT docs.doc, docs.place, docs.url, docs.not_before, docs.attempts, docs.lost, docs.retry_at
    FROM docs
    WHERE docs.host_id = line.host_id AND docs.state = 0 AND docs.place > line.after
    ORDER BY docs.place
    LIMIT $3
) AS next
ORDER BY line.nth, next.place
