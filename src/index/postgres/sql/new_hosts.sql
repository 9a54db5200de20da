INSERT INTO hosts (host)
SELECT new.host FROM unnest($1::text[]) AS new (host) ORDER BY new.host
ON CONFLICT (host) DO NOTHING
