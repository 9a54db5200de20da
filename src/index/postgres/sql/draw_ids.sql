SELECT nextval('doc_ids') FROM generate_series(1, $1::bigint)
