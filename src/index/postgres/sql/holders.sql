-- Who has keys that we did not get. No row, or no holder: nobody, by now.
SELECT keys.key, keys.holder, instances.expires_1 > clock_timestamp() AS alive
FROM keys LEFT JOIN instances ON instances.epoch = keys.holder
WHERE keys.key = ANY ($1::text[]) AND keys.holder IS NOT NULL
