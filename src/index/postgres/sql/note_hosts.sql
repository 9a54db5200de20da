-- What hosts of ours are owed, should we be lost.
UPDATE hosts
SET opens_at = clock_timestamp() + given.opens_in * interval '1 microsecond',
    held_until = clock_timestamp() + given.held_for * interval '1 microsecond',
    strikes = given.strikes,
    gap = given.gap
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[])
    AS given (host, opens_in, held_for, strikes, gap)
WHERE hosts.host = given.host AND hosts.holder = $1
