package policies

import (
	"strings"

	"gatekit/core/mcp"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// RequestMatcher sets Message.Request of each response among consecutive cases. It also sets the
// principal of the response: the audit log has the scopes only in the record of the request. The
// zero value is ready to use.
//
// A RequestMatcher keeps at most 100,000 requests without a response, and 64 MiB of their bodies.
// Beyond that, it forgets the oldest of them. A response to a forgotten request has no request, as
// if the log did not have it, and MissingMembers says so.
type RequestMatcher struct {
	requests *simplelru.LRU[string, *mcp.Message] // without a response, the oldest first
	bytes    int                                  // of the bodies and keys of the requests
}

// Bounds of a RequestMatcher.
const (
	maxUnansweredRequests = 100_000
	maxUnansweredBytes    = 64 << 20
)

// Add adds the next case, and sets its request when the case is a response.
func (rm *RequestMatcher) Add(c *Case) {
	if c.IsEvent || c.exchange == "" {
		return
	}
	m := c.Message
	key := strings.Join([]string{m.Principal.ID(), m.Session, c.exchange, m.Method, m.Server},
		"\x00")
	switch {
	case m.Kind == mcp.Request && !c.BodyMissing:
		rm.keep(key, m)
	case (m.Kind == mcp.Response || m.Kind == mcp.Error) && rm.requests != nil:
		if request, ok := rm.requests.Peek(key); ok && m.Request == nil {
			m.Request, m.Principal = request, request.Principal
		}
		rm.requests.Remove(key)
	}
}

// keep keeps a request until its response is added, and forgets the oldest requests beyond the
// bounds.
func (rm *RequestMatcher) keep(key string, m *mcp.Message) {
	if rm.requests == nil {
		// the error is about a size that is not positive
		rm.requests, _ = simplelru.NewLRU(maxUnansweredRequests,
			func(key string, m *mcp.Message) { rm.bytes -= len(key) + len(m.Body()) })
	}
	rm.requests.Remove(key)
	rm.bytes += len(key) + len(m.Body())
	rm.requests.Add(key, m)
	for rm.bytes > maxUnansweredBytes {
		rm.requests.RemoveOldest()
	}
}
