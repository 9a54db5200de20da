-- In one order, so that nobody waits in a circle; and before they are looked at, so that nothing is overlooked.
SELECT host_id FROM hosts WHERE host = ANY ($2::text[]) AND holder = $1 ORDER BY host_id FOR UPDATE
