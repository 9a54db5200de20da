-- Whether a host of ours has open documents.
SELECT hosts.host_id
FROM hosts
CROSS JOIN LATERAL (
    SELECT docs.place FROM docs
    WHERE docs.host_id = hosts.host_id AND docs.state = 0
    ORDER BY docs.place
    LIMIT 1
) AS open
WHERE hosts.holder = $1
LIMIT 1
