-- A server is here, or here again. Times are in microseconds, and counted by the database's clock.
INSERT INTO instances (epoch, name, expires_1, expires_2)
VALUES (
    nextval('epochs'), $1,
    clock_timestamp() + $2::bigint * interval '1 microsecond',
    clock_timestamp() + $3::bigint * interval '1 microsecond'
)
RETURNING epoch,
    (SELECT fleet.paused FROM fleet WHERE fleet.id = 1) AS paused,
    (SELECT fleet.ordered FROM fleet WHERE fleet.id = 1) AS ordered
