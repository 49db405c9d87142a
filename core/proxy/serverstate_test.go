package proxy

import (
	"errors"
	"testing"
)

// Each row of the table in the comment of serverState.
func TestServerStateTransitions(t *testing.T) {
	phases := []serverPhase{phaseUninitialized, phaseInitializing, phaseFailed, phaseInitialized,
		phaseClosed}
	transitions := map[string]struct {
		apply func(*serverState)
		want  []serverPhase // from each of phases
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
				t.Errorf("%s in phase %d leaves the failure %v in phase %d", name, from, s.failure,
					s.phase)
			}
		}
	}
	if s := new(serverState); !s.sendInitialize() || s.sendInitialize() {
		t.Error("sendInitialize does not tell the first time from the second")
	}
}
