-- Keys of ours that others need more.
SELECT key FROM keys WHERE holder = $1 AND wanted_by IS NOT NULL ORDER BY key
