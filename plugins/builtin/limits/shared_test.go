package limits_test

import (
	"context"
	"errors"
	"fmt"
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
	"gatekit/plugins/sdk"
)

// replica is a stage whose calls of the state are made as Gatekit makes them.
type replica struct {
	sdk.Stage
	state shared.Admitter
}

// Inspect implements sdk.Stage.
func (r replica) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	v, c, err := r.Stage.(sdk.StageWithSharedState).InspectShared(ctx, m)
	result, stateErr := c.Calls.Make(ctx, r.state, time.Minute)
	if stateErr == nil && result.OK() {
		return v, err
	}
	v, lease := c.Settle(result, stateErr)
	sdk.StateCalls{Release: lease}.Make(ctx, r.state, time.Minute)
	if errors.Is(stateErr, sdk.ErrGivenUp) {
		err = stateErr
	}
	return v, err
}

// newReplicas returns the stages of n replicas that share a state. parts is by how many they divide
// their limits without it; 0 denies.
func newReplicas(t testing.TB, n int, state shared.Admitter, parts int, config string) []sdk.Stage {
	t.Helper()
	all := make([]sdk.Stage, n)
	for i := range all {
		s := newStage(t, config)
		s.(sdk.StageWithSharedState).UseSharedState(sdk.SharedState{Replicas: parts})
		all[i] = replica{s, state}
	}
	return all
}

// observed is a state that counts its calls, and calls before and after with each of them.
type observed struct {
	shared.Admitter
	calls  map[string]int
	lease  string       // of the last admission
	before func()       // may be nil
	after  func() error // may be nil; its error replaces the result
}

func (o *observed) call(method string, do func() error) error {
	o.calls[method]++
	if o.before != nil {
		o.before()
	}
	err := do()
	if o.after != nil {
		err = o.after()
	}
	return err
}

func (o *observed) Admit(ctx context.Context, a shared.Admission) (r shared.Admitted, err error) {
	o.lease = a.Lease
	err = o.call("admit", func() (err error) {
		r, err = o.Admitter.Admit(ctx, a)
		return err
	})
	return r, err
}

func (o *observed) Renew(ctx context.Context, l shared.Lease, ttl time.Duration) error {
	return o.call("renew", func() error { return o.Admitter.Renew(ctx, l, ttl) })
}

func (o *observed) Release(ctx context.Context, l shared.Lease) error {
	return o.call("release", func() error { return o.Admitter.Release(ctx, l) })
}

// took returns the calls since the last took, such as "admit 1 release 0 renew 0".
func (o *observed) took() string {
	defer clear(o.calls)
	return fmt.Sprintf("admit %d release %d renew %d", o.calls["admit"], o.calls["release"],
		o.calls["renew"])
}

func TestReplicasShareRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newReplicas(t, 3, &shared.Memory{}, 0,
			`{"calls":[{"per":"tool","rate":60,"burst":3},{"per":"principal","rate":600,"burst":4}]`+
				otherLimitsOff)
		reason := "calls[0]: limit of 60 messages per minute per tool reached (burst 3); retry " +
			"in 1s"
		for _, s := range all {
			requireAllowed(t, s, call("read", `{}`))
		}
		for _, s := range all {
			requireDenied(t, s, call("read", `{}`), reason, "rate")
		}
		requireAllowed(t, all[2], call("write", `{}`))
		requireDenied(t, all[1], call("write", `{}`), "calls[1]: limit of 600 messages per minute "+
			"per principal reached (burst 4); retry in 100ms", "rate")
		requireAllowed(t, all[1], call("read", `{}`, principalSession("bob", "s1")))
		time.Sleep(time.Second)
		requireAllowed(t, all[1], call("read", `{}`))
		requireDenied(t, all[0], call("read", `{}`), reason, "rate")
	})
}

