-- Servers that have not renewed in time, each looked at by one other at a time. Their renewal waits meanwhile.
SELECT epoch, expires_2 < clock_timestamp() AS dead
FROM instances
WHERE expires_1 < clock_timestamp() AND epoch <> $1
ORDER BY expires_1
LIMIT $2
FOR UPDATE SKIP LOCKED
