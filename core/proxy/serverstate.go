package proxy

// serverPhase is the progress of the client's initialize at one server.
type serverPhase uint8

const (
	// No initialize was sent to the server. Modern clients (2026-07-28) send no initialize: their
	// servers stay in this phase until close.
	phaseUninitialized serverPhase = iota
	phaseInitializing              // initialize was sent; there is no answer yet
	// the last initialize failed; it is repeated, unless it was denied
	phaseFailed
	phaseInitialized // initialize was answered with a result
	phaseClosed      // the server was closed for this session; final
)

// serverState is the phase of one server in one session. Its methods are the only transitions:
//
//	                uninitialized  initializing  failed        initialized  closed
//	sendInitialize  initializing   initializing  failed        initialized  closed
//	succeed         initialized    initialized   initialized   initialized  closed
//	fail            failed         failed        failed        initialized  closed
//	close           closed         closed        closed        closed       closed
//
// A failed server stays failed while initialize is repeated, so that calls fail at once with the
// reason, and do not wait for the new attempt.
type serverState struct {
	phase   serverPhase
	failure error // why initialize failed; nil unless the phase is phaseFailed
}

// sendInitialize notes that initialize is being sent. It reports whether this is the first time.
func (s *serverState) sendInitialize() (first bool) {
	if s.phase != phaseUninitialized {
		return false
	}
	s.phase = phaseInitializing
	return true
}

// succeed notes that the server answered initialize with a result.
func (s *serverState) succeed() {
	if s.phase != phaseClosed {
		s.phase, s.failure = phaseInitialized, nil
	}
}

// fail notes why initialize failed.
func (s *serverState) fail(err error) {
	if s.phase != phaseClosed && s.phase != phaseInitialized {
		s.phase, s.failure = phaseFailed, err
	}
}

// close notes that the server is closed.
func (s *serverState) close() { s.phase, s.failure = phaseClosed, nil }
