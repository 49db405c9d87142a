package proxy

import (
	"maps"
	"slices"

	"gatekit/core/mcp"
)

// shutdownError is the cause of a call's context when Gatekit stops before the call has ended. The
// client gets this error as the answer.
type shutdownError struct{ *CancelledError }

func (e *shutdownError) Error() string {
	return "gatekit is shutting down, and the call has not ended in time: connect again, then " +
		"repeat it"
}
func (e *shutdownError) Unwrap() error { return e.CancelledError }

// errShuttingDown refuses a call that comes after StopAccepting.
var errShuttingDown = requestErrorf(mcp.CodeInternalError,
	"gatekit is shutting down: connect again, then repeat the request")

// StopAccepting makes all sessions refuse new calls, with an error that is recorded. Calls in
// flight go on, and so do the notifications and answers that belong to them.
func (p *Proxy) StopAccepting() { p.stopping.Store(true) }

// EndCalls ends every call in flight: the client gets an error, which is recorded, and the servers
// are notified. It returns the number of calls, and does not wait until the answers are written.
// Subscriptions go on until their session is closed.
func (p *Proxy) EndCalls() (ended int) {
	p.mu.Lock()
	sessions := slices.Collect(maps.Keys(p.sessions))
	p.mu.Unlock()
	for _, s := range sessions {
		s.mu.Lock()
		calls := slices.Collect(maps.Values(s.calls))
		s.mu.Unlock()
		for _, call := range calls {
			if call.request.Method != "subscriptions/listen" {
				ended++
				call.cancel(&shutdownError{&CancelledError{
					call.cancelNotification("gatekit is shutting down")}})
			}
		}
	}
	return ended
}