// Three replicas under load admit exactly what one would.
func TestReplicasAdmitNoMoreThanOne(t *testing.T) {
	for rule, want := range map[string]int64{`"rate":1,"burst":70`: 70, `"concurrent":40`: 40,
		`"rate":1,"burst":60,"concurrent":50`: 50} {
		synctest.Test(t, func(t *testing.T) {
			all := newReplicas(t, 3, &shared.Memory{}, 0, `{"calls":[{"per":"tool",`+rule+`}]`+
				otherLimitsOff)
			var admitted atomic.Int64
			var callers sync.WaitGroup
			for i := range 300 {
				callers.Go(func() {
					s, id := all[i%3], exchange(fmt.Sprint(i/3)) // equal in all replicas
					v, err := s.Inspect(t.Context(), call("read", `{}`, id))
					if err != nil {
						t.Error(err)
					}
					if v.Action == pipeline.Allow {
						admitted.Add(1)
					}
				})
			}
			callers.Wait()
			if n := admitted.Load(); n != want {
				t.Errorf("%s: %d calls are admitted, want %d", rule, n, want)
			}
		})
	}
}

func TestReplicasShareOpenRequests(t *testing.T) {
	const reason = "calls[0]: limit of 2 open requests per tool reached"
	config := `{"calls":[{"per":"tool","concurrent":2}]` + otherLimitsOff
	one, two, three := exchange("1"), exchange("2"), exchange("3")
	for name, test := range map[string]func(t *testing.T, all []sdk.Stage){
		"ends with its response": func(t *testing.T, all []sdk.Stage) {
			requireAllowed(t, all[0], result("tools/call", `{}`, one))
		},
		"ends with its cancellation": func(t *testing.T, all []sdk.Stage) {
			requireAllowed(t, all[0], notification("notifications/cancelled", mcp.ToServer, one))
		},
		"ends after its time, when its replica is gone": func(t *testing.T, all []sdk.Stage) {
			time.Sleep(75*time.Second - 1)
			requireDenied(t, all[2], call("read", `{}`, three), reason, "concurrency")
			time.Sleep(time.Nanosecond)
		},
		"is renewed by progress": func(t *testing.T, all []sdk.Stage) {
			for range 100 {
				time.Sleep(30 * time.Second)
				for i, id := range []field{one, two} {
					requireAllowed(t, all[i], notification("notifications/progress", mcp.ToClient,
						id))
				}
				requireDenied(t, all[2], call("read", `{}`, three), reason, "concurrency")
			}
			requireAllowed(t, all[0], result("tools/call", `{}`, one))
		},
		"is renewed by a question to the client": func(t *testing.T, all []sdk.Stage) {
			requireAllowed(t, all[0], serverRequest("elicitation/create", one))
			requireAllowed(t, all[1], serverRequest("elicitation/create", two))
			time.Sleep(10 * time.Minute)
			requireDenied(t, all[2], call("read", `{}`, three), reason, "concurrency")
			time.Sleep(150 * time.Second)
		},
		"has further rounds": func(t *testing.T, all []sdk.Stage) {
			for range 3 {
				requireAllowed(t, all[0], call("read", `{}`, one))
			}
			requireAllowed(t, all[0], result("tools/call", `{}`, one))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newReplicas(t, 3, &shared.Memory{}, 0, config)
				requireAllowed(t, all[0], call("read", `{}`, one))
				requireAllowed(t, all[1], call("read", `{}`, two))
				requireDenied(t, all[2], call("read", `{}`, three), reason, "concurrency")
				test(t, all)
				requireAllowed(t, all[2], call("read", `{}`, three))
			})
		})
	}
}

