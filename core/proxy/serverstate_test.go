package proxy

import (
	"errors"
	"testing"
)

// The cases are the rows of the table in the comment of serverState.
func TestServerStateTransitions(t *testing.T) {
	phases := []serverPhase{phaseUninitialized, phaseInitializing, phaseFailed, phaseInitialized,
		phaseClosed}
	transitions := map[string]struct {
		apply func(*serverState)
		want  []serverPhase // the next phase for each element of phases
	}{
		"sendInitialize": {func(s *serverState) { s.sendInitialize() }, []serverPhase{
			phaseInitializing, phaseInitializing, phaseFailed, phaseInitialized, phaseClosed}},
		"succeed": {func(s *serverState) { s.succeed() }, []serverPhase{
			phaseInitialized, phaseInitialized, phaseInitialized, phaseInitialized, phaseClosed}},
		"fail": {func(s *serverState) { s.fail(errors.New("down")) }, []serverPhase{
			phaseFailed, phaseFailed, phaseFailed, phaseInitialized, phaseClosed}},
		"close": {func(s *serverState) { s.close() }, []serverPhase{
			phaseClosed, phaseClosed, phaseClosed, phaseClosed, phaseClosed}},
	}
	for name, transition := range transitions {
		for i, from := range phases {
			s := serverState{phase: from}
			if from == phaseFailed {
				s.failure = errors.New("before")
			}
			transition.apply(&s)
			if s.phase != transition.want[i] {
				t.Errorf("%s in phase %d leads to %d, want %d", name, from, s.phase,
					transition.want[i])
			}
			if (s.failure != nil) != (s.phase == phaseFailed) {
				t.Errorf("%s in phase %d leads to phase %d with the failure %v, want a failure in "+
					"phaseFailed only", name, from, s.phase, s.failure)
			}
		}
	}
	if s := new(serverState); !s.sendInitialize() || s.sendInitialize() {
		t.Error("sendInitialize: want true for the first call and false for the second")
	}
}
