-- Hosts that were promised to a server which is dead.
WITH promised AS MATERIALIZED (
    SELECT host_id FROM hosts WHERE affinity = $1 AND holder IS NULL LIMIT $2 FOR UPDATE
)
UPDATE hosts SET affinity = NULL, affinity_until = NULL
WHERE hosts.host_id = ANY (ARRAY(SELECT promised.host_id FROM promised))
