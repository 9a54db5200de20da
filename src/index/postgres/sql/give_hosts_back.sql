-- Hosts of ours that we have nothing more to do with; they are locked. With open documents they stand in line again.
UPDATE hosts
SET holder = NULL,
    in_flight = false,
    turn = CASE
        WHEN EXISTS (SELECT 1 FROM docs WHERE docs.host_id = hosts.host_id AND docs.state = 0)
        THEN nextval('turns')
    END,
    affinity = heir.epoch,
    affinity_until = CASE WHEN heir.epoch IS NOT NULL
        THEN clock_timestamp() + $3::bigint * interval '1 microsecond'
    END,
    -- A clock that nobody has read is as it was.
    opens_at = CASE WHEN given.opens_in IS NULL THEN hosts.opens_at
        ELSE clock_timestamp() + given.opens_in * interval '1 microsecond'
    END,
    held_until = CASE WHEN given.opens_in IS NULL THEN hosts.held_until
        ELSE clock_timestamp() + given.held_for * interval '1 microsecond'
    END,
    strikes = coalesce(given.strikes, hosts.strikes),
    gap = coalesce(given.gap, hosts.gap),
    dark_until = CASE WHEN given.opens_in IS NULL THEN hosts.dark_until END
FROM unnest($2::text[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bigint[], $8::text[])
    AS given (host, opens_in, held_for, strikes, gap, because)
    LEFT JOIN keys ON keys.key = given.because
    LEFT JOIN instances AS heir ON heir.epoch = CASE WHEN keys.holder = $1 THEN keys.wanted_by ELSE keys.holder END
WHERE hosts.host = given.host AND hosts.holder = $1
