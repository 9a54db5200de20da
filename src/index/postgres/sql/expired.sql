-- Whether a server has not renewed in time; looked at by one other at a time. Its renewal waits meanwhile.
SELECT expires_2 < clock_timestamp() AS dead
FROM instances
WHERE epoch = $1 AND expires_1 < clock_timestamp()
FOR UPDATE SKIP LOCKED
