package bridge

import (
	"io"
	"log/slog"
	"time"
)

// Options configure a Bridge.
type Options struct {
	// Version is the version of Gatekit. A session with a legacy server declares it in clientInfo
	// if the client has no clientInfo.
	Version string
	// Rounds is how many times a modern server may ask a legacy client for input in one call;
	// default 16.
	Rounds int
	Log    *slog.Logger // nil: nothing is logged
}

// withDefaults returns o with the defaults filled in.
func (o Options) withDefaults() Options {
	if o.Rounds <= 0 {
		o.Rounds = 16
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return o
}

// Bounds that hold in both directions.
const (
	// how many questions a server may ask at once
	maxInputRequests = 64
	// how many resources one subscription or session may include
	maxSubscribedResources = 1000
	// how long a server may take to acknowledge the subscriptions of one request
	acknowledgeTimeout = 5 * time.Second
	// how long the requests that end a subscription or a task at the server may take in all
	cleanupTimeout = 5 * time.Second
	// the longest delay before a failed session or subscription is opened again
	longestRetryDelay = 30 * time.Second
)
