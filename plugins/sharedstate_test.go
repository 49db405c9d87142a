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
	"sync/atomic"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/plugins"
	"gatekit/plugins/sdk"
	"gatekit/transport/sandbox"
)

// sharing returns a plugin that calls the state that replicas share, as each message tells it.
func sharing() sdk.Plugin {
	return sdk.Plugin{Name: "sharing", Version: "1", Needs: sdk.Needs{Body: true, Request: true},
		SharedState: true,
		New:         func([]byte) (sdk.Stage, error) { return &sharingStage{}, nil }}
}

type sharingStage struct {
	state *sdk.SharedState
	taken atomic.Int64 // admissions that were not taken back
}

func (s *sharingStage) UseSharedState(state sdk.SharedState) { s.state = &state }

// Reuse promises what the calls of the state break.
func (s *sharingStage) Reuse() *sdk.Reuse { return &sdk.Reuse{} }

// Inspect denies each message.
func (s *sharingStage) Inspect(context.Context, *mcp.Message) (sdk.Verdict, error) {
	return sdk.Deny("no state"), nil
}

// InspectShared denies each message with the result of the call as its reason, unless the message
// has allow.
func (s *sharingStage) InspectShared(ctx context.Context, m *mcp.Message) (v sdk.Verdict,
	c sdk.Count, err error) {
	name, _ := m.Text("/name")
	do, _ := m.Text("/do")
	key := shared.Key{Kind: "plugin other", Principal: "p\xff", Name: "n\xff"}
	lease := shared.Lease{Name: name, Keys: []shared.Key{key}}
	limit := shared.Limit{Key: key}
	switch do, _, _ := strings.Cut(do, ", "); do {
	case "die":
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
		time.Sleep(time.Hour)
	case "show":
		return sdk.Deny(fmt.Sprint("replicas ", s.state.Replicas, " taken ",
			s.taken.Load())), c, nil
	case "rate":
		limit.Rate, limit.Per, limit.Burst = 2, time.Hour, 3
	case "open":
		limit.Concurrent = 1
	case "no burst":
		limit.Rate = 1
	case "large":
		limit.Key.Name = strings.Repeat("x", 17<<10)
	case "renew":
		c.Calls.Renew, c.Calls.RenewTTL = lease, time.Minute
		return sdk.Deny("renewed"), c, nil
	case "release":
		c.Calls.Release = lease
		return sdk.Deny("released"), c, nil
	}
	c.Calls.Admission = shared.Admission{Limits: []shared.Limit{limit}, Lease: name,
		TTL: time.Hour}
	s.taken.Add(1)
	c.Settle = func(r shared.Admitted, err error) (sdk.Verdict, shared.Lease) {
		s.taken.Add(-1)
		switch _, then, _ := strings.Cut(do, ", "); {
		case then == "panic":
			panic("while settling")
		case then == "die":
			self, _ := os.FindProcess(os.Getpid())
			self.Kill()
			time.Sleep(time.Hour)
		}
		for of, text := range map[error]string{shared.ErrUnavailable: "unavailable ",
			shared.ErrLost: "lost ", shared.ErrFull: "full "} {
			if errors.Is(err, of) {
				return sdk.Deny(text + err.Error()), shared.Lease{}
			}
		}
		if err != nil {
			return sdk.Deny(err.Error()), lease
		}
		return sdk.Deny(fmt.Sprint(r.Refused, " ", r.TooMany, " ",
			r.RetryAfter.Round(time.Minute))), shared.Lease{}
	}
	if strings.HasSuffix(do, ", allow") {
		return sdk.Allow(), c, nil
	}
	return sdk.Deny("counted"), c, nil
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
	all[0].wantReason("show", "a:deny:replicas 3 taken 0")
	for i := range all {
		all[i].wantReason("rate", ":counted")
	}
	all[1].wantReason("rate", ":0 false 30m0s")
	all[0].wantReason("open of one", ":counted")
	all[1].wantReason("open of one", ":counted") // the same lease
	all[1].wantReason("open of two", ":0 true")
	all[1].wantReason("renew of one", "renewed")
	all[1].wantReason("release of one", "released")
	all[1].wantReason("open of two", ":counted")
	all[2].wantReason("release of two", "released")

	other := startHostWith(t, &plugins.SharedState{State: kinds}, sharingSpec("b"))
	other.wantReason("show", "b:deny:replicas 0")
	other.wantReason("rate", ":counted")
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

// A process that gets its messages over gRPC counts in the state as well.
func TestSharedStateOverGRPC(t *testing.T) {
	host := plugins.New(plugins.Options{Dir: socketDir(t),
		BuiltinCommand: []string{"/bin/sh", "sh", "-c",
			`unset GATEKIT_PLUGIN_SOCKET; exec "$0" plugin scripted`, os.Args[0]},
		Shared: &plugins.SharedState{State: &shared.Memory{}}})
	defer host.Close()
	specs := []plugins.Spec{sharingSpec("a")}
	specs[0].Sandbox.Level = sandbox.Off
	set, err := host.Load(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	stage := set.Stages(specs)[0].Stage
	for _, want := range []string{"counted", "counted", "counted", "0 false 30m0s"} {
		if v, err := stage.Inspect(t.Context(), stateCall(`{"do":"rate"}`)); err != nil ||
			v.Reason != want {
			t.Errorf("got the reason %q, %v, want %q", v.Reason, err, want)
		}
	}
}

// Stages of one process see a message only when the admissions of those before them are counted.
// They see it with the changes of those before them.
func TestStagesAfterAnAdmission(t *testing.T) {
	state := &admissions{Admitter: &shared.Memory{}, kinds: map[string]int{}}
	specs := []plugins.Spec{builtinSpec("m", `{"mark":"m"}`), sharingSpec("a"),
		builtinSpec("n", `{"mark":"n"}`), sharingSpec("b"), builtinSpec("o", `{"mark":"o"}`)}
	h := startHostWith(t, &plugins.SharedState{State: state}, specs...)
	for range 3 {
		m, err := h.pass(stateCall(`{"do":"rate, allow"}`))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := m.Text("/mark"); got != "mno" {
			t.Errorf("the message has the mark %q, want mno", got)
		}
	}
	h.wantReason("rate, allow", "a:deny:0 false 30m0s")
	if got, want := fmt.Sprint(state.kinds), "map[plugin a:4 plugin b:3]"; got != want {
		t.Errorf("the admissions are %s, want %s", got, want)
	}
	// each verdict has its lease, also before other verdicts
	h.wantReason("release of x", "a:deny:released")
	if got, want := fmt.Sprint(state.released), "[x]"; got != want {
		t.Errorf("the leases %s were released, want %s", got, want)
	}
}

// A verdict on a definition is not used again if the stage counts: each message counts.
func TestCountingStagesAreAskedEachTime(t *testing.T) {
	state := &admissions{Admitter: &shared.Memory{}, kinds: map[string]int{}}
	h := startHostWith(t, &plugins.SharedState{State: state}, sharingSpec("a"),
		builtinSpec("m", `{"mark":"m"}`))
	for range 3 {
		list := addressed(mcp.NewResponse("1", []byte(`{"do":"rate, allow","tools":[]}`)),
			mcp.ToClient)
		list.Method = "tools/list"
		m, err := h.pass(list)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := m.Text("/mark"); got != "m" {
			t.Errorf("the list has the mark %q, want m", got)
		}
	}
	if got := fmt.Sprint(state.kinds); got != "map[plugin a:3]" {
		t.Errorf("three lists make the admissions %s, want one for each", got)
	}
}

// admissions is a state that counts the admissions of each kind, and has the names of the leases
// that were released.
type admissions struct {
	shared.Admitter
	mu       sync.Mutex
	kinds    map[string]int
	released []string
}

func (s *admissions) Admit(ctx context.Context, a shared.Admission) (shared.Admitted, error) {
	s.mu.Lock()
	s.kinds[a.Limits[0].Key.Kind]++
	s.mu.Unlock()
	return s.Admitter.Admit(ctx, a)
}

func (s *admissions) Release(ctx context.Context, l shared.Lease) error {
	s.mu.Lock()
	s.released = append(s.released, l.Name)
	s.mu.Unlock()
	return s.Admitter.Release(ctx, l)
}

// A message that is given up while it is counted leaves nothing behind.
func TestGivenUpWhileCounted(t *testing.T) {
	state := &admissions{Admitter: &hanging{all: make(chan struct{}), wait: 1},
		kinds: map[string]int{}}
	h := startHostWith(t, &plugins.SharedState{State: state}, sharingSpec("a"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-state.Admitter.(*hanging).all
		cancel()
	}()
	if _, err := h.pipe.Pass(ctx, stateCall(`{"do":"open, allow","name":"x"}`)); err == nil {
		t.Error("the message was allowed")
	}
	if got := fmt.Sprint(state.released); got != "[x]" {
		t.Errorf("the leases %s were released, want x", got)
	}
	h.wantReason("show", "taken 0")
	if h.log.has("plugin failed") {
		t.Errorf("a failure of the plugin is logged: %s", h.log.text())
	}
}

// A plugin that fails when it gets the result of an admission denies the message.
func TestFaultsWhileSettling(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	state.Fail(shared.ErrUnavailable)
	h := startHostWith(t, &plugins.SharedState{State: state}, sharingSpec("a"))
	h.wantReason("rate, panic", "panicked: while settling")
	h.wantReason("rate, die", "a:deny:")
	h.waitForEvent("plugin_lost", 1)
	h.waitUntilRunning()
	state.Fail(nil)
	h.wantReason("rate", ":counted")
}

// Calls of the state that break the protocol deny the message, also if errors are skipped.
func TestFaultyStateCalls(t *testing.T) {
	for fault, want := range map[string]string{
		"state: an admission before another verdict": "an admission that it must not have",
		"state: an admission after a result":         "an admission that it must not have",
		"state: a lease after a result":              "settled",
		"state: a time that is none":                 "-1 ms is not a time",
		"state: no fault":                            "",
	} {
		t.Run(fault, func(t *testing.T) {
			state := sharedtest.NewFaulty(&shared.Memory{})
			if strings.HasSuffix(fault, "result") {
				state.Fail(shared.ErrUnavailable)
			}
			host := plugins.New(plugins.Options{Dir: socketDir(t),
				BuiltinCommand: []string{os.Args[0], "", "plugin", fault},
				BuiltinPlugins: []string{"scripted"}, Shared: &plugins.SharedState{State: state}})
			defer host.Close()
			specs := []plugins.Spec{builtinSpec("a", `{}`), builtinSpec("b", `{}`)}
			specs[0].SkipOnError, specs[1].SkipOnError = true, true
			set, err := host.Load(t.Context(), specs)
			if err != nil {
				t.Fatal(err)
			}
			record := &recorder{}
			p := pipeline.New(record, pipeline.Options{}, set.Stages(specs)...)
			_, err = p.Pass(t.Context(), stateCall(`{"do":"x"}`))
			if got := record.last(); (err == nil) != (want == "") || !strings.Contains(got, want) {
				t.Errorf("got %s, %v, want %s", got, err, want)
			}
		})
	}
}

// A plugin learns what has failed, but not where the server is.
func TestErrorsOfTheSharedState(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	h := startHostWith(t, &plugins.SharedState{State: state}, sharingSpec("a"))
	state.Fail(fmt.Errorf("%w: dial 192.0.2.1:6379: refused", shared.ErrUnavailable))
	h.wantReason("rate", ":unavailable shared state is not available")
	if got := h.record.last(); strings.Contains(got, "192.0.2.1") {
		t.Errorf("the plugin learns where the server is: %s", got)
	}
	h.wantReason("release of x", ":released")
	h.wantReason("renew of x", ":renewed")
	state.Fail(shared.ErrLost)
	h.wantReason("rate", ":lost shared state was lost")
	state.Fail(fmt.Errorf("%w: a reason", shared.ErrFull))
	h.wantReason("rate", ":full shared state is full: a reason")
	state.Fail(nil)
	h.wantReason("large", ":full shared state is full: the name of a plugin a has more than")
	h.wantReason("no burst", "a rate needs a burst of at least 1")
	h.wantReason("rate", ":counted")
}

// A state that does not answer costs a message its timeout at most, and not the process. Calls at
// the same time are bounded.
func TestSharedStateThatHangs(t *testing.T) {
	state := &hanging{all: make(chan struct{}), wait: 70}
	spec := sharingSpec("a")
	spec.Timeout = 8 * time.Second
	h := startHostWith(t, &plugins.SharedState{State: state}, spec)
	var callers sync.WaitGroup
	for i := range 70 {
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
	if state.most > 64 {
		t.Errorf("%d calls at a time, want 64 at most", state.most)
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
	all  chan struct{} // closed when wait calls have been made
	wait int

	mu         sync.Mutex
	calls      int
	open, most int
}

func (s *hanging) Admit(ctx context.Context, _ shared.Admission) (shared.Admitted, error) {
	s.mu.Lock()
	s.open++
	s.most = max(s.most, s.open)
	if s.calls++; s.calls == s.wait {
		close(s.all)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
	return shared.Admitted{}, fmt.Errorf("%w: %w", shared.ErrUnavailable, ctx.Err())
}

func (*hanging) Renew(context.Context, shared.Lease, time.Duration) error { return nil }
func (*hanging) Release(context.Context, shared.Lease) error              { return nil }
