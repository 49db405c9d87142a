package proxy_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/stop"
)

// openStoppable is open with a gate, which lets everything pass.
func openStoppable(t *testing.T, servers map[string]*fakeServer) (*fixture, *stop.Gate) {
	t.Helper()
	gate := new(stop.Gate)
	gate.Set(nil)
	var w *fixture
	record := &memoryRecorder{}
	w = open(t, servers, func(o *proxy.Options) {
		o.Pipeline = pipeline.New(record, pipeline.Options{Stops: gate})
	})
	w.record = record
	return w, gate
}

func stopOf(scope stop.Scope) stop.Stop {
	return stop.Stop{Scope: scope, At: time.Unix(1, 0), By: "user id 7", Reason: "harm"}
}

const stoppedText = "!-31000 stopped by an operator (user id 7): do not try again"

// A stop may begin after a request was read, and before its call runs. The call has an answer.
func TestStopBetweenBeginAndRun(t *testing.T) {
	asked := false
	w, gate := openStoppable(t, map[string]*fakeServer{"box": {answer: func(context.Context,
		*mcp.Message, proxy.Handler) string {
		asked = true
		return `{}`
	}}})
	call := w.session.Begin(request(t, "7", "tools/call", `{"name":"box__x"}`), w.client)
	s := stopOf(stop.Scope{})
	gate.Set([]stop.Stop{s})
	if ended := w.proxy.EndStopped(s); ended != 1 {
		t.Errorf("the stop ended %d calls, want 1", ended)
	}
	if got := answerText(t, "7", call.Run(t.Context())); !strings.HasPrefix(got, stoppedText) {
		t.Errorf("the call got %s, want the error of the stop", got)
	}
	if asked {
		t.Error("the server got the call")
	}
}

// A call that waits for its server ends with a stop that covers it, and with no other stop.
func TestStopEndsCallsInFlight(t *testing.T) {
	for _, test := range []struct {
		scope stop.Scope
		ends  bool
	}{
		{stop.Scope{}, true},
		{stop.Scope{Server: "box"}, true},
		{stop.Scope{Session: "s"}, true},
		{stop.Scope{Principal: "p"}, true},
		{stop.Scope{Server: "box", Session: "s", Principal: "p"}, true},
		{stop.Scope{Server: "other"}, false},
		{stop.Scope{Session: "t"}, false},
		{stop.Scope{Principal: "q"}, false},
		{stop.Scope{Server: "box", Session: "t"}, false},
	} {
		t.Run(test.scope.String(), func(t *testing.T) {
			running, release := make(chan struct{}), make(chan struct{})
			var cause error
			w, gate := openStoppable(t, map[string]*fakeServer{"box": {answer: func(
				ctx context.Context, _ *mcp.Message, _ proxy.Handler) string {
				close(running)
				select {
				case <-ctx.Done():
					cause = context.Cause(ctx)
				case <-release:
				}
				return `{"done":true}`
			}}})
			answer := make(chan string, 1)
			go func() { answer <- w.call(t, "tools/call", `{"name":"box__x"}`) }()
			<-running
			s := stopOf(test.scope)
			gate.Set([]stop.Stop{s})
			ended := w.proxy.EndStopped(s)
			if !test.ends {
				close(release)
			}
			got := <-answer
			if test.ends != (ended == 1) || test.ends != strings.HasPrefix(got, stoppedText) ||
				test.ends != (cause != nil) {
				t.Errorf("the stop ended %d calls; the call got %s; the server's context ended "+
					"with %v", ended, got, cause)
			}
		})
	}
}

// A list of several servers goes on without the stopped one.
func TestStopOfOneServerLeavesOthers(t *testing.T) {
	tools := func(name string) *fakeServer {
		return &fakeServer{answer: fixedResults(map[string]string{
			"tools/list": `{"tools":[{"name":"` + name + `"}]}`, "tools/call": `{"content":[]}`})}
	}
	w, gate := openStoppable(t, map[string]*fakeServer{"box": tools("a"), "other": tools("b")})
	s := stopOf(stop.Scope{Server: "box"})
	gate.Set([]stop.Stop{s})
	w.proxy.EndStopped(s)
	if got := w.call(t, "tools/list", `{}`); strings.Contains(got, "box__a") ||
		!strings.Contains(got, "other__b") {
		t.Errorf("the list is %s, want the tools of the other server", got)
	}
	if got := w.call(t, "tools/call", `{"name":"box__a"}`); !strings.HasPrefix(got, stoppedText) {
		t.Errorf("the call of the stopped server got %s", got)
	}
	gate.Set(nil)
	w.proxy.Resumed(s)
	if got := w.call(t, "tools/call", `{"name":"box__a"}`); got != `{"content":[]}` {
		t.Errorf("after the resume, the call got %s", got)
	}
}

// The initialize of a server that is stopped at that time is repeated after the resume.
func TestStoppedInitializeIsRepeated(t *testing.T) {
	tools := func() *fakeServer {
		return &fakeServer{answer: fixedResults(map[string]string{
			"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},` +
				`"serverInfo":{"name":"x","version":"1"}}`,
			"tools/call": `{"content":[]}`})}
	}
	w, gate := openStoppable(t, map[string]*fakeServer{"box": tools(), "other": tools()})
	s := stopOf(stop.Scope{Server: "box"})
	gate.Set([]stop.Stop{s})
	if got := w.call(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},`+
		`"clientInfo":{"name":"c","version":"1"}}`); strings.HasPrefix(got, "!") {
		t.Fatalf("initialize got %s", got)
	}
	w.session.Notify(t.Context(), notification(t, "notifications/initialized", `{}`))
	if got := w.call(t, "tools/call", `{"name":"box__a"}`); !strings.HasPrefix(got, stoppedText) {
		t.Errorf("the call of the stopped server got %s", got)
	}
	gate.Set(nil)
	w.proxy.Resumed(s)
	if got := w.call(t, "tools/call", `{"name":"box__a"}`); got != `{"content":[]}` {
		t.Errorf("after the resume, the call got %s", got)
	}
}
