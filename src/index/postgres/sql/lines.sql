-- Where each host's line ends; the rows are locked until the documents are in it.
SELECT host, host_id, next_place FROM hosts WHERE host = ANY ($1::text[]) ORDER BY host_id FOR UPDATE
