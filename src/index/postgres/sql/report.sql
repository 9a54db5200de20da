-- Ends documents, each once, and only in the name of whoever holds its host.
UPDATE docs
SET state = told.state, outcome = told.outcome, ended_at = clock_timestamp(), ended_by = $1
FROM unnest($2::bigint[], $3::smallint[], $4::text[]) AS told (doc, state, outcome), hosts
WHERE docs.doc = told.doc AND docs.state = 0
    AND hosts.host_id = docs.host_id AND hosts.holder = $1
RETURNING docs.doc
