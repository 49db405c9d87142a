package transport

// IdleConnections returns the number of open connections that wait for a request.
func (s *HTTPServer) IdleConnections() int {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	return s.listener.idle.Len()
}
