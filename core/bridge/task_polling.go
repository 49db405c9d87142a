package bridge

import (
	"strconv"
	"time"

	"gatekit/core/mcp"
)

// Intervals between two requests for the state of a task.
const (
	defaultPollInterval  = 5 * time.Second // when the server names no interval
	shortestPollInterval = 200 * time.Millisecond
	longestPollInterval  = time.Minute
)

// pollInterval returns the interval that m contains at pointer, as a number of milliseconds. It
// limits the interval to the bounds above.
func pollInterval(m *mcp.Message, pointer string) time.Duration {
	raw, _ := m.Get(pointer)
	ms, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return defaultPollInterval
	}
	return time.Duration(min(max(ms, float64(shortestPollInterval.Milliseconds())),
		float64(longestPollInterval.Milliseconds()))) * time.Millisecond
}
