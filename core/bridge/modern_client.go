package bridge

import (
	"log/slog"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/taskgroup"
	"gatekit/core/upstream"
)

// Bounds of one call of a legacy client at a modern server.
const (
	// how many times the server may answer with neither a result nor a question
	maxPostponements     = 8
	firstPostponeDelay   = 200 * time.Millisecond
	longestPostponeDelay = 5 * time.Second
)

// modernClient is the modern client that a modern server sees in place of a legacy client. The
// calls and the subscription of the legacy client's session share it.
type modernClient struct {
	name             string // of the server
	revision         string // of the legacy client
	maxRounds        int    // how many times the server may ask the client for input in one call
	maxInputRequests int    // how many questions the server may ask at once
	log              *slog.Logger
	server           upstream.ModernSession
	goroutines       *taskgroup.Group // of the session
}

// declaresTasks reports whether a request declares the tasks extension.
func declaresTasks(request *mcp.Message) bool {
	_, declared := request.Get(mcp.PointerCapabilities + "/extensions/" +
		mcp.EscapePointer(tasksExtension))
	return declared
}