// A message costs one call of the state at most. One that this replica must refuse anyway, and one
// that no rule counts, costs none.
func TestOneCallOfTheStatePerMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &observed{Admitter: &shared.Memory{}, calls: map[string]int{}}
		s := newReplicas(t, 1, state, 0, `{"calls":[{"per":"tool","tools":["r*"],"rate":60,"burst":1},`+
			`{"per":"tool","tools":["open"],"concurrent":1},{"per":"principal","tools":["open","r*"],`+
			`"rate":60,"burst":5}],"timeout":"20s"`+otherLimitsOff)[0]
		for _, step := range []struct {
			m    *mcp.Message
			deny bool
			want string
		}{
			{call("read", `{}`), false, "admit 1 release 0 renew 0"},
			{call("read", `{}`), true, "admit 0 release 0 renew 0"},
			{result("tools/call", `{}`), false, "admit 0 release 0 renew 0"},
			{call("other", `{}`), false, "admit 0 release 0 renew 0"},
			{call("open", `{}`), false, "admit 1 release 0 renew 0"},
			{notification("notifications/progress", mcp.ToClient), false,
				"admit 0 release 0 renew 0"},
			{result("tools/call", `{}`), false, "admit 0 release 1 renew 0"},
			{result("tools/call", `{}`), false, "admit 0 release 0 renew 0"},
		} {
			if v := inspect(t, s, step.m); (v.Action == pipeline.Deny) != step.deny {
				t.Errorf("%s %s: got %+v", step.m.Method, step.m.Name, v)
			}
			if got := state.took(); got != step.want {
				t.Errorf("%s %s takes the calls %q, want %q", step.m.Method, step.m.Name, got,
					step.want)
			}
			if hasLease := state.lease != ""; hasLease != (step.m.Name == "open") {
				t.Errorf("%s %s has a lease: %t", step.m.Method, step.m.Name, hasLease)
			}
			state.lease = ""
		}
		// progress renews the lease when a quarter of the time has passed, and not before
		requireAllowed(t, s, call("open", `{}`))
		state.took()
		progress := notification("notifications/progress", mcp.ToClient)
		for i, want := range []string{"renew 0", "renew 1", "renew 0", "renew 1"} {
			time.Sleep(5 * time.Second) // a quarter of the time
			if i%2 == 1 {
				time.Sleep(time.Nanosecond)
			}
			requireAllowed(t, s, progress)
			if got := state.took(); got != "admit 0 release 0 "+want {
				t.Errorf("progress %d takes the calls %q, want %s", i, got, want)
			}
			if i == 1 {
				// renewed just now
				requireAllowed(t, s, progress)
				if got := state.took(); got != "admit 0 release 0 renew 0" {
					t.Errorf("progress right after a renewal takes the calls %q", got)
				}
			}
		}
	})
}

// Without the state, what it counts is denied. Everything works again when the state is back, and
// what was denied does not count.
func TestWithoutTheStateMessagesAreDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := sharedtest.NewFaulty(&shared.Memory{})
		s := newReplicas(t, 1, state, 0,
			`{"calls":[{"per":"tool","tools":["r*"],"rate":60,"burst":2,"concurrent":2}]`+
				otherLimitsOff)[0]
		requireAllowed(t, s, call("read", `{}`))
		for _, err := range []error{shared.ErrUnavailable, shared.ErrLost} {
			state.Fail(fmt.Errorf("%w: dial 192.0.2.1: refused", err))
			for range 5 {
				requireDenied(t, s, call("read", `{}`, exchange("2")),
					"shared state is not available", "shared")
			}
		}
		requireAllowed(t, s, call("other", `{}`))
		requireAllowed(t, s, result("tools/call", `{}`))
		state.Fail(nil)
		requireAllowed(t, s, call("read", `{}`, exchange("3")))
		if v := inspect(t, s, call("read", `{}`, exchange("4"))); v.Action != pipeline.Deny {
			t.Errorf("after the burst, got %+v", v)
		}
	})
}

