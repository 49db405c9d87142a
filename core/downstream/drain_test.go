package downstream_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/test/downstreamtest"
)

// TestEndSessionsLosesNoCall ends the sessions while one of them has a call in flight. This session
// is served until its last call is answered. The clients of ended sessions are told to initialize
// again, and those of modern requests notice nothing.
func TestEndSessionsLosesNoCall(t *testing.T) {
	var answers chan string // made in the bubble of the test
	s := &downstreamtest.Server{Answer: func(_ context.Context, m *mcp.Message,
		_ proxy.Handler) string {
		if m.TextEquals("/name", "slow") {
			return <-answers
		}
		return `{}`
	}}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		answers = make(chan string)
		idle, busy, late := w.HTTPClient("ann"), w.HTTPClient("bob"), w.HTTPClient("eve")
		idle.Initialize(t, mcp.Rev20251125)
		busy.Initialize(t, mcp.Rev20251125)
		stream := idle.Begin(t, idle.Endpoint.Get, "")
		slow := busy.Begin(t, busy.Endpoint.Post, downstreamtest.Request(1, "tools/call",
			`{"name":"slow"}`))
		synctest.Wait()

		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Endpoint.EndSessions(context.Background())
		}()
		synctest.Wait()
		<-stream.Done
		downstreamtest.ContainsText(t, "the stream of the idle session", stream.Text(), "EOF")
		call := downstreamtest.Request(2, "tools/call", `{"name":"quick"}`)
		downstreamtest.Equal(t, "a call of the idle session", idle.Post(t, call),
			`404 {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"no such session: send initialize"}}`)
		downstreamtest.Equal(t, "a call of the busy session", busy.Post(t, call),
			`200 {"jsonrpc":"2.0","id":2,"result":{}}`)
		x := late.Begin(t, late.Endpoint.Post, downstreamtest.Initialize(mcp.Rev20251125))
		<-x.Done
		downstreamtest.Equal(t, "a new session", x.Text(),
			`503 {"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"gatekit is shutting down, and nothing was run: send initialize again"}}`)
		downstreamtest.Equal(t, "Retry-After of a new session", x.Header.Get("Retry-After"), "1")
		x = late.BeginModern(t, "tools/call", "quick", downstreamtest.ModernRequest(3, "tools/call",
			`"name":"quick"`))
		<-x.Done
		downstreamtest.ContainsText(t, "a modern call", x.Text(), `200 {"jsonrpc":"2.0","id":3,`)
		select {
		case <-ended:
			t.Error("EndSessions returned before the call in flight was answered")
		default:
		}

		answers <- `{"slow":true}`
		<-slow.Done
		downstreamtest.ContainsText(t, "the call in flight", slow.Text(),
			`{"jsonrpc":"2.0","id":1,"result":{"slow":true}}`)
		<-ended
		downstreamtest.ContainsText(t, "the busy session, when it is idle", busy.Post(t, call),
			"404 ")
	})
}

// TestEndSessionsEndsWithItsContext has a call that does not end in time.
func TestEndSessionsEndsWithItsContext(t *testing.T) {
	s := &downstreamtest.Server{Answer: waitForCancel}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		c := w.HTTPClient("ann")
		c.Initialize(t, mcp.Rev20251125)
		c.Begin(t, c.Endpoint.Post, downstreamtest.Request(1, "tools/call", `{"name":"x"}`))
		synctest.Wait()
		const wait = 10 * time.Second // less than the call may take
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		begun := time.Now()
		w.Endpoint.EndSessions(ctx)
		if waited := time.Since(begun); waited != wait {
			t.Errorf("EndSessions waited %s, want the %s of its context", waited, wait)
		}
		if n := w.Endpoint.Drain(ctx); n != 1 {
			t.Errorf("Drain ended %d calls, want the one in flight", n)
		}
	})
}
