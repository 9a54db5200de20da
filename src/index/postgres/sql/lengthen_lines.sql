-- The documents are in line. A host that had nothing open stands in line itself now.
UPDATE hosts
SET next_place = hosts.next_place + longer.by,
    turn = coalesce(hosts.turn, longer.turn)
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS longer (host_id, by, turn)
WHERE hosts.host_id = longer.host_id
