-- Documents that were sent and have not ended; in the name of whoever holds their host.
UPDATE docs
SET attempts = greatest(docs.attempts, told.attempts),
    lost = greatest(docs.lost, told.lost),
    retry_at = clock_timestamp() + told.wait * interval '1 microsecond'
FROM unnest($2::bigint[], $3::integer[], $4::integer[], $5::bigint[]) AS told (doc, attempts, lost, wait), hosts
WHERE docs.doc = told.doc AND docs.state = 0
    AND hosts.host_id = docs.host_id AND hosts.holder = $1
