-- A dead server that holds nothing any more. Its row is locked: nobody claims in its name meanwhile.
DELETE FROM instances
WHERE epoch = $1
    AND (SELECT holder FROM hosts WHERE holder = $1 ORDER BY holder, in_flight LIMIT 1) IS NULL
    AND (SELECT holder FROM keys WHERE holder = $1 ORDER BY holder, in_flight LIMIT 1) IS NULL
