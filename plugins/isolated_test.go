package plugins_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"gatekit/core/mcp"
	"gatekit/plugins"
)

// instruct returns a request to a server. Messages with another number have another body.
func instruct(server, instruction string, number int) *mcp.Message {
	m := mcp.NewRequest("1", "tools/call", fmt.Appendf(nil, `{"name":"x","do":%q,"n":%d}`,
		instruction, number))
	m.Direction, m.Server, m.Name = mcp.ToServer, server, "x"
	return m
}

// A message that ends the process is sent again to a process in which it is alone. If it ends this
// process, too, it is denied. The other messages that were in flight are inspected.
func TestMessageThatEndsTheProcessIsRetriedAlone(t *testing.T) {
	h := startHost(t, programSpec("scripted", "scripted"))
	var wg sync.WaitGroup
	for i := range 8 { // in flight when the process ends
		wg.Go(func() {
			if _, err := h.pass(instruct("b", "wait", i)); err != nil {
				t.Errorf("a message in flight: %v", err)
			}
		})
	}
	_, err := h.pass(instruct("a", "wait and die", 0))
	if d := requireDenied(t, err); !strings.Contains(fmt.Sprint(d.Err), "killed") {
		t.Errorf("the message is denied because of %v, want the end of the process", d.Err)
	}
	wg.Wait()
	h.waitForEvent("scripted plugin_restarted", 1)
	if n := h.eventCount("scripted plugin_lost"); n != 2 {
		t.Errorf("%d processes were lost, want the main one and the isolated one", n)
	}
	if !h.log.has(`msg="plugin ended by a message" plugin=scripted server=a`) {
		t.Error("the log does not have the server of the message")
	}
	// The same message is not sent to the plugin again. As a message of another origin, it is.
	_, err = h.pass(instruct("a", "wait and die", 0))
	want := "not asked: the same message has ended the plugin's process before"
	if d := requireDenied(t, err); !strings.Contains(fmt.Sprint(d.Err), want) {
		t.Errorf("the same message is denied because of %v, want %q", d.Err, want)
	}
	if n := h.eventCount("scripted plugin_lost"); n != 2 {
		t.Errorf("%d processes were lost after the same message, want 2", n)
	}
	for _, server := range []string{"a", "b"} {
		if _, err := h.pass(instruct(server, "good", 1)); err != nil {
			t.Errorf("another message to the server %s: %v", server, err)
		}
	}
	if s := h.host.Status()[0]; s.Starts != 2 || !s.Running {
		t.Errorf("the status is %+v, want a process that was started twice", s)
	}
}

// An origin whose messages end one process after another is refused for a time.
// Other messages are inspected all the time, also answers of the same server.
func TestOriginThatEndsProcessesIsRefused(t *testing.T) {
	h := startHost(t, programSpec("scripted", "scripted"))
	neighbours := func() {
		t.Helper()
		response := mcp.NewResponse("1", []byte(`{"do":"good"}`))
		response.Direction, response.Server, response.Method = mcp.ToClient, "a", "tools/call"
		for _, m := range []*mcp.Message{instruct("b", "good", 0), response} {
			if _, err := h.pass(m); err != nil {
				t.Errorf("%s: %v", m.Server, err)
			}
		}
	}
	isRefused := false
	for number := 0; !isRefused && number < 20; number++ { // the third, on a machine in time
		_, err := h.pass(instruct("a", "die", number))
		isRefused = strings.Contains(fmt.Sprint(requireDenied(t, err).Err),
			`not asked: messages to the server "a" have ended the plugin's process`)
		neighbours()
	}
	if !isRefused {
		t.Error("the origin is never refused")
	}
	h.waitUntilAllowed("a request") // which is to the server a
	if s := h.host.Status()[0]; s.Starts != 2 || !s.Running {
		t.Errorf("the status is %+v, want a process that was started twice", s)
	}
}

