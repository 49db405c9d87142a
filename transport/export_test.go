package transport

import (
	"log/slog"
	"net"
)

// IdleConnections returns the number of open connections that wait for a request.
func (s *HTTPServer) IdleConnections() int {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	return s.listener.idle.Len()
}

// HasUsableConnection reports whether the next message will be sent on a connection that exists.
func (b *HTTPClient) HasUsableConnection() bool { return b.direct.HasUsable() }

// NewLimitedListener returns a limitedListener.
func NewLimitedListener(l net.Listener, most int, log *slog.Logger) net.Listener {
	return newLimitedListener(l, most, minIdle, log)
}