// With parts, each replica counts for itself while the state is away, and the verdicts say so. What
// it has counted before counts for its part, too.
func TestWithoutTheStateReplicasAdmitTheirParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := sharedtest.NewFaulty(&shared.Memory{})
		all := newReplicas(t, 3, state, 3, `{"calls":[{"per":"tool","rate":60,"burst":7},`+
			`{"per":"tool","tools":["open"],"concurrent":7},{"per":"tool","tools":["one"],`+
			`"concurrent":2,"rate":60,"burst":2}]`+otherLimitsOff)
		requireAllowed(t, all[0], call("read", `{}`))
		requireAllowed(t, all[0], call("open", `{}`, exchange("open 1")))
		time.Sleep(time.Second) // a third of a message
		state.Fail(shared.ErrUnavailable)
		const away = "; shared state is not available, so this replica admits 1/3"
		requireAlone := func(s sdk.Stage, m *mcp.Message) {
			t.Helper()
			v := inspect(t, s, m)
			if v.Action != pipeline.Allow || len(v.Findings) != 1 ||
				v.Findings[0].Type != "unshared" ||
				v.Reason != "counted in this replica only: shared state is not available" {
				t.Errorf("got %+v, want that the message is allowed in this replica only", v)
			}
		}
		requireAlone(all[0], call("read", `{}`))
		requireDenied(t, all[0], call("read", `{}`), "calls[0]: limit of 60 messages per minute per "+
			"tool reached (burst 7); retry in 2s"+away, "rate")
		for range 2 {
			requireAlone(all[1], call("read", `{}`))
		}
		requireDenied(t, all[1], call("read", `{}`), "calls[0]: limit of 60 messages per minute per "+
			"tool reached (burst 7); retry in 3s"+away, "rate")
		requireAlone(all[0], call("open", `{}`, exchange("open 2")))
		time.Sleep(10 * time.Second)
		requireDenied(t, all[0], call("open", `{}`, exchange("open 3")),
			"calls[1]: limit of 7 open requests per tool reached"+away, "concurrency")
		requireAlone(all[0], call("one", `{}`)) // at least one
		requireDenied(t, all[0], call("one", `{}`, exchange("2")), "calls[2]: limit of 2 open "+
			"requests per tool reached"+away, "concurrency")
		time.Sleep(10 * time.Minute) // the counters are as new
		requireAlone(all[2], call("read", `{}`))
		state.Fail(nil)
		for range 7 {
			requireAllowed(t, all[2], call("write", `{}`))
		}
	})
}

// A counter is kept as long as it says what this replica may admit alone.
func TestPartsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := sharedtest.NewFaulty(&shared.Memory{})
		state.Fail(shared.ErrUnavailable)
		s := newReplicas(t, 1, state, 3, `{"calls":[{"per":"tool","rate":60,"burst":1}]`+
			otherLimitsOff)[0]
		bob := principalSession("bob", "s1")
		inspect(t, s, call("read", `{}`, bob))
		time.Sleep(59 * time.Second)
		inspect(t, s, call("read", `{}`))
		time.Sleep(1500 * time.Millisecond)
		inspect(t, s, call("read", `{}`, bob)) // a minute after the first one: counters are removed
		if v := inspect(t, s, call("read", `{}`)); v.Action != pipeline.Deny {
			t.Errorf("1.5s after a message, another one got %+v, want one in 3s", v)
		}
	})
}

// A state that was lost counts from zero. Each replica still knows what it has admitted itself, and
// no message is denied because of the loss.
func TestLostStateOfLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := sharedtest.NewFaulty(&shared.Memory{})
		all := newReplicas(t, 2, state, 0, `{"calls":[{"per":"tool","rate":1,"burst":2}]`+
			otherLimitsOff)
		requireAllowed(t, all[0], call("read", `{}`))
		requireAllowed(t, all[0], call("read", `{}`))
		state.Lose()
		requireAllowed(t, all[1], call("read", `{}`))
		if v := inspect(t, all[0], call("read", `{}`)); v.Action != pipeline.Deny {
			t.Errorf("the replica has forgotten what it admitted: %+v", v)
		}
	})
}