// Several origins send messages that end the process, while messages of another are in flight. None
// of the others is lost.
func TestMessagesInFlightSurviveHostileOnes(t *testing.T) {
	h := startHost(t, programSpec("scripted", "scripted"))
	var wg sync.WaitGroup
	for i := range 3 {
		for server, instruction := range map[string]string{"a": "wait and die", "b": "wait",
			"c": "wait and die"} {
			wg.Go(func() {
				_, err := h.pass(instruct(server, instruction, i))
				if isDenied := err != nil; isDenied != (server != "b") {
					t.Errorf("a message to %s: got the error %v", server, err)
				}
			})
		}
	}
	wg.Wait()
}

// The isolated process has the stages of the current configuration, and ends with the host.
func TestIsolatedProcessHasAllStages(t *testing.T) {
	h := startHost(t, builtinSpec("one", `{"mark":"1"}`), builtinSpec("two", `{"mark":"2"}`))
	h.pass(instruct("a", "die", 0))
	mark := func() string {
		m, err := h.pass(instruct("a", "x", 0))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := m.Text("/mark")
		return text
	}
	if got := mark(); got != "12" {
		t.Errorf("the mark is %q, want those of both stages", got)
	}
	h.load(builtinSpec("one", `{"mark":"3"}`), builtinSpec("two", `{"mark":"2"}`))
	if got := mark(); got != "32" {
		t.Errorf("the mark is %q, want that of the new stage", got)
	}
	h.host.Close()
	_, err := h.pass(instruct("a", "x", 0))
	requireDenied(t, err)
}

// With on_error = "skip", a message that ends the process is skipped like other failures.
func TestRefusedMessageIsSkippedIfConfigured(t *testing.T) {
	s := programSpec("scripted", "scripted")
	s.SkipOnError = true
	h := startHost(t, s)
	for range 2 {
		if _, err := h.pass(instruct("a", "die", 0)); err != nil {
			t.Fatal(err)
		}
		if got := h.record.last(); !strings.HasPrefix(got, "skip scripted:skip:") {
			t.Errorf("the record is %q, want a skip", got)
		}
	}
}

// A message that could exceed the memory of the process is not sent to the process. Only the parts
// that the plugin sees count.
func TestMessageTooLargeForTheMemoryIsRefused(t *testing.T) {
	message := func(size, requestSize int) *mcp.Message {
		body := func(size int) []byte {
			const head, end = `{"name":"x","do":"good","pad":"`, `"}`
			return []byte(head + strings.Repeat("x", size-len(head)-len(end)) + end)
		}
		m := addressed(mcp.NewResponse("1", body(size)), mcp.ToClient)
		m.Method, m.Request = "tools/call", mcp.NewRequest("1", "tools/call", body(requestSize))
		return m
	}
	const largest = 512 << 10 // with 108 MiB
	for _, c := range []struct {
		maxMemory  int64
		seeRequest bool
		m          *mcp.Message
		refused    bool
	}{
		{108 << 20, true, message(largest-1000, 1000), false},
		{108 << 20, true, message(largest-1000, 1001), true},
		{108 << 20, false, message(largest, 1<<20), false},
		{108 << 20, false, message(largest+1, 1000), true},
		{-1, true, message(12<<20, 3<<20), false},
	} {
		h := &testHost{t: t, record: &recorder{},
			host: newHost(t, plugins.Options{MaxMemory: c.maxMemory})}
		s := programSpec("scripted", "scripted")
		s.Grants.Request = c.seeRequest
		h.load(s)
		_, err := h.pass(c.m)
		if (err != nil) != c.refused {
			t.Errorf("%d bytes of memory, %d bytes, sees the request: %v: got the error %v",
				c.maxMemory, c.m.Size(), c.seeRequest, err)
		}
		if c.refused && !strings.Contains(fmt.Sprint(requireDenied(t, err).Err),
			"not asked: the message is too large to judge") {
			t.Errorf("denied because of %v, want the size", err)
		}
	}
}
