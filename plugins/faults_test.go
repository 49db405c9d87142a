package plugins_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/plugins"
	"gatekit/plugins/proto"
)

func TestFaultyPluginDenies(t *testing.T) {
	messages := messagesByKind
	if testing.Short() {
		messages = map[string]func(string) *mcp.Message{"a request": messages["a request"]}
	}
	for _, c := range []struct {
		program, instruction string
		want                 string // part of the recorded error or reason
		wantRestart          bool
		messages             int // messages until the process is lost; 0 is 1
	}{
		{"scripted", "fail", "failed as instructed", false, 0},
		{"scripted", "panic", "panicked: as instructed", false, 0},
		{"scripted", "hang", "no verdict within", true, 3},
		{"scripted", "stop", "no verdict within", true, 3},
		{"scripted", "die", "killed", true, 1},
		{"scripted", "use memory", "", true, 1},
		{"another sequence number", "x", "the response has sequence number", false, 0},
		{"an unknown action", "x", "unknown action", false, 0},
		{"no verdict", "x", "the response has 0 verdicts for 1 stages", false, 0},
		{"two verdicts", "x", "the response has 2 verdicts for 1 stages", false, 0},
		{"state: a call without the state", "x", "which it was not given", false, 0},
		{"an edit that is not JSON", "x", "edit", false, 0},
		{"an edit with the action allow", "x", "edits without the action modify", false, 0},
		{"a reason of 10 MiB", "x", "is too large", false, 0},
		{"a reason of 20 MiB", "x", "the response is too large", false, 0},
		{"a verdict that is a byte too large", "x", "is too large", false, 0},
		{"a gRPC error", "x", "no answer from the plugin: no", false, 0},
		{"the end of the stream", "x", "no answer from the plugin", false, 0},
		{"socket: another sequence number", "x", "the response has sequence number", false, 0},
		{"socket: no verdict", "x", "the response has 0 verdicts for 1 stages", false, 0},
		{"socket: two verdicts", "x", "the response has 2 verdicts for 1 stages", false, 0},
		{"socket: a reason of 2 MiB", "x", "the verdict of ", false, 0},
		{"socket: the end of the stream", "x", "no answer from the plugin: EOF", false, 0},
		{"socket: a frame that is cut off", "x", "unexpected EOF", false, 0},
		{"socket: dies within a frame", "x", "exited with status 3", true, 1},
		{"socket: a frame of 4 GiB", "x", "the response is too large", false, 0},
		{"socket: a frame that is not protobuf", "x", "cannot parse", false, 0},
		{"socket: an empty frame", "x", "the response has sequence number 0", false, 0},
		{"socket: two responses", "x", "more than one response", false, 0},
	} {
		t.Run(c.program+" "+c.instruction, func(t *testing.T) {
			t.Parallel()
			s := programSpec("scripted", c.program)
			s.Timeout = 5 * time.Second // for a busy machine, and because the restart delay grows
			if c.messages > 1 {
				s.Timeout = time.Second // each message waits this long
			}
			h := startHost(t, s)
			for kind, newMessage := range messages {
				lostBefore := h.eventCount("scripted plugin_lost")
				for range max(c.messages, 1) {
					_, err := h.pass(newMessage(c.instruction))
					requireDenied(t, err)
					if got := h.record.last(); !strings.HasPrefix(got, "deny scripted:deny:") ||
						!strings.Contains(got, c.want) {
						t.Errorf("%s is recorded as %q, want %q in it", kind, got, c.want)
					}
				}
				if c.wantRestart {
					// The loss may be detected after the last message was denied.
					h.waitForEvent("scripted plugin_lost", lostBefore+1)
				}
				h.waitUntilAllowed(kind)
				h.waitUntilRunning()
				if all := h.host.Status(); len(all) != 1 || all[0].Name != "scripted" ||
					!all[0].Running || all[0].InFlight != 0 ||
					c.wantRestart != (all[0].Starts > 1) {
					t.Errorf("%s: the status is %+v, want one running process, restarted: %v",
						kind, all, c.wantRestart)
				}
			}
		})
	}
}

