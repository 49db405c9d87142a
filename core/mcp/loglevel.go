package mcp

import "slices"

// logLevels are the levels of RFC 5424, the least severe first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert",
	"emergency"}

// LogLevelRank returns the rank of a logging level, from 0 for debug, or -1 for any other text.
func LogLevelRank(level string) int { return slices.Index(logLevels, level) }
