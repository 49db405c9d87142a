package policies_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/core/tasks"
	"gatekit/policies"
)

// replicaOf returns the stage of a replica with a memory of its own.
func replicaOf(t *testing.T, state shared.Store, rego string,
	change func(*policies.Options)) *policies.Stage {
	t.Helper()
	file := filepath.Join(t.TempDir(), "t.rego")
	must(t, os.WriteFile(file, []byte("package gatekit.t\n\n"+rego), 0o600))
	o := policies.Options{Files: []string{file},
		Shared: &policies.SharedSessions{State: state, Idle: time.Minute}}
	if change != nil {
		change(&o)
	}
	s, err := policies.Load(o)
	must(t, err)
	return s
}

const taintRules = `label contains "tainted" if { input.kind == "response"; input.name == "read" }
deny contains "sends" if { input.name == "send"; "tainted" in input.session.labels }
deny contains "lost" if { input.name == "send"; "lost" in input.session.labels }
`

func inspected(t *testing.T, s *policies.Stage, m *mcp.Message) pipeline.Verdict {
	t.Helper()
	v, err := s.Inspect(t.Context(), m)
	must(t, err)
	return v
}

func ofSession(session string, m *mcp.Message) *mcp.Message {
	m.Session = session
	return m
}

func TestLabelsOfReplicas(t *testing.T) {
	for _, byPrincipal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var state shared.Memory
			labels := func(o *policies.Options) { o.LabelsByPrincipal = byPrincipal }
			a := replicaOf(t, &state, taintRules, labels)
			b := replicaOf(t, &state, taintRules, labels)
			if refused(t, b, called("send", `{}`)) {
				t.Fatal("a call is denied before the session has a label")
			}
			inspected(t, a, answered(called("read", `{}`), `{}`))
			if !refused(t, b, called("send", `{}`)) {
				t.Error("the other replica does not know the label")
			}
			if got := refused(t, b, ofSession("s2", called("send", `{}`))); got != byPrincipal {
				t.Errorf("labels by principal %v: a call of another session is denied: %v",
					byPrincipal, got)
			}
			if refused(t, b, called("other", `{}`)) {
				t.Error("another tool is denied")
			}
			for range 30 { // a session that is in use, on either replica, keeps its labels
				time.Sleep(10 * time.Second)
				refused(t, b, called("other", `{}`))
			}
			time.Sleep(time.Minute - time.Second)
			if !refused(t, a, called("send", `{}`)) {
				t.Error("a label is forgotten while the session is used")
			}
			time.Sleep(75*time.Second + time.Second)
			if got := refused(t, a, called("send", `{}`)); got != byPrincipal {
				t.Errorf("labels by principal %v: after session_idle, a call is denied: %v",
					byPrincipal, got)
			}
			time.Sleep(7*24*time.Hour - time.Second) // after the last use of the labels
			if got := refused(t, a, called("send", `{}`)); got != byPrincipal {
				t.Errorf("labels by principal %v: within 7 days, a call is denied: %v",
					byPrincipal, got)
			}
			time.Sleep(7 * 24 * time.Hour)
			if refused(t, a, called("send", `{}`)) {
				t.Errorf("labels by principal %v: after 7 days, a call is denied", byPrincipal)
			}
		})
	}
}

// labeler is a stage before the policies that labels each session.
type labeler struct{}

func (labeler) Inspect(context.Context, *mcp.Message) (pipeline.Verdict, error) {
	return pipeline.Verdict{Action: pipeline.Allow, Labels: []string{"tainted"}}, nil
}

// TestLabelsOfStagesReachReplicas is about the labels that a plugin sets.
func TestLabelsOfStagesReachReplicas(t *testing.T) {
	var state shared.Memory
	a, b := replicaOf(t, &state, taintRules, nil), replicaOf(t, &state, taintRules, nil)
	_, err := pipeline.New(&journal{}, pipeline.Options{},
		pipeline.StageConfig{Name: "plugin", Stage: labeler{}},
		pipeline.StageConfig{Name: "policy", Stage: a}).Pass(t.Context(),
		answered(called("other", `{}`), `{}`))
	must(t, err)
	if !refused(t, b, called("send", `{}`)) {
		t.Error("the other replica does not know the label of the plugin")
	}
}

