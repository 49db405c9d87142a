package valkey

// Unsuitable returns why a server with this answer to INFO must not be used.
func Unsuitable(info string) []string { return (&Options{}).unsuitable(parseInfo(info)) }
