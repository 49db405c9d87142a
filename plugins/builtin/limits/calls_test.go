package limits_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

const otherLimitsOff = `,"loop":{"action":"off"},"result":{"action":"off"}}`

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"tool","rate":60,"burst":3}]`+otherLimitsOff)
		reason := "calls[0]: limit of 60 messages per minute per tool reached (burst 3); retry " +
			"in 1s"
		for range 3 {
			requireAllowed(t, s, call("read", `{}`))
		}
		requireDenied(t, s, call("read", `{}`), reason, "rate")
		requireAllowed(t, s, call("write", `{}`))
		requireAllowed(t, s, call("read", `{}`, server("other")))
		requireAllowed(t, s, call("read", `{}`, principalSession("bob", "s1")))
		requireDenied(t, s, call("read", `{}`, principalSession("", "s2")), reason, "rate")
		time.Sleep(time.Second)
		requireAllowed(t, s, call("read", `{}`))
		requireDenied(t, s, call("read", `{}`), reason, "rate")
		time.Sleep(time.Minute)
		for range 3 {
			requireAllowed(t, s, call("read", `{}`))
		}
	})
}

// Without burst, a sixth of the rate may be used at once.
func TestDefaultBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for rate, burst := range map[int]int{1: 1, 6: 1, 7: 2, 60: 10} {
			s := newStage(t, fmt.Sprintf(`{"calls":[{"per":"tool","rate":%d}]`+otherLimitsOff,
				rate))
			for range burst {
				requireAllowed(t, s, call("read", `{}`))
			}
			if v := inspect(t, s, call("read", `{}`)); v.Action != pipeline.Deny {
				t.Errorf("rate %d: the call after %d calls got the action %d, want deny", rate,
					burst, v.Action)
			}
		}
	})
}

func TestTimeUntilRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"tool","rate":60,"burst":1}]`+otherLimitsOff)
		requireAllowed(t, s, call("read", `{}`))
		time.Sleep(300 * time.Millisecond)
		requireDenied(t, s, call("read", `{}`),
			"calls[0]: limit of 60 messages per minute per tool reached (burst 1); retry in 700ms",
			"rate")
	})
}

// Only calls that a rule counts as open use up the room for open requests.
func TestOpenRequestsAreLimitedPerPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"tool","tools":["slow*"],"concurrent":4096},`+
			`{"per":"tool","tools":["fast"],"rate":600000,"burst":10000}],"timeout":"1h"`+
			otherLimitsOff)
		for i := range 4096 {
			requireAllowed(t, s, call("fast", `{}`, exchange(fmt.Sprint("fast", i))))
		}
		for i := range 4096 {
			requireAllowed(t, s, call(fmt.Sprint("slow", i%2), `{}`, exchange(fmt.Sprint(i))))
		}
		requireDenied(t, s, call("slow0", `{}`, exchange("one more")),
			"the message cannot be counted: more than 4096 open requests", "full")
		requireAllowed(t, s, call("fast", `{}`, exchange("one more")))
		requireAllowed(t, s, call("slow1", `{}`, exchange("7"))) // a further round
	})
}

func TestDeniedCallIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"principal","rate":6,"burst":2},{"per":"tool","tools":["w*"],"except":["walk"],"rate":6,"burst":1}]`+otherLimitsOff)
		requireAllowed(t, s, call("write", `{}`))
		for range 5 {
			requireDenied(t, s, call("write", `{}`),
				"calls[1]: limit of 6 messages per minute per tool reached (burst 1); retry in 10s",
				"rate")
		}
		requireAllowed(t, s, call("walk", `{}`))
		requireDenied(t, s, call("read", `{}`),
			"calls[0]: limit of 6 messages per minute per principal reached (burst 2); "+
				"retry in 10s",
			"rate")
	})
}

func TestServerRequestsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"server","methods":["sampling/createMessage","elicitation/create","notifications/message"],"rate":60,"burst":2}]`+otherLimitsOff)
		requireAllowed(t, s, serverRequest("sampling/createMessage"))
		requireAllowed(t, s, serverRequest("elicitation/create"))
		requireDenied(t, s, serverRequest("sampling/createMessage"),
			"calls[0]: limit of 60 messages per minute per server reached (burst 2); retry in 1s",
			"rate")
		requireDenied(t, s, notification("notifications/message", mcp.ToClient),
			"calls[0]: limit of 60 messages per minute per server reached (burst 2); retry in 1s",
			"rate")
		requireAllowed(t, s, serverRequest("sampling/createMessage", server("other")))
		requireAllowed(t, s, serverRequest("roots/list"))
		requireAllowed(t, s, call("read", `{}`))
	})
}

func TestConcurrencyLimit(t *testing.T) {
	const config = `{"calls":[{"per":"tool","concurrent":2}],"timeout":"60s"` + otherLimitsOff
	withTwoOpen := func(t *testing.T, run func(s sdk.Stage)) {
		t.Helper()
		s := newStage(t, config)
		requireAllowed(t, s, call("read", `{}`, exchange("1")))
		requireAllowed(t, s, call("read", `{}`, exchange("2")))
		requireDenied(t, s, call("read", `{}`, exchange("3")),
			"calls[0]: limit of 2 open requests per tool reached", "concurrency")
		run(s)
	}
	isFull := func(t *testing.T, s sdk.Stage) {
		t.Helper()
		requireDenied(t, s, call("read", `{}`, exchange("99")),
			"calls[0]: limit of 2 open requests per tool reached", "concurrency")
	}
	hasRoom := func(t *testing.T, s sdk.Stage) {
		t.Helper()
		requireAllowed(t, s, call("read", `{}`, exchange("98")))
	}
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s sdk.Stage)
	}{
		{"a response closes the call", func(t *testing.T, s sdk.Stage) {
			requireAllowed(t, s, result("tools/call", `{"content":[]}`, exchange("1")))
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"an error closes the call", func(t *testing.T, s sdk.Stage) {
			requireAllowed(t, s, errorResponse(`{"code":1,"message":"no"}`, exchange("2")))
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"a second response has no effect", func(t *testing.T, s sdk.Stage) {
			requireAllowed(t, s, result("tools/call", `{}`, exchange("1")))
			requireAllowed(t, s, result("tools/call", `{}`, exchange("1")))
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"a response to another call has no effect", func(t *testing.T, s sdk.Stage) {
			requireAllowed(t, s, result("tools/call", `{}`, exchange("3")))
			requireAllowed(t, s, result("tools/call", `{}`, exchange("1"), principalSession("",
				"s2")))
			requireAllowed(t, s, result("tools/call", `{}`, exchange("1"), principalSession("bob",
				"s1")))
			isFull(t, s)
		}},
		{"a cancelled call is closed", func(t *testing.T, s sdk.Stage) {
			requireAllowed(t, s, notification("notifications/cancelled", mcp.ToServer,
				exchange("1")))
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"a server cannot cancel a call", func(t *testing.T, s sdk.Stage) {
			requireAllowed(t, s, notification("notifications/cancelled", mcp.ToClient,
				exchange("1")))
			isFull(t, s)
		}},
		{"a call without a response expires", func(t *testing.T, s sdk.Stage) {
			time.Sleep(59 * time.Second)
			isFull(t, s)
			time.Sleep(time.Second)
			hasRoom(t, s)
			requireAllowed(t, s, call("read", `{}`, exchange("97")))
			isFull(t, s)
		}},
		{"progress keeps a call open", func(t *testing.T, s sdk.Stage) {
			for range 5 {
				time.Sleep(50 * time.Second)
				requireAllowed(t, s, notification("notifications/progress", mcp.ToClient,
					exchange("1")))
			}
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"a question to the client keeps a call open", func(t *testing.T, s sdk.Stage) {
			requireAllowed(t, s, serverRequest("elicitation/create", exchange("1")))
			requireAllowed(t, s, serverRequest("elicitation/create", exchange("2")))
			time.Sleep(9 * time.Minute)
			isFull(t, s)
			answer := result("elicitation/create", `{"action":"accept"}`, exchange("1"))
			answer.Direction = mcp.ToServer
			requireAllowed(t, s, answer)
			time.Sleep(time.Minute)
			hasRoom(t, s)
		}},
		{"a further round of a call is the same open call", func(t *testing.T, s sdk.Stage) {
			requireAllowed(t, s, call("read", `{}`, exchange("2")))
			requireAllowed(t, s, result("tools/call", `{}`, exchange("2")))
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"other tools and principals have counters of their own", func(t *testing.T, s sdk.Stage) {
			requireAllowed(t, s, call("write", `{}`, exchange("4")))
			requireAllowed(t, s, call("read", `{}`, exchange("5"), principalSession("bob", "s1")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				withTwoOpen(t,
					func(s sdk.Stage) { c.run(t, s) })
			})
		})
	}
}

// A principal that names many tools uses up only its own counters. A counter that allows its full
// burst again is removed.
func TestCountersAreLimitedPerPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"tool","rate":60,"burst":2}]`+otherLimitsOff)
		for i := range 1024 {
			requireAllowed(t, s, call(fmt.Sprint("tool", i), `{}`))
		}
		requireDenied(t, s, call("another", `{}`),
			"the message cannot be counted: more than 1024 tools and servers at once", "full")
		requireAllowed(t, s, call("tool7", `{}`))
		requireAllowed(t, s, call("another", `{}`, principalSession("bob", "s1")))
		time.Sleep(time.Second)
		requireAllowed(t, s, call("another", `{}`))
		requireAllowed(t, s, call("tool7", `{}`))
		requireDenied(t, s, call("tool7", `{}`),
			"calls[0]: limit of 60 messages per minute per tool reached (burst 2); retry in 1s",
			"rate")
	})
}

