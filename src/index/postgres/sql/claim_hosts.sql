-- Hosts that are nobody's, in turn. Our own row is held, so that nobody buries us meanwhile.
WITH us AS MATERIALIZED (
    SELECT epoch FROM instances WHERE epoch = $1 FOR KEY SHARE
), free AS MATERIALIZED (
    SELECT host_id FROM hosts
    WHERE holder IS NULL AND affinity IS NULL AND turn IS NOT NULL AND NOT stopped
        AND host <> ALL ($3::text[])
    ORDER BY turn
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE hosts SET holder = us.epoch, in_flight = false
FROM us
WHERE hosts.host_id = ANY (ARRAY(SELECT free.host_id FROM free))
RETURNING hosts.host_id, hosts.host, hosts.turn
