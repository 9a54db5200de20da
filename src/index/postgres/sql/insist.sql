-- We need these more than their holders, who came after us.
UPDATE keys SET wanted_by = $1
WHERE key = ANY ($2::text[]) AND holder > $1 AND (wanted_by IS NULL OR wanted_by > $1)
