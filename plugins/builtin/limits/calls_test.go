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

const noMore = `,"loop":{"action":"off"},"result":{"action":"off"}}`

func TestARateIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"tool","rate":60,"burst":3}]`+noMore)
		why := "calls[0]: more than 60 a minute per tool (burst 3), the next in 1s"
		for range 3 {
			passes(t, s, call("read", `{}`))
		}
		refuses(t, s, call("read", `{}`), why, "rate")
		passes(t, s, call("write", `{}`))
		passes(t, s, call("read", `{}`, at("other")))
		passes(t, s, call("read", `{}`, from("bob", "s1")))
		refuses(t, s, call("read", `{}`, from("", "s2")), why, "rate")
		time.Sleep(time.Second)
		passes(t, s, call("read", `{}`))
		refuses(t, s, call("read", `{}`), why, "rate")
		time.Sleep(time.Minute)
		for range 3 {
			passes(t, s, call("read", `{}`))
		}
	})
}

func TestARefusedCallCountsNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"principal","rate":6,"burst":2},{"per":"tool","tools":["w*"],"except":["walk"],"rate":6,"burst":1}]`+noMore)
		passes(t, s, call("write", `{}`))
		for range 5 {
			refuses(t, s, call("write", `{}`),
				"calls[1]: more than 6 a minute per tool (burst 1), the next in 10s", "rate")
		}
		passes(t, s, call("walk", `{}`))
		refuses(t, s, call("read", `{}`),
			"calls[0]: more than 6 a minute per principal (burst 2), the next in 10s", "rate")
	})
}

func TestWhatServersAskIsLimitedPerServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"server","methods":["sampling/createMessage","elicitation/create","notifications/message"],"rate":60,"burst":2}]`+noMore)
		passes(t, s, ask("sampling/createMessage"))
		passes(t, s, ask("elicitation/create"))
		refuses(t, s, ask("sampling/createMessage"),
			"calls[0]: more than 60 a minute per server (burst 2), the next in 1s", "rate")
		refuses(t, s, notify("notifications/message", mcp.ToClient),
			"calls[0]: more than 60 a minute per server (burst 2), the next in 1s", "rate")
		passes(t, s, ask("sampling/createMessage", at("other")))
		passes(t, s, ask("roots/list"))
		passes(t, s, call("read", `{}`))
	})
}

func TestCallsAtOnce(t *testing.T) {
	const config = `{"calls":[{"per":"tool","concurrent":2}],"timeout":"60s"` + noMore
	full := func(t *testing.T, open func(s sdk.Stage)) {
		t.Helper()
		s := newStage(t, config)
		passes(t, s, call("read", `{}`, in("1")))
		passes(t, s, call("read", `{}`, in("2")))
		refuses(t, s, call("read", `{}`, in("3")),
			"calls[0]: 2 are open per tool, as many as may be", "concurrency")
		open(s)
	}
	isFull := func(t *testing.T, s sdk.Stage) {
		t.Helper()
		refuses(t, s, call("read", `{}`, in("99")),
			"calls[0]: 2 are open per tool, as many as may be", "concurrency")
	}
	hasRoom := func(t *testing.T, s sdk.Stage) {
		t.Helper()
		passes(t, s, call("read", `{}`, in("98")))
	}
	for _, c := range []struct {
		name string
		open func(t *testing.T, s sdk.Stage)
	}{
		{"an answer makes room", func(t *testing.T, s sdk.Stage) {
			passes(t, s, result("tools/call", `{"content":[]}`, in("1")))
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"so does an error", func(t *testing.T, s sdk.Stage) {
			passes(t, s, failed(`{"code":1,"message":"no"}`, in("2")))
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"an answer counts once", func(t *testing.T, s sdk.Stage) {
			passes(t, s, result("tools/call", `{}`, in("1")))
			passes(t, s, result("tools/call", `{}`, in("1")))
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"an answer to nobody makes none", func(t *testing.T, s sdk.Stage) {
			passes(t, s, result("tools/call", `{}`, in("3")))
			passes(t, s, result("tools/call", `{}`, in("1"), from("", "s2")))
			passes(t, s, result("tools/call", `{}`, in("1"), from("bob", "s1")))
			isFull(t, s)
		}},
		{"a cancelled call is over", func(t *testing.T, s sdk.Stage) {
			passes(t, s, notify("notifications/cancelled", mcp.ToServer, in("1")))
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"a server cannot cancel it", func(t *testing.T, s sdk.Stage) {
			passes(t, s, notify("notifications/cancelled", mcp.ToClient, in("1")))
			isFull(t, s)
		}},
		{"an answer that never comes is not waited for", func(t *testing.T, s sdk.Stage) {
			time.Sleep(59 * time.Second)
			isFull(t, s)
			time.Sleep(time.Second)
			hasRoom(t, s)
			passes(t, s, call("read", `{}`, in("97")))
			isFull(t, s)
		}},
		{"progress is a sign of life", func(t *testing.T, s sdk.Stage) {
			for range 5 {
				time.Sleep(50 * time.Second)
				passes(t, s, notify("notifications/progress", mcp.ToClient, in("1")))
			}
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"a client takes its time to answer a question", func(t *testing.T, s sdk.Stage) {
			passes(t, s, ask("elicitation/create", in("1")))
			passes(t, s, ask("elicitation/create", in("2")))
			time.Sleep(9 * time.Minute)
			isFull(t, s)
			answer := result("elicitation/create", `{"action":"accept"}`, in("1"))
			answer.Direction = mcp.ToServer
			passes(t, s, answer)
			time.Sleep(time.Minute)
			hasRoom(t, s)
		}},
		{"the next round of a call takes no other place", func(t *testing.T, s sdk.Stage) {
			passes(t, s, call("read", `{}`, in("2")))
			passes(t, s, result("tools/call", `{}`, in("2")))
			hasRoom(t, s)
			isFull(t, s)
		}},
		{"other tools have places of their own", func(t *testing.T, s sdk.Stage) {
			passes(t, s, call("write", `{}`, in("4")))
			passes(t, s, call("read", `{}`, in("5"), from("bob", "s1")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { full(t, func(s sdk.Stage) { c.open(t, s) }) })
		})
	}
}

// One principal can name as many tools as it likes. It fills its own ledger, and nobody else's, and
// what has come to rest makes room.
func TestOnePrincipalFillsNobodyElsesLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"tool","rate":60,"burst":2}]`+noMore)
		for i := range 1024 {
			passes(t, s, call(fmt.Sprint("tool", i), `{}`))
		}
		refuses(t, s, call("another", `{}`),
			"not counted: more than 1024 tools and servers at once", "full")
		passes(t, s, call("tool7", `{}`))
		passes(t, s, call("another", `{}`, from("bob", "s1")))
		time.Sleep(time.Second)
		passes(t, s, call("another", `{}`))
		passes(t, s, call("tool7", `{}`))
		refuses(t, s, call("tool7", `{}`),
			"calls[0]: more than 60 a minute per tool (burst 2), the next in 1s", "rate")
	})
}

func TestCallsFromManyGoroutinesAreCountedOnce(t *testing.T) {
	s := newStage(t, `{"calls":[{"per":"tool","rate":1,"burst":50,"concurrent":20}]`+noMore)
	var passed atomic.Int64
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			v, err := s.Inspect(t.Context(), call("read", `{}`, in(fmt.Sprint(i))))
			if err != nil {
				t.Errorf("inspect: %v", err)
			}
			if v.Action == pipeline.Allow {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if n := passed.Load(); n != 20 {
		t.Errorf("%d calls passed, want 20", n)
	}
}
