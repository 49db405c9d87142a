package console

import (
	"context"
	"time"
)

// Servers has the state of the servers and the plugins.
type Servers interface {
	// Servers returns the states, sorted by name. It sends nothing to a server.
	Servers(ctx context.Context) (*ServerList, error)
}

// CountedPeriod is the part of the log that a page counts.
type CountedPeriod struct {
	Since time.Time
	First uint64 // seq of the first record that was read
	Cut   bool   // older records since Since were left out, because there are too many
}

// ServerList has the states of all servers and plugins.
type ServerList struct {
	Counted CountedPeriod
	Servers []ServerState
	Plugins []PluginState
}

// ServerState is the state of one server.
type ServerState struct {
	Name      string
	Transport string // "stdio" or "HTTP"
	Era       string // "modern" or "legacy"; "" if unknown
	State     string // "up", "down" or "idle"
	Sandbox   string // the level that is held; "" for a server over HTTP
	// The program should be confined, and is not.
	SandboxMissing bool
	Processes      int   // running
	Refused        int64 // starts that were refused because of the limit
	HasPins        bool
	HeldBack       int    // definitions that wait for an approval
	Moved          string // "launch" or "package" if it is not as approved

	// In the counted period:
	Calls, RefusedCalls, FailedCalls, Restarts, Lost int
}

// PluginState is the state of one plugin process.
type PluginState struct {
	Name     string
	Running  bool
	Error    string
	Starts   int
	InFlight int
	Timeouts int // requests in a row that got no verdict in time
}

// ServersPage returns the page with the servers and the plugins.
func ServersPage(s Servers) Page {
	return Page{Name: "servers", Title: "Servers", Refresh: 5 * time.Second,
		Data: func(ctx context.Context, _ Request) (any, error) { return s.Servers(ctx) }}
}