// A process is killed after three requests in a row that got no verdict in time. A large message
// and a request whose sender gave up do not count.
func TestRequestsWithoutVerdictAreCounted(t *testing.T) {
	t.Parallel()
	// A sender that gives up must be noticed within half of it, also on a busy machine.
	const timeout = 2 * time.Second
	spec := programSpec("scripted", "scripted")
	spec.Timeout = timeout
	h := startHost(t, spec)
	stage := h.set.Stages([]plugins.Spec{spec})[0].Stage
	message := func(instruction string, size int) *mcp.Message {
		padded := func(n int) *mcp.Message {
			return addressed(mcp.NewRequest("1", "tools/call", []byte(`{"do":"`+instruction+
				`","pad":"`+strings.Repeat("x", n)+`"}`)), mcp.ToServer)
		}
		return padded(max(size-padded(0).Size(), 0))
	}
	for _, c := range []struct {
		name    string
		message *mcp.Message
		wait    time.Duration
		count   int
	}{
		{"no verdict", message("hang", 0), timeout, 1},
		{"no verdict on a large message", message("hang", proto.SmallMessage+1), timeout, 1},
		{"a sender that gives up", message("hang", 0), 10 * time.Millisecond, 1},
		{"a verdict", message("good", 0), testTimeout, 0},
		{"no verdict on the largest small message", message("hang", proto.SmallMessage), timeout,
			1},
		{"no verdict again", message("hang", 0), timeout, 2},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), c.wait)
		stage.Inspect(ctx, c.message)
		cancel()
		if got := h.host.Status()[0].ConsecutiveTimeouts; got != c.count {
			t.Errorf("%s: %d requests in a row got no verdict, want %d", c.name, got, c.count)
		}
	}
	if n := h.eventCount("plugin_lost"); n != 0 {
		t.Errorf("the process was lost %d times, want it to run", n)
	}
	h.pass(message("hang", 0))
	h.waitForEvent("scripted plugin_restarted", 1)
	h.waitUntilAllowed("a request")
	if s := h.host.Status()[0]; s.Starts != 2 || s.ConsecutiveTimeouts != 0 || !s.Running {
		t.Errorf("the status is %+v, want a process that was started twice", s)
	}
	if want := `msg="plugin killed: no verdicts in time" plugin=scripted requests=3`; !h.log.has(
		want) {
		t.Errorf("the log lacks %q", want)
	}
}

// TestFailureOfPluginIsLogged causes the same failure several times. The log has one warning with
// the plugin's name and the cause. Others follow only after a minute, because a client may cause
// any number of failures.
func TestFailureOfPluginIsLogged(t *testing.T) {
	for _, c := range []struct{ program, instruction, cause string }{
		{"scripted", "panic", `error="panicked: as instructed"`},
		{"scripted", "fail", `error="failed as instructed"`},
		{"scripted", "hang", `error="no verdict within`},
		{"the end of the stream", "x", `error="no answer from the plugin`},
	} {
		t.Run(c.program+" "+c.instruction, func(t *testing.T) {
			t.Parallel()
			s := programSpec("scripted", c.program)
			if c.instruction == "hang" {
				s.Timeout = time.Second
			}
			h := startHost(t, s)
			for range 2 {
				_, err := h.pass(messagesByKind["a request"](c.instruction))
				requireDenied(t, err)
			}
			var warnings []string
			for line := range strings.Lines(h.log.text()) {
				if strings.Contains(line, "plugin failed") {
					warnings = append(warnings, line)
				}
			}
			if len(warnings) != 1 || !strings.Contains(warnings[0],
				`level=WARN msg="plugin failed" plugin=scripted `+c.cause) {
				t.Errorf("the log has the warnings %q, want one with %s", warnings, c.cause)
			}
		})
	}
}

func TestProcessThatDiesBetweenMessagesIsRestarted(t *testing.T) {
	h := startHost(t, programSpec("scripted", "dies after its response"))
	for n := range 3 {
		if _, err := h.pass(messagesByKind["a request"]("x")); err != nil {
			t.Error(err)
		}
		h.waitForEvent("scripted plugin_lost", n+1)
	}
}

func TestFailuresAreSkippedIfConfigured(t *testing.T) {
	s := programSpec("scripted", "scripted")
	s.SkipOnError, s.Timeout = true, time.Second
	h := startHost(t, s)
	for _, instruction := range []string{"fail", "panic", "hang", "die"} {
		if m, err := h.pass(messagesByKind["a request"](instruction)); err != nil || m == nil {
			t.Errorf("%s: got the error %v, want the message forwarded", instruction, err)
		}
		if got := h.record.last(); !strings.HasPrefix(got, "skip scripted:skip:") {
			t.Errorf("%s is recorded as %q, want a skip", instruction, got)
		}
	}
	h.waitForEvent("scripted plugin_lost", 1)
	var err error
	// The plugin is skipped until the process runs again.
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(
		10 * time.Millisecond) {
		if _, err = h.pass(messagesByKind["a request"]("deny")); err != nil {
			break
		}
	}
	requireDenied(t, err)
	// An unknown action is not skipped: the plugin wanted to act on the message.
	faulty := programSpec("faulty", "an unknown action")
	faulty.SkipOnError = true
	h.load(faulty)
	_, err = h.pass(messagesByKind["a request"]("x"))
	requireDenied(t, err)
}

func TestCrashDoesNotAffectOtherCalls(t *testing.T) {
	h := startHost(t, programSpec("scripted", "scripted"))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 20 {
				instruction := "good"
				if i == 0 && j == 5 {
					instruction = "die"
				}
				_, err := h.pass(messagesByKind["a request"](instruction))
				if (err != nil) != (instruction == "die") {
					t.Errorf("%s: got the error %v, want an error for \"die\" only", instruction,
						err)
				}
			}
		})
	}
	wg.Wait()
}

func TestProcessThatStopsServingIsRestarted(t *testing.T) {
	h := startHost(t, programSpec("scripted", "stops serving"))
	h.pass(messagesByKind["a request"]("x"))
	// The host detects the fault only when it sends messages.
	for deadline := time.Now().Add(testTimeout); h.eventCount(
		"scripted plugin_restarted") == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no plugin_restarted event: %q", h.events)
		}
		h.pass(messagesByKind["a request"]("good"))
	}
	h.waitUntilAllowed("a request")
}
