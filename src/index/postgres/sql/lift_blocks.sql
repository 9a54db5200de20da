-- Blocks that are over: their hosts may be claimed again.
WITH over AS MATERIALIZED (
    SELECT host_id FROM hosts
    WHERE stopped AND NOT paused AND blocked_until < clock_timestamp()
    ORDER BY blocked_until
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
UPDATE hosts SET stopped = false
WHERE hosts.host_id = ANY (ARRAY(SELECT over.host_id FROM over))
