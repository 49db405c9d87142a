package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/plugins"
	"gatekit/plugins/sdk"
	"gatekit/transport/sandbox"
)

// sharing returns a plugin that calls the state that replicas share, as each message tells it.
func sharing() sdk.Plugin {
	return sdk.Plugin{Name: "sharing", Version: "1", Needs: sdk.Needs{Body: true},
		SharedState: true,
		New:         func([]byte) (sdk.Stage, error) { return &sharingStage{}, nil }}
}

type sharingStage struct{ state *sdk.SharedState }

func (s *sharingStage) UseSharedState(state sdk.SharedState) { s.state = &state }

// Inspect denies each message with the result of the call as its reason.
func (s *sharingStage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	name, _ := m.Text("/name")
	do, _ := m.Text("/do")
	key := shared.Key{Kind: "plugin other", Principal: "p\xff", Name: "n\xff"}
	lease := shared.Lease{Name: name, Keys: []shared.Key{key}}
	limit := shared.Limit{Key: key}
	switch {
	case do == "die":
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
		time.Sleep(time.Hour)
	case s.state == nil:
		return sdk.Deny("no state"), nil
	case do == "show":
		return sdk.Deny(fmt.Sprint("replicas ", s.state.Replicas)), nil
	case do == "rate":
		limit.Rate, limit.Per, limit.Burst = 2, time.Hour, 3
	case do == "open":
		limit.Concurrent = 1
	case do == "no burst":
		limit.Rate = 1
	case do == "large":
		limit.Key.Name = strings.Repeat("x", 256<<10)
	case do == "renew":
		return sdk.Deny(fmt.Sprint("renewed ", s.state.Renew(ctx, lease, time.Minute))), nil
	case do == "release":
		return sdk.Deny(fmt.Sprint("released ", s.state.Release(ctx, lease))), nil
	}
	r, err := s.state.Admit(ctx, shared.Admission{Limits: []shared.Limit{limit}, Lease: name,
		TTL: time.Hour})
	for of, text := range map[error]string{shared.ErrUnavailable: "unavailable ",
		shared.ErrLost: "lost ", shared.ErrFull: "full "} {
		if errors.Is(err, of) {
			return sdk.Deny(text + err.Error()), nil
		}
	}
	if err != nil {
		return sdk.Deny(err.Error()), nil
	}
	return sdk.Deny(fmt.Sprint(r.Refused, " ", r.TooMany, " ",
		r.RetryAfter.Round(time.Minute))), nil
}

// sharingSpec returns the spec of the plugin sharing as a built-in in the shared process.
func sharingSpec(name string) plugins.Spec {
	s := builtinSpec(name, `{}`)
	s.Use = "sharing"
	return s
}

func stateCall(params string) *mcp.Message {
	return addressed(mcp.NewRequest("1", "tools/call", []byte(params)), mcp.ToServer)
}

// wantReason passes a message with an instruction, which the first stage denies with a reason.
func (h *testHost) wantReason(do, want string) {
	h.t.Helper()
	do, name, _ := strings.Cut(do, " of ")
	h.pass(stateCall(fmt.Sprintf(`{"do":%q,"name":%q}`, do, name)))
	if got := h.record.last(); !strings.Contains(got, want) {
		h.t.Errorf("%s of %q: got %s, want %s", do, name, got, want)
	}
}

// Stages of one plugin in several replicas count together, and those of another plugin apart: the
// kinds of their keys are not their choice. Each process that replaces another one calls the state
// as well.
func TestStagesShareTheirCounts(t *testing.T) {
	memory := &shared.Memory{}
	kinds := &recordedKinds{Admitter: memory}
	var all [3]*testHost
	for i := range all {
		all[i] = startHostWith(t, &plugins.SharedState{State: kinds, Replicas: 3},
			sharingSpec("a"))
	}
	all[0].wantReason("show", "a:deny:replicas 3")
	for i := range all {
		all[i].wantReason("rate", ":-1 false 0s")
	}
	all[1].wantReason("rate", ":0 false 30m0s")
	all[0].wantReason("open of one", ":-1 false")
	all[1].wantReason("open of one", ":-1 false") // the same lease
	all[1].wantReason("open of two", ":0 true")
	all[1].wantReason("renew of one", "renewed <nil>")
	all[1].wantReason("release of one", "released <nil>")
	all[1].wantReason("open of two", ":-1 false")
	all[2].wantReason("release of two", "released <nil>")

	other := startHostWith(t, &plugins.SharedState{State: kinds}, sharingSpec("b"))
	other.wantReason("show", "b:deny:replicas 0")
	other.wantReason("rate", ":-1 false 0s")
	if got, want := kinds.text(), "plugin a\nplugin b"; got != want {
		t.Errorf("the keys have the kinds %q, want %q", got, want)
	}

	all[0].wantReason("die", "") // also in the isolated process
	all[0].waitForEvent("plugin_restarted", 1)
	all[0].waitUntilRunning()
	all[0].wantReason("rate", ":0 false 30m0s")
	all[0].load(sharingSpec("a"), sharingSpec("c")) // the same process gets another stage
	all[0].wantReason("rate", ":0 false 30m0s")
}

// recordedKinds is a state that records the kinds of keys.
type recordedKinds struct {
	shared.Admitter
	mu    sync.Mutex
	kinds map[string]bool
}

