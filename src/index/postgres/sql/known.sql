-- Which of these URLs are known.
SELECT asked.nth
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS asked (host_id, print, nth)
JOIN docs ON docs.host_id = asked.host_id AND docs.print = asked.print
