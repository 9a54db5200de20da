-- The same for addresses, aliases and groups.
WITH late AS MATERIALIZED (
    SELECT key FROM keys
    WHERE holder = $1 AND (in_flight = false OR in_flight = $2)
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
UPDATE keys
SET holder = NULL,
    wanted_by = NULL,
    dark_until = CASE WHEN keys.in_flight THEN instances.expires_1 ELSE keys.dark_until END,
    in_flight = false
FROM instances
WHERE keys.key = ANY (ARRAY(SELECT late.key FROM late)) AND instances.epoch = $1
