SELECT key FROM keys WHERE holder = $1