func (r *recordedKinds) add(keys ...shared.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds == nil {
		r.kinds = map[string]bool{}
	}
	for _, k := range keys {
		if k.Principal != "p\xff" || k.Name != "n\xff" {
			r.kinds[fmt.Sprintf("%+v", k)] = true
		}
		r.kinds[k.Kind] = true
	}
}

func (r *recordedKinds) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(r.kinds)), "\n")
}

func (r *recordedKinds) Admit(ctx context.Context, a shared.Admission) (shared.Admitted, error) {
	for _, l := range a.Limits {
		r.add(l.Key)
	}
	return r.Admitter.Admit(ctx, a)
}

func (r *recordedKinds) Renew(ctx context.Context, l shared.Lease, ttl time.Duration) error {
	r.add(l.Keys...)
	return r.Admitter.Renew(ctx, l, ttl)
}

func (r *recordedKinds) Release(ctx context.Context, l shared.Lease) error {
	r.add(l.Keys...)
	return r.Admitter.Release(ctx, l)
}

// Only built-in plugins get the state, and none without it.
func TestOnlyBuiltinsGetTheSharedState(t *testing.T) {
	state := &plugins.SharedState{State: &shared.Memory{}}
	startHostWith(t, state, programSpec("sharing", "sharing")).wantReason("rate", "no state")
	startHost(t, sharingSpec("a")).wantReason("rate", "no state")
	s := builtinSpec("m", `{"mark":"m"}`) // does not ask for it
	h := startHostWith(t, state, s)
	h.wantReason("", "modify")
}

// A plugin that cannot get its sockets does not count by itself: it cannot be loaded.
func TestSharedStateNeedsTheControlSocket(t *testing.T) {
	host := plugins.New(plugins.Options{Dir: socketDir(t),
		BuiltinCommand: []string{"/bin/sh", "sh", "-c",
			`unset GATEKIT_PLUGIN_SOCKET; exec "$0" plugin scripted`, os.Args[0]},
		Shared: &plugins.SharedState{State: &shared.Memory{}}})
	defer host.Close()
	spec := sharingSpec("a")
	spec.Sandbox.Level = sandbox.Off
	_, err := host.Load(t.Context(), []plugins.Spec{spec})
	if want := "let the plugin use the shared state: "; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got the error %v, want %s", err, want)
	}
	spec.Use = "scripted" // does not ask for the state
	if _, err := host.Load(t.Context(), []plugins.Spec{spec}); err != nil {
		t.Error(err)
	}
}

// A plugin learns what has failed, but not where the server is.
func TestErrorsOfTheSharedState(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	h := startHostWith(t, &plugins.SharedState{State: state}, sharingSpec("a"))
	state.Fail(fmt.Errorf("%w: dial 192.0.2.1:6379: refused", shared.ErrUnavailable))
	h.wantReason("rate", ":unavailable shared state is not available")
	h.wantReason("release of x", ":released shared state is not available")
	if got := h.record.last(); strings.Contains(got, "192.0.2.1") {
		t.Errorf("the plugin learns where the server is: %s", got)
	}
	state.Fail(shared.ErrLost)
	h.wantReason("rate", ":lost shared state was lost")
	state.Fail(fmt.Errorf("%w: a reason", shared.ErrFull))
	h.wantReason("rate", ":full shared state is full: shared state is full: a reason")
	state.Fail(nil)
	h.wantReason("large", ":full shared state is full: the request has")
	h.wantReason("no burst", "a rate needs a burst of at least 1")
	h.wantReason("rate", ":-1 false 0s")
}

// A state that does not answer costs a message its timeout at most, and not the process. Calls at
// the same time are bounded.
func TestSharedStateThatHangs(t *testing.T) {
	state := &hanging{all: make(chan struct{})}
	spec := sharingSpec("a")
	spec.Timeout = 8 * time.Second
	h := startHostWith(t, &plugins.SharedState{State: state}, spec)
	var callers sync.WaitGroup
	for i := range 40 {
		callers.Go(func() {
			m := stateCall(`{"do":"rate"}`)
			m.Session = fmt.Sprint(i)
			h.pass(m)
		})
	}
	select {
	case <-state.all:
	case <-time.After(testTimeout):
		t.Error("not all calls arrived")
	}
	callers.Wait()
	if state.most > 32 {
		t.Errorf("%d calls at a time, want 32 at most", state.most)
	}
	h.record.mu.Lock()
	defer h.record.mu.Unlock()
	for _, line := range h.record.lines {
		if !strings.Contains(line, "unavailable shared state is not available") {
			t.Errorf("got %s, want that the state is not available", line)
		}
	}
	if h.log.has("plugin killed") {
		t.Error("the process was killed")
	}
}

// hanging is a state whose calls return when their context ends.
type hanging struct {
	shared.Admitter
	all chan struct{} // closed when 40 calls have been made

	mu         sync.Mutex
	calls      int
	open, most int
}

func (s *hanging) Admit(ctx context.Context, _ shared.Admission) (shared.Admitted, error) {
	s.mu.Lock()
	s.open++
	s.most = max(s.most, s.open)
	if s.calls++; s.calls == 40 {
		close(s.all)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
	return shared.Admitted{}, fmt.Errorf("%w: %w", shared.ErrUnavailable, ctx.Err())
}
