package transport

import (
	"log/slog"
	"net"
	"slices"
	"time"
)

// IdleConnections returns the number of open connections that wait for a request.
func (s *HTTPServer) IdleConnections() int {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	return s.listener.idle.Len()
}

// KeepUnused sets how long the client keeps an unused connection.
func (b *HTTPClient) KeepUnused(d time.Duration) { b.direct.keep = d }

// HasUsableConnection reports whether the next message will be sent on a connection that exists.
func (b *HTTPClient) HasUsableConnection() bool {
	b.direct.mu.Lock()
	defer b.direct.mu.Unlock()
	return slices.ContainsFunc(b.direct.idle, (*httpConn).isQuiet)
}

// NewLimitedListener returns a limitedListener.
func NewLimitedListener(l net.Listener, most int, log *slog.Logger) net.Listener {
	return newLimitedListener(l, most, minIdle, log)
}
