SELECT nextval('turns') FROM generate_series(1, $1::bigint)
