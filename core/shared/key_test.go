package shared_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"gatekit/core/shared"
)

func newRing(t *testing.T, stateKey string) *shared.Ring {
	t.Helper()
	r, err := shared.NewRing([]byte(strings.Repeat(stateKey, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRingHidesNames(t *testing.T) {
	ring, same, other := newRing(t, "a"), newRing(t, "a"), newRing(t, "b")
	k := shared.Key{Kind: "task", Principal: "token:ci", Name: "files"}
	listed := k
	listed.Listed = true
	names := map[string]string{}
	for what, h := range map[string]shared.Hidden{
		"the key":                ring.Key(k),
		"the listed key":         ring.Key(listed),
		"with another state key": other.Key(k),
		"the principal":          ring.Group(k),
		"the kind":               ring.Kind("task"),
		"a name of the key":      ring.Name(k, "files"),
		"a name of another key":  ring.Name(shared.Key{Kind: "task", Name: "x"}, "files"),
		"a key with another border": ring.Key(shared.Key{Kind: "task", Principal: "token:cif",
			Name: "iles"}),
	} {
		if len(h.String()) != 24 || strings.ContainsAny(h.String(), "{}:* ") {
			t.Errorf("%s is %q", what, h)
		}
		if names[h.String()] != "" {
			t.Errorf("%s and %s have the same name", what, names[h.String()])
		}
		names[h.String()] = what
	}
	if ring.Key(k) != same.Key(k) || ring.Group(k) != same.Group(k) ||
		ring.Group(listed) != ring.Kind("task") {
		t.Error("two rings of one state key hide a name differently")
	}
	if n := ring.SessionName("p"); n != same.SessionName("p") || n == ring.SessionName("q") ||
		n == other.SessionName("p") || !strings.HasPrefix(n, "principal-") ||
		!shared.IsSessionName(n) {
		t.Errorf("the session is called %q", n)
	}
	for _, n := range []string{"session-a", "pipe-a", ""} {
		if shared.IsSessionName(n) {
			t.Errorf("all replicas serve the session %q", n)
		}
	}
	if _, err := shared.NewRing([]byte("short")); err == nil {
		t.Error("a short state key is accepted")
	}
}

func TestSealedValuesBelongToTheirName(t *testing.T) {
	ring, other := newRing(t, "a"), newRing(t, "b")
	h := ring.Key(shared.Key{Kind: "token", Name: "x"})
	sealed, err := ring.Seal(h, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	again, _ := ring.Seal(h, []byte("secret"))
	if bytes.Contains(sealed, []byte("secret")) || bytes.Equal(sealed, again) {
		t.Error("a sealed value shows its content, or that it is the same as another one")
	}
	if got, err := ring.Open(h, sealed); err != nil || string(got) != "secret" {
		t.Errorf("the value is %q, %v", got, err)
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"changed":  func() ([]byte, error) { return ring.Open(h, changed) },
		"cut":      func() ([]byte, error) { return ring.Open(h, sealed[:5]) },
		"moved":    func() ([]byte, error) { return ring.Open(ring.Kind("token"), sealed) },
		"of other": func() ([]byte, error) { return other.Open(h, sealed) },
	} {
		if got, err := open(); !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("%s: got %q, %v, want ErrUnavailable", name, got, err)
		}
	}
}