// TestLimitsOfReplicas lets three replicas count the calls of one session at the same time.
func TestLimitsOfReplicas(t *testing.T) {
	for name, rule := range map[string]string{
		"calls": `deny contains "many" if input.session.calls["a x"] >= 50
deny contains "no" if input.params.arguments.deny`,
		"minute": `deny contains "many" if input.session.minute[""] >= 50
deny contains "no" if input.params.arguments.deny`,
	} {
		t.Run(name, func(t *testing.T) {
			var state shared.Memory
			var passed atomic.Int64
			var replicas sync.WaitGroup
			for range 3 {
				s := replicaOf(t, &state, rule, nil)
				replicas.Go(func() {
					for i := range 60 {
						arguments := `{}`
						if i%2 == 1 { // a denied call does not count
							arguments = `{"deny":true}`
						}
						v, err := s.Inspect(t.Context(), called("x", arguments))
						if err != nil {
							t.Error(err)
						} else if v.Action != pipeline.Deny {
							passed.Add(1)
						}
					}
				})
			}
			replicas.Wait()
			// A call that is being denied counts until it is, so a few less may pass.
			if n := passed.Load(); n > 50 || n < 40 {
				t.Errorf("%d calls pass, want at most 50", n)
			}
			s := replicaOf(t, &state, rule, nil)
			for range 50 - passed.Load() {
				if refused(t, s, called("x", `{}`)) {
					t.Error("denied calls are counted")
				}
			}
			if !refused(t, s, called("x", `{}`)) {
				t.Error("a call above the limit passes")
			}
		})
	}
}

// counting counts how often the state is asked.
type counting struct {
	shared.Store
	asked atomic.Int64
}

func (c *counting) Track(ctx context.Context, k shared.Key, change shared.Change) (shared.Tracked,
	error) {
	c.asked.Add(1)
	return c.Store.Track(ctx, k, change)
}

// TestSharedStateIsAskedWhenNeeded checks which messages wait for the state, and are denied without
// it.
func TestSharedStateIsAskedWhenNeeded(t *testing.T) {
	read := answered(called("read", `{}`), `{}`)
	for _, c := range []struct {
		name, rego string
		message    *mcp.Message
		asked      int64
	}{
		{"a rule reads labels", taintRules, called("send", `{}`), 1},
		{"no rule for the tool", taintRules, called("other", `{}`), 0},
		{"a label is set", taintRules, read, 1},
		{"another message", taintRules, request("ping", `{}`, ""), 0},
		{"a URI has other spellings", taintRules, request("resources/read", `{"uri":"file:///a/../b"}`,
			"file:///a/../b"), 1},
		{"calls are counted for another rule", `deny contains "x" if {
	input.name == "y"; input.session.calls["a x"] > 5 }`, called("x", `{}`), 1},
		{"calls of the last minute", `deny contains "x" if {
	input.name == "y"; input.session.minute["a x"] > 5 }`, called("x", `{}`), 1},
		{"nobody counts", `deny contains "x" if input.name == "y"`, called("x", `{}`), 0},
		{"a hide rule reads labels", `hide contains item.name if { some item in input.items
	"l" in input.session.labels }`, called("x", `{}`), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			faulty := sharedtest.NewFaulty(&shared.Memory{})
			state := &counting{Store: faulty}
			s := replicaOf(t, state, c.rego, nil)
			if v := inspected(t, s, c.message); v.Action == pipeline.Deny {
				t.Errorf("denied: %s", v.Reason)
			}
			state.asked.Store(0) // the first message of the session renews its state
			inspected(t, s, c.message)
			if got := state.asked.Load(); got != c.asked {
				t.Errorf("the state was asked %d times, want %d", got, c.asked)
			}
			faulty.Fail(shared.ErrUnavailable)
			v := inspected(t, s, c.message)
			if denied := v.Action == pipeline.Deny; denied != (c.asked > 0) || denied &&
				!strings.Contains(v.Reason, "shared state is not available") ||
				v.Temporary != denied {
				t.Errorf("without the state: %v %q, temporary: %v", v.Action, v.Reason, v.Temporary)
			}
			if _, ok, err := s.InspectQuickly(t.Context(), c.message); ok || err != nil {
				t.Error("a message is judged quickly, which must not wait for the state")
			}
		})
	}
}

