-- An operator's word on everything.
UPDATE fleet SET paused = $1, ordered = nextval('orders') WHERE id = 1 RETURNING paused, ordered
