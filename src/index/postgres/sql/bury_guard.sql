-- Of a server that is gone; unless it still says something, which will be refused.
DELETE FROM guards
WHERE epoch = (SELECT guards.epoch FROM guards WHERE guards.epoch = $1 FOR UPDATE SKIP LOCKED)
    AND (SELECT instances.epoch FROM instances WHERE instances.epoch = $1) IS NULL
