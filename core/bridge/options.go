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
	// InputRequests is how many questions a modern server may ask in one result, and how many pages
	// a legacy server may want to be opened at once; default 256.
	InputRequests int
	// CapabilitySets is for how many sets of capabilities a client can have sessions with a legacy
	// server at a time; default 8. A request with another set waits.
	CapabilitySets int
	// FurtherSessions is how many sessions with a legacy server a client can have in addition to
	// the first session of each set of capabilities; default 24.
	FurtherSessions int
	Log             *slog.Logger // nil: nothing is logged
}

// withDefaults returns o with the defaults filled in.
func (o Options) withDefaults() Options {
	for _, f := range []struct {
		value        *int
		defaultValue int
	}{{&o.Rounds, 16}, {&o.InputRequests, 256}, {&o.CapabilitySets, 8}, {&o.FurtherSessions, 24}} {
		if *f.value <= 0 {
			*f.value = f.defaultValue
		}
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
	// how many resources one subscription or session may include
	maxSubscribedResources = 1000
	// how long a server may take to acknowledge the subscriptions of one request
	acknowledgeTimeout = 5 * time.Second
	// how long the requests that end a subscription or a task at the server may take in all
	cleanupTimeout = 5 * time.Second
	// the longest delay before a failed session or subscription is opened again
	longestRetryDelay = 30 * time.Second
)
