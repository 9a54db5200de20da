-- Takes hosts from a server that is late: those with nothing in flight, or, of one that is dead, any. One that it was
-- stopped in the middle of writing to has its turn later.
WITH late AS MATERIALIZED (
    SELECT host_id FROM hosts
    WHERE holder = $1 AND (in_flight = false OR in_flight = $2)
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
UPDATE hosts
SET holder = NULL,
    -- Under a claim with nothing in flight nothing was sent: its clock is as it was left.
    dark_until = CASE WHEN hosts.in_flight THEN instances.expires_1 ELSE hosts.dark_until END,
    in_flight = false
FROM instances
WHERE hosts.host_id = ANY (ARRAY(SELECT late.host_id FROM late)) AND instances.epoch = $1
