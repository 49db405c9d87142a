package cluster

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// met collects what replicas tell each other.
type met struct {
	mu   sync.Mutex
	told []string
}

func (m *met) add(about []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, string(about))
}

func (m *met) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	told := m.told
	m.told = nil
	return told
}

func TestReplicasTellEachOtherAboutThemselves(t *testing.T) {
	ca := newAuthority(t)
	a, _ := newReplica(t, "a", ca.tls(t), "k")
	b, _ := newReplica(t, "b", ca.tls(t), "k")
	var metByA, metByB met
	ownA, ownB := "a's log", "b's log"
	a.o.Describe, a.o.Meet = func() []byte { return []byte(ownA) }, metByA.add
	b.o.Describe, b.o.Meet = func() []byte { return []byte(ownB) }, metByB.add
	var metWhenServed []string
	go a.Serve(t.Context(), handlerFunc(func(w http.ResponseWriter, r *http.Request,
		f Forwarded) {
		metWhenServed = metByA.take()
		echo{}.ServeForwarded(w, r, f)
	}))
	forward := func() http.Header {
		t.Helper()
		w := httptest.NewRecorder()
		if err := b.Forward(w, httptest.NewRequest(http.MethodPost, "/mcp", nil), a.o.Advertise,
			[]byte("hello"), nil); err != nil {
			t.Fatal(err)
		}
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "via b") {
			t.Errorf("the answer is %d %q", w.Code, w.Body)
		}
		return w.Header()
	}
	if h := forward(); h.Get(headerAbout) != "" {
		t.Errorf("the client got the header %s: %s", headerAbout, h.Get(headerAbout))
	}
	if !slices.Equal(metWhenServed, []string{ownB}) {
		t.Errorf("a had met %q before it served the request, want %q", metWhenServed, ownB)
	}
	if got := metByB.take(); !slices.Equal(got, []string{ownA}) {
		t.Errorf("b has met %q, want %q", got, ownA)
	}
	forward()
	if got := slices.Concat(metWhenServed, metByB.take()); len(got) != 0 {
		t.Errorf("the replicas told %q again at once", got)
	}
	// After five minutes, they tell each other again. What is too large is not kept.
	b.told.add(a.o.Advertise, time.Now().Add(-aboutInterval))
	ownA, ownB = strings.Repeat("a", maxAbout+1), strings.Repeat("b", maxAbout)
	forward()
	if !slices.Equal(metWhenServed, []string{ownB}) {
		t.Errorf("a has met %d texts, want the one of %d bytes", len(metWhenServed), maxAbout)
	}
	if got := metByB.take(); len(got) != 0 {
		t.Errorf("b has met %d bytes, want nothing over %d", len(got[0]), maxAbout)
	}
	b.told.add(a.o.Advertise, time.Now().Add(-aboutInterval))
	ownA, ownB = "a's log", strings.Repeat("b", maxAbout+1)
	forward()
	if got := slices.Concat(metWhenServed, metByB.take()); len(got) != 0 {
		t.Errorf("a replica kept a text of %d bytes", len(got[0]))
	}
}

// handlerFunc is a function as a Handler.
type handlerFunc func(http.ResponseWriter, *http.Request, Forwarded)

func (f handlerFunc) ServeForwarded(w http.ResponseWriter, r *http.Request, by Forwarded) {
	f(w, r, by)
}

func TestToldReplicasAreBounded(t *testing.T) {
	var told toldReplicas
	now := time.Now()
	for i := range 3 * maxTold {
		told.add(string(rune(i+1)), now)
		if len(told.last) > maxTold {
			t.Fatalf("%d replicas are kept, want at most %d", len(told.last), maxTold)
		}
	}
	if told.isDue(string(rune(3*maxTold)), now.Add(aboutInterval-1)) ||
		!told.isDue(string(rune(3*maxTold)), now.Add(aboutInterval)) {
		t.Error("a replica is not told again after exactly five minutes")
	}
}
