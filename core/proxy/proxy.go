// Package proxy carries calls between one client and its servers: names, ids, lists, subscriptions, limits, and every message through pipeline.Pass.
package proxy

import (
	"context"
	"log/slog"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Options say what a Proxy proxies.
type Options struct {
	Pipeline *pipeline.Pipeline
	Servers  []Configured // in the order of the configuration
	Names    Names
	Limits   Limits
	StateKey []byte // seals cursors and requestState; 32 bytes; random when nil, and then no other instance can serve the next page or round
	Log      *slog.Logger
}

// Configured is one server.
type Configured struct {
	Name       string
	Upstream   Upstream
	Timeout    time.Duration // of a call without progress; default 60 s
	MaxTimeout time.Duration // of a whole call; default 10 min
	Methods    []string      // vendor methods (requests and notifications) that are passed to and from this server; "acme/*" is a prefix
}

// Names says how names and URIs are exposed (design.md 6).
type Names struct {
	Prefix    string // "always" (default) or "never" (one server only)
	Resources string // "scheme" (default), "prefix" or "transparent"
}

// Limits of the proxy; the zero value of each is its default (protocol.md 6.8).
type Limits struct {
	InFlight  int // calls of one session at a time; default 256
	ListPages int // pages taken from one server for one list; default 100
	ListItems int // items of one merged list; default 10,000
	PageItems int // items in one page towards the client; default 1,000
	Listens   int // open subscriptions/listen of one session; default 32
	Tasks     int // tasks of one session; default 256
}

// Proxy is safe for many goroutines.
type Proxy struct{}

func New(o Options) (*Proxy, error) { panic("seam") }

// Apply puts new options in force without dropping sessions: servers that are no longer named are closed, new ones are opened for the sessions that live, the others go on.
func (p *Proxy) Apply(o Options) error { panic("seam") }

// Revisions are those that any of the servers speaks, newest first. It waits for the first probe of each, as long as ctx lives; servers that failed are left out.
func (p *Proxy) Revisions(ctx context.Context) []string { panic("seam") }

// Pipeline is the one in force: for the messages that downstream makes itself.
func (p *Proxy) Pipeline() *pipeline.Pipeline { panic("seam") }

// Open opens a session: a legacy client's, or all requests of one modern principal (HTTP) or connection (stdio). feed gets what servers send outside of any call.
func (p *Proxy) Open(o Opening, feed Client) *Session { panic("seam") }

// Close ends all sessions and waits for what they started.
func (p *Proxy) Close() error { panic("seam") }

// Session is one client's view of the servers. It is safe for many goroutines.
type Session struct{}

// Call takes a request as the client sent it and answers what is to be written back, under the same id: a result, an error, a denial. `initialize` and
// `server/discover` are calls like others; so is subscriptions/listen, which answers when the subscription ends. It is the zero Passed when the
// call was cancelled, by ctx or by a notification, and must not be answered. Several calls run at once; two with one id are refused.
func (s *Session) Call(ctx context.Context, m *mcp.Message, c Client) pipeline.Passed { panic("seam") }

// Notify takes a notification as the client sent it: judges, records and hands it to the server or servers it is for. notifications/cancelled finds the call by its requestId and ends it.
// m.Server may be set by downstream where only it can tell (progress of a reverse request).
func (s *Session) Notify(ctx context.Context, m *mcp.Message) { panic("seam") }

// Close cancels what is in flight, closes the session's servers and waits for them.
func (s *Session) Close() error { panic("seam") }
