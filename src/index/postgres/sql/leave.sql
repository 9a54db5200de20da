-- The end of a server that has given everything back, or nearly: what is left expires now, and others take it.
UPDATE instances SET expires_1 = clock_timestamp(), expires_2 = clock_timestamp() WHERE epoch = $1
