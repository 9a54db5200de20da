-- It will hear of it when it renews, if it ever does.
UPDATE instances SET losses = losses + $2 WHERE epoch = $1