// TestLabelIsSharedBeforeItsMessageMoves checks a message whose own rule does not read the state.
func TestLabelIsSharedBeforeItsMessageMoves(t *testing.T) {
	for _, c := range []struct {
		err       error
		reason    string
		temporary bool // an equal message may pass later
	}{
		{shared.ErrUnavailable, "shared state is not available", true},
		{shared.ErrFull,
			"the session has too many labels, or has called too many different tools", false},
	} {
		state := sharedtest.NewFaulty(&shared.Memory{})
		s := replicaOf(t, state, `label contains "x" if input.kind == "response"`, nil)
		state.Fail(c.err)
		v := inspected(t, s, answered(called("x", `{}`), `{}`))
		if v.Action != pipeline.Deny || v.Reason != c.reason || v.Temporary != c.temporary {
			t.Errorf("%v: %v %q, temporary: %v; want a denial because %s, temporary: %v", c.err,
				v.Action, v.Reason, v.Temporary, c.reason, c.temporary)
		}
	}
}

func TestTooManySharedLabels(t *testing.T) {
	var state shared.Memory
	s := replicaOf(t, &state, `label contains input.params.arguments.l if input.kind == "request"`,
		nil)
	for i := range 1001 {
		s.Inspect(t.Context(), ofSession("other", called("x", `{"l":"`+strconv.Itoa(i)+`"}`)))
	}
	if v := inspected(t, s, called("x", `{"l":"`+strings.Repeat("l", 20_000)+`"}`)); v.Action !=
		pipeline.Deny || !strings.Contains(v.Reason, "too many labels") {
		t.Errorf("%v %q, want that the label is too long", v.Action, v.Reason)
	}
}

func TestLostStateOfSessions(t *testing.T) {
	for _, deny := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			state := sharedtest.NewFaulty(&shared.Memory{})
			s := replicaOf(t, state, taintRules, func(o *policies.Options) {
				o.Shared.DenyLost = deny
			})
			if refused(t, s, called("send", `{}`)) {
				t.Fatal("a call is denied before the state was lost")
			}
			state.Lose()
			want := "t: lost"
			if deny {
				want = "shared state was lost, and limits and labels may be incomplete"
			}
			for range 2 {
				if v := inspected(t, s, called("send", `{}`)); v.Action != pipeline.Deny ||
					v.Reason != want {
					t.Errorf("after a loss: %v %q, want %q", v.Action, v.Reason, want)
				}
			}
			if refused(t, s, called("other", `{}`)) {
				t.Error("a call that needs no labels is denied")
			}
			// The label is kept for a quarter more, and then a session that is not in use ends.
			time.Sleep(75 * time.Second)
			if refused(t, s, called("send", `{}`)) {
				t.Error("a call is denied after session_idle")
			}
		})
	}
}

// A session that is in use does not forget that its labels were lost, however few messages it has,
// and also if none of them needs labels for a time.
func TestSessionsInUseStayLost(t *testing.T) {
	for _, deny := range []bool{false, true} {
		for _, pause := range []time.Duration{time.Second, 14 * time.Second, 59 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				state := sharedtest.NewFaulty(&shared.Memory{})
				s := replicaOf(t, state, taintRules, func(o *policies.Options) {
					o.Shared.DenyLost = deny
				})
				inspected(t, s, answered(called("read", `{}`), `{}`))
				time.Sleep(14 * time.Second)
				state.Lose()
				// another user of the state notices the loss
				if _, err := state.List(t.Context(), "x", 0); !errors.Is(err, shared.ErrLost) {
					t.Fatalf("got %v, want shared.ErrLost", err)
				}
				for began := time.Now(); time.Since(began) < 5*time.Minute; {
					if refused(t, s, called("other", `{}`)) {
						t.Error("a call that needs no labels is denied")
					}
					time.Sleep(pause)
				}
				if !refused(t, s, called("send", `{}`)) {
					t.Errorf("with a call each %v, the session has forgotten the loss", pause)
				}
			})
		}
	}
}

