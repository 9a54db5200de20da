-- The same for addresses, aliases and groups.
UPDATE keys
SET in_flight = false,
    opens_at = clock_timestamp() + given.opens_in * interval '1 microsecond',
    held_until = clock_timestamp() + given.held_for * interval '1 microsecond',
    strikes = given.strikes,
    dark_until = NULL
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::smallint[]) AS given (key, opens_in, held_for, strikes)
WHERE keys.key = given.key AND keys.holder = $1
