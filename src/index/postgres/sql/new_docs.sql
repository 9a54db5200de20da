-- Documents with new URLs; one whose name is taken is left out.
INSERT INTO docs (doc, host_id, place, print, url, not_before)
SELECT new.doc, new.host_id, new.place, new.print, new.url, new.not_before
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[])
    AS new (doc, host_id, place, print, url, not_before)
ON CONFLICT (doc) DO NOTHING
RETURNING doc
