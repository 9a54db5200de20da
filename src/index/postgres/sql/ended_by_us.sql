-- Reports that had arrived although nobody could tell us.
SELECT doc FROM docs WHERE doc = ANY ($2::bigint[]) AND state <> 0 AND ended_by = $1
