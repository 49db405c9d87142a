package credentials

import "time"

// ExpireRechecks makes all tokens in memory be compared with the store at their next use.
func (s *Server) ExpireRechecks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logins {
		l.mu.Lock()
		if !l.recheckAt.IsZero() {
			l.recheckAt = time.Now()
		}
		l.mu.Unlock()
	}
}
