package mcp

import "slices"

// logLevels are the levels of RFC 5424, the least severe first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert",
	"emergency"}

// LogLevelRank returns the rank of a logging level. The rank of debug, the lowest level, is 0. If
// level is not a logging level, LogLevelRank returns -1.
func LogLevelRank(level string) int { return slices.Index(logLevels, level) }
