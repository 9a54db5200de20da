SELECT host FROM hosts WHERE holder = $1
