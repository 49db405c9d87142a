package main

import (
	"log/slog"
	"syscall"
)

// connectionsWithin returns how many connections of clients may be open. This is limit, or half of
// the file descriptors that the system allows the process, if that is less. The other half stays
// for servers, plugins and the audit log.
func connectionsWithin(limit int, log *slog.Logger) int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return limit
	}
	half := max(1, files.Cur/2)
	if uint64(limit) <= half {
		return limit
	}
	log.Warn("fewer connections than [limits] connections: raise the limit of open files "+
		"(ulimit -n)", "connections", half, "open_files", files.Cur, "configured", limit)
	return int(half)
}
