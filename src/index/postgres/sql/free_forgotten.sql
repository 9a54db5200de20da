-- Hosts that were promised to a server which has not taken them for too long.
WITH promised AS MATERIALIZED (
    SELECT host_id FROM hosts
    WHERE affinity_until < clock_timestamp() AND affinity IS NOT NULL AND holder IS NULL
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
UPDATE hosts SET affinity = NULL, affinity_until = NULL
WHERE hosts.host_id = ANY (ARRAY(SELECT promised.host_id FROM promised))
