-- Servers that have not renewed in time.
SELECT epoch FROM instances
WHERE expires_1 < clock_timestamp() AND epoch <> $1
ORDER BY expires_1
LIMIT $2
