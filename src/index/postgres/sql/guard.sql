-- Waits for the end of whatever else was begun in our name.
INSERT INTO guards (epoch) VALUES ($1) ON CONFLICT (epoch) DO UPDATE SET epoch = excluded.epoch