// A call whose answer was lost may hold a lease, which ends by its time. If the replica admits the
// call on its own, the lease ends with the call.
func TestLostAnswersOfTheState(t *testing.T) {
	for _, parts := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			memory := &shared.Memory{}
			lossy := &observed{Admitter: memory, calls: map[string]int{},
				after: func() error { return shared.ErrUnavailable }}
			config := `{"calls":[{"per":"tool","concurrent":1}]` + otherLimitsOff
			s := newReplicas(t, 1, lossy, parts, config)[0]
			other := newReplicas(t, 1, memory, parts, config)[0]
			if v := inspect(t, s, call("read", `{}`)); (v.Action == pipeline.Deny) != (parts == 0) {
				t.Errorf("%d parts: got %+v", parts, v)
			}
			const reason = "calls[0]: limit of 1 open requests per tool reached"
			requireDenied(t, other, call("read", `{}`), reason, "concurrency")
			if parts == 0 {
				time.Sleep(75 * time.Second)
			} else {
				requireAllowed(t, s, result("tools/call", `{}`))
			}
			requireAllowed(t, other, call("read", `{}`))
		})
	}
}

// Replicas with different rules count apart, and two equal rules are one.
func TestRulesInTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &shared.Memory{}
		rule := `{"per":"tool","rate":1,"burst":1}`
		stage := func(rules string) sdk.Stage {
			return newReplicas(t, 1, memory, 0, `{"calls":[`+rules+`]`+otherLimitsOff)[0]
		}
		requireAllowed(t, stage(rule+","+rule), call("read", `{}`))
		requireDenied(t, stage(`{"per":"tool","rate":9,"burst":9},`+rule), call("read", `{}`),
			"calls[1]: limit of 1 messages per minute per tool reached (burst 1); retry in 1m0s",
			"rate")
		for _, other := range []string{`{"per":"server","rate":1,"burst":1}`,
			`{"per":"tool","rate":2,"burst":1}`, `{"per":"tool","rate":1,"burst":2}`,
			`{"per":"tool","rate":1,"burst":1,"concurrent":1}`,
			`{"per":"tool","rate":1,"burst":1,"tools":["read"]}`,
			`{"per":"tool","rate":1,"burst":1,"except":["x"]}`,
			`{"per":"server","rate":1,"burst":1,"methods":["tools/call","prompts/get"]}`,
			`{"per":"principal","rate":1,"burst":1}`} {
			requireAllowed(t, stage(other), call("read", `{}`))
		}
		requireDenied(t, stage(rule), call(strings.Repeat("x", 17<<10), `{}`),
			"the message cannot be counted: shared state is full: the name of a limit has more "+
				"than 16384 bytes", "full")
	})
}

// A call that the client gives up while it is counted does not stay open, in no replica.
func TestCancelledWhileCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		state := &observed{Admitter: &shared.Memory{}, calls: map[string]int{}, before: cancel}
		all := newReplicas(t, 2, state, 0, `{"calls":[{"per":"tool","concurrent":1,"rate":1,`+
			`"burst":3}]`+otherLimitsOff)
		if v, err := all[0].Inspect(ctx, call("read", `{}`)); err == nil {
			t.Errorf("got %+v, want an error", v)
		}
		for _, s := range all {
			requireAllowed(t, s, call("read", `{}`, exchange("2")))
			requireAllowed(t, s, result("tools/call", `{}`, exchange("2")))
		}
	})
}

