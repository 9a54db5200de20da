-- We know of these orders, unless there are later ones.
UPDATE hosts SET unheard = false
FROM unnest($2::text[], $3::bigint[]) AS heard (host, ordered)
WHERE hosts.host = heard.host AND hosts.ordered = heard.ordered AND hosts.holder = $1