// To make room for the counter of a new tool, the principal's counter is removed, which allows its
// full burst again. But the message needs this counter, too.
func TestRemovedCountersOfTheMessageNeedRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"principal","rate":60000,"burst":2000},`+
			`{"per":"tool","rate":1,"burst":1}]`+otherLimitsOff)
		for i := range 1023 {
			requireAllowed(t, s, call(fmt.Sprint("tool", i), `{}`))
		}
		time.Sleep(30 * time.Second)
		requireDenied(t, s, call("another", `{}`),
			"the message cannot be counted: more than 1024 tools and servers at once", "full")
	})
}

// A further round of an expired call opens the call again, also if the call was closed to make room
// for the counter of this round.
func TestRoundOfAnExpiredCallOpensIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"tool","concurrent":1}],"timeout":"10s"`+otherLimitsOff)
		for i := range 1024 {
			requireAllowed(t, s, call(fmt.Sprint("tool", i), `{}`, exchange(fmt.Sprint(i))))
		}
		time.Sleep(10 * time.Second)
		requireAllowed(t, s, call("tool7", `{}`, exchange("7")))
		requireDenied(t, s, call("tool7", `{}`, exchange("other")),
			"calls[0]: limit of 1 open requests per tool reached", "concurrency")
		requireAllowed(t, s, call("another", `{}`, exchange("1")))
		requireDenied(t, s, call("another", `{}`, exchange("2")),
			"calls[0]: limit of 1 open requests per tool reached", "concurrency")
	})
}

// When the counters of a principal are full, they are searched for unused ones at most once a
// second.
func TestFullCountersAreSweptOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"tool","rate":6000,"burst":1}]`+otherLimitsOff)
		const reason = "the message cannot be counted: more than 1024 tools and servers at once"
		for range 2 {
			for i := range 1024 {
				requireAllowed(t, s, call(fmt.Sprint("tool", i), `{}`))
			}
			requireDenied(t, s, call("another", `{}`), reason, "full")
			time.Sleep(999 * time.Millisecond)
			requireDenied(t, s, call("another", `{}`), reason, "full")
			time.Sleep(time.Millisecond)
		}
		requireAllowed(t, s, call("another", `{}`))
	})
}

func TestConcurrentCallsDoNotExceedTheLimit(t *testing.T) {
	s := newStage(t, `{"calls":[{"per":"tool","rate":1,"burst":50,"concurrent":20}]`+otherLimitsOff)
	var passed atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			v, err := s.Inspect(t.Context(), call("read", `{}`, exchange(fmt.Sprint(i))))
			if err != nil {
				t.Errorf("inspect: %v", err)
			}
			if v.Action == pipeline.Allow {
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	if n := passed.Load(); n != 20 {
		t.Errorf("%d calls passed, want 20", n)
	}
}
