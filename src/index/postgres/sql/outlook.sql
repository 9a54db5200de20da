-- Whether there is something for this server to take, and whether others are at work, or will be. In order, so that it
-- is looked up by index also where a scan might find something sooner, and might not.
SELECT
    (SELECT turn FROM hosts WHERE holder IS NULL AND affinity = $1 AND turn IS NOT NULL
        AND NOT stopped ORDER BY turn LIMIT 1) IS NOT NULL AS for_us,
    (SELECT turn FROM hosts WHERE holder IS NULL AND affinity IS NULL AND turn IS NOT NULL
        AND NOT stopped ORDER BY turn LIMIT 1) IS NOT NULL AS for_anyone,
    (SELECT affinity FROM hosts WHERE holder IS NULL AND affinity < $1
        ORDER BY affinity DESC LIMIT 1) IS NOT NULL
        OR (SELECT affinity FROM hosts WHERE holder IS NULL AND affinity > $1
            ORDER BY affinity LIMIT 1) IS NOT NULL AS for_others,
    (SELECT holder FROM hosts WHERE holder < $1 ORDER BY holder DESC LIMIT 1) IS NOT NULL
        OR (SELECT holder FROM hosts WHERE holder > $1 ORDER BY holder LIMIT 1) IS NOT NULL AS held_by_others,
    (SELECT turn FROM hosts WHERE holder IS NULL AND turn IS NOT NULL AND stopped
        ORDER BY turn LIMIT 1) IS NOT NULL AS stopped