// countedTracks counts the calls of Track.
type countedTracks struct {
	shared.Store
	calls atomic.Int64
}

func (c *countedTracks) Track(ctx context.Context, k shared.Key, change shared.Change) (
	shared.Tracked, error) {
	c.calls.Add(1)
	return c.Store.Track(ctx, k, change)
}

// Messages that need nothing of the state ask it only once in a quarter of the time, unless it is
// away.
func TestRenewalsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := sharedtest.NewFaulty(&shared.Memory{})
		state := &countedTracks{Store: faulty}
		s := replicaOf(t, state, taintRules, nil)
		during := func(d time.Duration) int64 {
			before := state.calls.Load()
			for began := time.Now(); time.Since(began) < d; time.Sleep(time.Second) {
				inspected(t, s, called("other", `{}`))
			}
			return state.calls.Load() - before
		}
		if n := during(time.Minute); n != 4 {
			t.Errorf("the state was asked %d times in a minute, want 4 times", n)
		}
		faulty.Fail(shared.ErrUnavailable)
		if n := during(time.Minute); n != 15 {
			t.Errorf("without the state, it was asked %d times in a minute, want 15 times", n)
		}
	})
}

// A replica that does not know of the loss learns the label from another one.
func TestOtherReplicasLearnOfALoss(t *testing.T) {
	memory := &shared.Memory{}
	state := sharedtest.NewFaulty(memory)
	a := replicaOf(t, state, taintRules, nil)
	state.Lose()
	inspected(t, a, called("send", `{}`))
	b := replicaOf(t, forgetful{state}, taintRules, nil)
	if v := inspected(t, b, called("send", `{}`)); v.Reason != "t: lost" {
		t.Errorf("the other replica: %v %q", v.Action, v.Reason)
	}
}

// forgetful is a store of a replica that started after the loss.
type forgetful struct{ shared.Store }

func (forgetful) Lost() time.Time { return time.Time{} }

// In shadow mode, no message is denied because the state is not available.
func TestShadowModeNeedsNoSharedState(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	s := replicaOf(t, state, taintRules, func(o *policies.Options) { o.Shadow = true })
	state.Fail(shared.ErrUnavailable)
	for _, m := range []*mcp.Message{called("send", `{}`), answered(called("read", `{}`), `{}`)} {
		if refused(t, s, m) {
			t.Errorf("%s of %s is denied", m.Method, m.Name)
		}
	}
}

// A message about a task that was created through another replica is about the tool of the task.
func TestTasksOfOtherReplicas(t *testing.T) {
	state := &shared.Memory{}
	elsewhere := &tasks.Owners{State: state}
	must(t, elsewhere.Create(t.Context(), "a", "t1", "ann", "secret", 0))
	const rules = `hide contains "secret" if input.method == "tools/list"
deny contains "about secret" if { input.method == "tasks/cancel"; "secret" in input.tools }
`
	get := sent(mcp.NewRequest("1", "tasks/get", []byte(`{"taskId":"t1"}`)), mcp.ToServer, "t1")
	cancel := sent(mcp.NewRequest("2", "tasks/cancel", []byte(`{"taskId":"t1"}`)), mcp.ToServer,
		"t1")
	for _, known := range []bool{false, true} {
		here := &tasks.Owners{State: state}
		s := replicaOf(t, state, rules, func(o *policies.Options) {
			o.Sessions = &policies.SessionStore{Tasks: here}
		})
		if known { // the proxy looks for the owner before the policies see the message
			if got, err := here.Foreign(t.Context(), "a", "ann",
				"t1"); err != nil || got != nil {
				t.Fatalf("the foreign tasks are %v, %v, want none", got, err)
			}
		}
		if got := verdictOf(t, s, get); strings.Contains(got, "the task belongs to the tool secret"+
			", which is hidden") != known {
			t.Errorf("with the task known %v, tasks/get of a hidden tool: %s", known, got)
		}
		if got := verdictOf(t, s, cancel); strings.Contains(got, "about secret") != known {
			t.Errorf("with the task known %v, tasks/cancel: %s", known, got)
		}
	}
}