// What the state refuses counts in no replica: not for rates, nor as open, nor as a repeated call.
func TestRefusedMessagesDoNotCount(t *testing.T) {
	const rateReason = "calls[0]: limit of 60 messages per minute per tool reached (burst 3); " +
		"retry in 1s"
	const openReason = "calls[0]: limit of 3 open requests per tool reached"
	for name, test := range map[string]struct {
		rule, reason string
		after        func(t *testing.T, state *sharedtest.Faulty, s sdk.Stage)
	}{
		"rates": {`"rate":60,"burst":3`, rateReason,
			func(t *testing.T, state *sharedtest.Faulty, s sdk.Stage) {
				state.Lose()
				for i := range 3 {
					requireAllowed(t, s, call("read", `{}`, exchange(fmt.Sprint("a", i))))
				}
				requireDenied(t, s, call("read", `{}`), rateReason, "rate")
			}},
		"parts of rates": {`"rate":60,"burst":3`, rateReason,
			func(t *testing.T, state *sharedtest.Faulty, s sdk.Stage) {
				state.Fail(shared.ErrUnavailable)
				requireAllowed(t, s, call("read", `{}`))
				requireDenied(t, s, call("read", `{}`), "calls[0]: limit of 60 messages per minute "+
					"per tool reached (burst 3); retry in 3s; shared state is not available, so "+
					"this replica admits 1/3", "rate")
			}},
		"open calls": {`"concurrent":3`, openReason,
			func(t *testing.T, state *sharedtest.Faulty, s sdk.Stage) {
				state.Lose()
				for i := range 3 {
					requireAllowed(t, s, call("read", `{}`, exchange(fmt.Sprint("a", i))))
				}
				requireDenied(t, s, call("read", `{}`), openReason, "concurrency")
			}},
		"alone": {`"concurrent":3`, openReason,
			func(t *testing.T, state *sharedtest.Faulty, s sdk.Stage) {
				state.Fail(shared.ErrUnavailable)
				requireAllowed(t, s, call("read", `{}`, exchange("a")))
				requireDenied(t, s, call("read", `{}`), openReason+"; shared state is not "+
					"available, so this replica admits 1/3", "concurrency")
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state := sharedtest.NewFaulty(&shared.Memory{})
				all := newReplicas(t, 2, state, 3, `{"calls":[{"per":"tool",`+test.rule+`}],`+
					`"loop":{"flag":4,"same":5},"result":{"action":"off"}}`)
				for i := range 3 {
					requireAllowed(t, all[0], call("read", `{}`, exchange(fmt.Sprint(i))))
				}
				for i := range 9 {
					time.Sleep(time.Millisecond)
					findingType := map[bool]string{true: "rate", false: "concurrency"}[strings.
						Contains(test.rule, "rate")]
					requireDenied(t, all[1], call("read", `{}`, exchange(fmt.Sprint(i))),
						test.reason, findingType)
				}
				test.after(t, state, all[1])
			})
		})
	}
}

// A further round that the state refuses leaves the call open, with the lease that it has.
func TestRefusedFurtherRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &observed{Admitter: &shared.Memory{}, calls: map[string]int{}}
		all := newReplicas(t, 2, state, 0, `{"calls":[{"per":"tool","concurrent":5,"rate":1,`+
			`"burst":3}],"timeout":"20s"`+otherLimitsOff)
		requireAllowed(t, all[0], call("read", `{}`))
		for i := range 2 {
			requireAllowed(t, all[1], call("read", `{}`, exchange(fmt.Sprint("a", i))))
		}
		time.Sleep(4 * time.Second)
		requireDenied(t, all[0], call("read", `{}`), "calls[0]: limit of 1 messages per minute per "+
			"tool reached (burst 3); retry in 56s", "rate")
		time.Sleep(time.Second + 1) // a quarter of the time since the first round
		state.took()
		requireAllowed(t, all[0], notification("notifications/progress", mcp.ToClient))
		if got := state.took(); got != "admit 0 release 0 renew 1" {
			t.Errorf("progress takes the calls %q, want a renewal", got)
		}
		requireAllowed(t, all[0], result("tools/call", `{}`))
		if got := state.took(); got != "admit 0 release 1 renew 0" {
			t.Errorf("the answer takes the calls %q, want a release", got)
		}
	})
}

