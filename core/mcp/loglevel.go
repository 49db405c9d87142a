package mcp

import "slices"

// logLevels are those of RFC 5424, from the most talkative.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert",
	"emergency"}

// LogLevelRank is the rank of a logging level, from 0 for debug; negative for what is none.
func LogLevelRank(level string) int { return slices.Index(logLevels, level) }
