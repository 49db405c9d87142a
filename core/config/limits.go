package config

import "time"

// Limits is [limits]: limits for the resources that clients, servers and plugins can use. Each
// number must be above zero.
type Limits struct {
	// MessageBytes is the largest size of a message, in bytes. Default: 16 MiB.
	MessageBytes int `toml:"message_bytes"`
	// Depth is how deep arrays and objects can be nested in a message. Default: 200.
	Depth int `toml:"depth"`
	// Tokens is how many values and names a message can have. Default: 1,000,000.
	Tokens int `toml:"tokens"`
	// Batch is how many messages a JSON-RPC batch can have. Only revision 2025-03-26 has batches.
	// Default: 100.
	Batch int `toml:"batch"`
	// InFlight is how many calls of one session can run at a time. Default: 256.
	InFlight int `toml:"in_flight"`
	// Sessions is how many HTTP sessions can be open. Default: 1000.
	Sessions int `toml:"sessions"`
	// SessionIdle is the time without a request after which an HTTP session ends. Default: 30m.
	SessionIdle time.Duration `toml:"session_idle"`
	// Connections is how many HTTP connections can be open. When the limit is reached, a new
	// connection replaces a connection that has been idle for a second. If there is none, the new
	// connection is refused. If the system allows few open files (ulimit -n), the limit is at most
	// half of them. Default: 4096.
	Connections int `toml:"connections"`
	// Streams is how many event streams over HTTP can be open. Default: 2048.
	Streams int `toml:"streams"`
	// Processes is how many server processes can run for the HTTP sessions of one principal. When
	// there are more, the process that has been unused for the longest time is ended. Default: 64.
	Processes int `toml:"processes"`
	// ServerIdle is how long an HTTP session keeps the process or connection of a server without a
	// call or an open stream. After that, the process or connection is ended. The session stays.
	// Default: 15m.
	ServerIdle time.Duration `toml:"server_idle"`
	// ResumeEvents is how many events of a stream are kept for a client that reconnects.
	// Default: 256.
	ResumeEvents int `toml:"resume_events"`
	// ResumeBytes is how many bytes of a stream are kept for a client that reconnects. Default:
	// 1 MiB.
	ResumeBytes int `toml:"resume_bytes"`
	// ReverseTimeout is how long a client may take to answer a request of a server, and how long a
	// call waits until its user has logged in to a server. Default: 5m.
	ReverseTimeout time.Duration `toml:"reverse_timeout"`
	// ReverseRequests is how many requests from servers one client can have to answer at a time. It
	// is also how many requests one server can have open. Further requests wait. A modern server
	// (2026-07-28) can put at most this many into one result; a call whose result has more fails.
	// Default: 256.
	ReverseRequests int `toml:"reverse_requests"`
	// ListPages is how many pages of one list are read from one server. Default: 100.
	ListPages int `toml:"list_pages"`
	// ListItems is how many items one list can have, from all servers together. Default: 10,000.
	ListItems int `toml:"list_items"`
	// PageItems is how many items a page of a list for the client has. Default: 1000.
	PageItems int `toml:"page_items"`
	// Listens is how many subscriptions/listen requests of one session can be open. Default: 32.
	Listens int `toml:"listens"`
	// Rounds is how often a server may ask the client for input during one call. Default: 16.
	Rounds int `toml:"rounds"`
	// Parked is how many calls of modern clients (2026-07-28) to legacy servers can be parked: they
	// wait for input from the client. Default: 1024.
	Parked int `toml:"parked"`
	// ParkedPerPrincipal is how many parked calls can belong to one principal. When this limit or
	// the limit of all parked calls is reached, the next call that has to be parked waits. After
	// the time-out of its server, it is refused. Default: 64.
	ParkedPerPrincipal int `toml:"parked_per_principal"`
	// ParkedFor is how long a parked call waits for the client. Default: 10m.
	ParkedFor time.Duration `toml:"parked_for"`
	// CapabilitySets is for how many different sets of capabilities one principal's modern clients
	// (2026-07-28) can have sessions with one legacy server. To make room, the sessions of a set
	// are closed that no request uses. If requests use every set, a call with another set waits.
	// Default: 8.
	CapabilitySets int `toml:"capability_sets"`
	// FurtherSessions is how many sessions with one legacy server one principal's modern clients
	// over HTTP can have in addition to one for each set of capabilities. They are for parallel
	// calls in which the server may ask the client. With a stdio server, each has its own process.
	// When the limit is reached, such a call waits until a session is free. If the server has never
	// asked a client, the call waits for at most 5s, and then shares a session. Default: 24.
	FurtherSessions int `toml:"further_sessions"`
	// FilterLogs drops a server's log messages that are below the level that the client set. A
	// modern request (2026-07-28) without a level gets no log messages. With false, all log
	// messages are forwarded. Default: true.
	FilterLogs bool `toml:"filter_logs"`
	// PluginMemory is how many bytes of memory a plugin process may use. A process that uses more
	// is ended. Only Linux has this limit. A message for which this is too little, of more than
	// about a fiftieth of it, counts as a failure of the plugin. Default: 1 GiB.
	PluginMemory int `toml:"plugin_memory"`
}

func (l *Limits) setDefaults() {
	*l = Limits{
		MessageBytes: 16 << 20, Depth: 200, Tokens: 1_000_000, Batch: 100,
		InFlight: 256, Sessions: 1000, SessionIdle: 30 * time.Minute,
		Connections: 4096, Streams: 2048, ResumeEvents: 256,
		ResumeBytes: 1 << 20, ReverseTimeout: 5 * time.Minute, ReverseRequests: 256,
		Processes: 64, ServerIdle: 15 * time.Minute,
		ListPages: 100, ListItems: 10_000, PageItems: 1000, Listens: 32, Rounds: 16, Parked: 1024,
		ParkedPerPrincipal: 64, ParkedFor: 10 * time.Minute, CapabilitySets: 8,
		FurtherSessions: 24, PluginMemory: 1 << 30, FilterLogs: true,
	}
}
