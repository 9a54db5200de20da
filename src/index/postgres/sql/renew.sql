-- All claims of one server at once. No row: they were all taken, and the server with them.
UPDATE instances
SET expires_1 = clock_timestamp() + $2::bigint * interval '1 microsecond',
    expires_2 = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE epoch = $1
RETURNING losses,
    (SELECT fleet.paused FROM fleet WHERE fleet.id = 1) AS paused,
    (SELECT fleet.ordered FROM fleet WHERE fleet.id = 1) AS ordered
