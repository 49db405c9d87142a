package cluster

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestReplicasCompareTheirStates forwards requests between replicas. Each of the two learns the
// state of the other, and the client learns neither.
func TestReplicasCompareTheirStates(t *testing.T) {
	ca := newAuthority(t)
	a, _ := newReplica(t, "a", ca.tls(t), "k")
	b, _ := newReplica(t, "b", ca.tls(t), "k")
	stateOfA, stateOfB := "configuration 1", "configuration 1"
	a.o.State = func() string { return stateOfA }
	b.o.State = func() string { return stateOfB }
	go b.Serve(t.Context(), echo{})
	forward := func() {
		t.Helper()
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		if err := a.Forward(w, r, b.o.Advertise, nil, nil); err != nil {
			t.Fatal(err)
		}
		if w.Header().Get(headerState) != "" {
			t.Errorf("the client got the state of a replica: %v", w.Header())
		}
	}
	want := func(when string, r *Replica, peer Peer) {
		t.Helper()
		if got := r.Peers(); len(got) != 1 || got[0] != peer {
			t.Errorf("%s, %s knows %v, want %v", when, r.o.Name, got, peer)
		}
	}
	if got := a.Peers(); len(got) != 0 {
		t.Errorf("before any request, a knows %v", got)
	}
	forward()
	want("with equal states", a, Peer{"b", false})
	want("with equal states", b, Peer{"a", false})
	stateOfB = "configuration 2"
	forward()
	want("with another state of b", a, Peer{"b", true})
	want("with another state of b", b, Peer{"a", true})
	stateOfA = strings.Repeat("x", 2*maxStateBytes)
	forward()
	want("with a state that is too long", b, Peer{"a", true})
	stateOfA = "configuration 2"
	forward()
	want("with equal states again", a, Peer{"b", false})
	want("with equal states again", b, Peer{"a", false})
}
