package downstream

import (
	"context"
	"log/slog"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// Options say what a Front is the front of.
type Options struct {
	Proxy  *proxy.Proxy
	Limits Limits
	Log    *slog.Logger // nil: nothing is logged
}

// Limits of what clients can make us hold; the zero value of each is its default (protocol.md 6.8).
type Limits struct {
	Message        mcp.Limits    // of each message
	InFlight       int           // requests of one pipe that are not answered yet; default 256
	Sessions       int           // HTTP sessions; default 1000
	SessionIdle    time.Duration // after which an HTTP session ends; default 30 min
	ReverseTimeout time.Duration // how long a client may take to answer a reverse request; default 5 min
	ResumeEvents   int           // events kept for one stream, for a client that comes back or is not there yet; default 256
	ResumeBytes    int           // their bytes; default 1 MiB
}

// Front is all clients' side of one proxy. It is safe for many goroutines.
type Front struct{}

// New makes the front of a proxy. Nothing runs until a client comes.
func New(o Options) *Front { panic("seam") }

// Close ends all sessions and waits for what they started. Pipes end with the context of their ServePipe.
func (f *Front) Close(ctx context.Context) error { panic("seam") }

// ServePipe serves one connection until the client is gone or ctx ends, and returns when all that was started for it has ended.
// The error is nil when the client left in the ordinary way.
func (f *Front) ServePipe(ctx context.Context, p Pipe, principal string) error { panic("seam") }

// Post serves one HTTP POST. ctx ends when the client drops the connection.
func (f *Front) Post(ctx context.Context, r Post, w Reply) { panic("seam") }

// Get serves a legacy session's stream, new or resumed; 405 for others. The Body of r is not looked at.
func (f *Front) Get(ctx context.Context, r Post, w Reply) { panic("seam") }

// Delete ends a legacy session; 405 for others.
func (f *Front) Delete(ctx context.Context, r Post, w Reply) { panic("seam") }

// Refuse answers each request on p with the reason why Gatekit could not start, until the client is gone: its user sees why.
func Refuse(ctx context.Context, p Pipe, reason error) error { panic("seam") }