// A call that was closed or forgotten while it is counted can be taken back as well.
func TestTakeBackWhatIsClosed(t *testing.T) {
	for name, meanwhile := range map[string]*mcp.Message{
		"closed":    notification("notifications/cancelled", mcp.ToServer),
		"forgotten": call("read", `{}`, principalSession("bob", "s1")), // after an hour
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faulty := sharedtest.NewFaulty(&shared.Memory{})
				state := &observed{Admitter: faulty, calls: map[string]int{}}
				s := newReplicas(t, 1, state, 0, `{"calls":[{"per":"tool","rate":60,"burst":2,`+
					`"concurrent":1}],"loop":{"flag":4,"same":5},"result":{"action":"off"}}`)[0]
				state.before = func() {
					if state.before = nil; name == "forgotten" {
						time.Sleep(time.Hour)
					}
					faulty.Fail(fmt.Errorf("%w: x", shared.ErrFull))
					inspect(t, s, meanwhile)
				}
				requireDenied(t, s, call("read", `{}`), "the message cannot be counted: shared "+
					"state is full: x", "full")
				faulty.Fail(nil)
				for i := range 2 {
					requireAllowed(t, s, call("read", `{}`, exchange(fmt.Sprint("a", i))))
					requireAllowed(t, s, result("tools/call", `{}`, exchange(fmt.Sprint("a", i))))
				}
			})
		})
	}
}

// A notification that is counted gets the verdict on its size, unless it is refused.
func TestNotificationsInTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := sharedtest.NewFaulty(&shared.Memory{})
		rule := `{"calls":[{"per":"server","methods":["notifications/tasks"],"rate":60,"burst":2}],` +
			`"loop":{"action":"off"},"result":{"bytes":1000,"action":"deny"}}`
		all := newReplicas(t, 2, state, 1, rule)
		small := notification("notifications/tasks", mcp.ToClient)
		large := mcp.NewNotification("notifications/tasks", []byte(`{"taskId":"t","result":{`+
			`"content":[{"type":"text","text":"`+strings.Repeat("x", 2000)+`"}]}}`))
		large.Direction = mcp.ToClient
		withFields(large, nil)
		requireAllowed(t, all[0], small)
		if v := inspect(t, all[0], large); v.Action != pipeline.Deny || v.Reason == "" {
			t.Errorf("a large notification: got %+v", v)
		}
		requireDenied(t, all[1], small, "calls[0]: limit of 60 messages per minute per server "+
			"reached (burst 2); retry in 1s", "rate")
		state.Fail(shared.ErrUnavailable)
		requireAllowed(t, all[1], small)
		if v := inspect(t, all[1], large); v.Action != pipeline.Deny ||
			strings.Contains(v.Reason, "calls[0]") {
			t.Errorf("a large notification without the state: got %+v", v)
		}
	})
}

// Equal calls that are counted at the same time make a loop, too. The one that is denied costs no
// call of the state.
func TestLoopWhileCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		state := &observed{Admitter: &shared.Memory{}, calls: map[string]int{}}
		s := newReplicas(t, 1, state, 0, `{"calls":[{"per":"tool","concurrent":10}],`+
			`"loop":{"flag":1,"same":1},"result":{"action":"off"}}`)[0]
		state.before = func() { <-release }
		var denied atomic.Int64
		var callers sync.WaitGroup
		for i := range 2 {
			callers.Go(func() {
				v, err := s.Inspect(t.Context(), call("read", `{}`, exchange(fmt.Sprint(i))))
				if err != nil {
					t.Error(err)
				}
				if v.Action == pipeline.Deny {
					denied.Add(1)
				}
			})
			synctest.Wait()
		}
		close(release)
		callers.Wait()
		if got := state.took(); denied.Load() != 1 || got != "admit 1 release 0 renew 0" {
			t.Errorf("%d of two equal calls are denied after the calls %q, want 1 and one call",
				denied.Load(), got)
		}
	})
}
