-- Keys of ours under which nothing will be sent any more. A clock that nobody has read is as it was.
UPDATE keys
SET holder = NULL,
    in_flight = false,
    wanted_by = NULL,
    opens_at = CASE WHEN given.opens_in IS NULL THEN keys.opens_at
        ELSE clock_timestamp() + given.opens_in * interval '1 microsecond'
    END,
    held_until = CASE WHEN given.opens_in IS NULL THEN keys.held_until
        ELSE clock_timestamp() + given.held_for * interval '1 microsecond'
    END,
    strikes = coalesce(given.strikes, keys.strikes),
    dark_until = CASE WHEN given.opens_in IS NULL THEN keys.dark_until END
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::smallint[]) AS given (key, opens_in, held_for, strikes)
WHERE keys.key = given.key AND keys.holder = $1
