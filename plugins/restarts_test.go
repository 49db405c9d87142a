package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins"
)

// processOf returns the ID of the process that inspects a message to a server.
func (h *testHost) processOf(server string) int {
	h.t.Helper()
	_, err := h.pass(instruct(server, "show the process", 0))
	pid, err := strconv.Atoi(requireDenied(h.t, err).Reason)
	if err != nil {
		h.t.Fatal(err)
	}
	return pid
}

// waitForLog waits until the log has a text a number of times.
func (h *testHost) waitForLog(text string, times int) {
	h.t.Helper()
	for deadline := time.Now().Add(testTimeout); strings.Count(h.log.text(), text) < times; {
		if time.Now().After(deadline) {
			h.t.Fatalf("the log has %q less than %d times:\n%s", text, times, h.log.text())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// The first restart of a process that ended between two messages is immediate. Before each further
// one, the host waits longer.
func TestRestartsOfAProcessGrowApart(t *testing.T) {
	t.Parallel()
	h := &testHost{t: t, record: &recorder{}}
	type event struct {
		action string
		at     time.Time
	}
	events := make(chan event, 100)
	h.host = newHost(t, plugins.Options{Event: func(_, action, _ string, _ error) {
		events <- event{action, time.Now()}
	}})
	h.load(programSpec("scripted", "scripted"))
	for n, want := range []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond,
		time.Second} {
		if err := syscall.Kill(h.processOf("a"), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		lost, restarted := <-events, <-events
		if lost.action != "plugin_lost" || restarted.action != "plugin_restarted" {
			t.Fatalf("got the events %v and %v, want a loss and a restart", lost, restarted)
		}
		if got := restarted.at.Sub(lost.at); got < want {
			t.Errorf("restart %d came after %v, want at least %v", n+1, got, want)
		}
	}
}

// scriptSpec returns the spec of a plugin that a shell script starts, and the name of the script.
func scriptSpec(t *testing.T) (s plugins.Spec, script string) {
	script = filepath.Join(t.TempDir(), "script")
	writeScript(t, script, "exec "+os.Args[0]+" plugin scripted")
	s = programSpec("scripted")
	s.Command = []string{"/bin/sh", script}
	s.Sandbox.Read = []string{os.Args[0]}
	return s, script
}

func writeScript(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// While a process cannot be restarted, its messages are denied with the cause. A new configuration
// does not wait for the next attempt.
func TestLoadStartsAProcessThatCouldNotBeRestarted(t *testing.T) {
	t.Parallel()
	s, script := scriptSpec(t)
	s.Timeout = time.Second
	h := &testHost{t: t, record: &recorder{}}
	failed := make(chan error, 100)
	h.host = newHost(t, plugins.Options{StartTimeout: 3 * time.Second,
		Event: func(_, action, _ string, err error) {
			if action == "plugin_lost" && strings.Contains(err.Error(), "as written") {
				failed <- err
			}
		}})
	h.load(s)
	writeScript(t, script, "echo as written >&2; exit 4")
	h.pass(instruct("b", "die", 0))
	for range 5 { // the next attempt is in four seconds
		select {
		case <-failed:
		case <-time.After(testTimeout):
			t.Fatal("the process was not restarted five times")
		}
	}
	_, err := h.pass(instruct("a", "good", 0))
	if got := fmt.Sprint(requireDenied(t, err).Err); !strings.Contains(got,
		"could not be restarted: the process exited with status 4") {
		t.Errorf("denied because of %q, want the failed restart", got)
	}
	if s := h.host.Status()[0]; s.Running || s.Starts != 1 || s.Err == nil {
		t.Errorf("the status is %+v, want no process and an error", s)
	}
	writeScript(t, script, "exec "+os.Args[0]+" plugin scripted")
	s.Config = []byte(`{"mark":"2"}`)
	h.load(s)
	h.waitUntilAllowed("a request")
}

// A message that waits for a restart until its time is over is denied because the process is down.
func TestMessageWaitsForARestart(t *testing.T) {
	t.Parallel()
	s, script := scriptSpec(t)
	h := startHost(t, s)
	pid := h.processOf("a")
	writeScript(t, script, "exec sleep 1000")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.waitForEvent("scripted plugin_lost", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := stageOf(h, s).Inspect(ctx, instruct("a", "good", 0))
	if !strings.Contains(fmt.Sprint(err), "is down: the process was ended") {
		t.Errorf("got the error %v, want that the process is down", err)
	}
}

// A process without a stage that can be made is not used.
func TestProcessWithoutStagesIsNotUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules")
	writeScript(t, file, "")
	s := builtinSpec("one", `{"file":`+string(mcp.Quote(file))+`}`)
	h := startHost(t, s)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	h.pass(instruct("b", "die", 0))
	h.waitForEvent("its configuration", 2) // of the stage and of the process
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := stageOf(h, s).Inspect(ctx, instruct("a", "good", 0))
	if !strings.Contains(fmt.Sprint(err), "its configuration") {
		t.Errorf("got the error %v, want the configuration", err)
	}
	if s := h.host.Status()[0]; s.Running || s.Starts != 1 {
		t.Errorf("the status is %+v, want no process", s)
	}
	writeScript(t, file, "")
	h.waitUntilAllowed("a request")
}

// A plugin closes the stages that no configuration uses any more, and only these.
func TestUnusedStagesAreClosed(t *testing.T) {
	t.Parallel()
	h := startHost(t, builtinSpec("one", `{"mark":"kept"}`))
	h.pass(instruct("a", "die", 0)) // later messages to a go to the isolated process
	h.waitForEvent("built-in plugin_restarted", 1)
	replaced := h.set
	h.load(builtinSpec("one", `{"mark":"kept"}`), builtinSpec("two", `{"mark":"unused"}`))
	replaced.Close()
	if _, err := h.pass(instruct("a", "good", 0)); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		replaced := h.set
		h.load(builtinSpec("one", `{"mark":"kept"}`))
		replaced.Close()
	}
	h.waitForLog(`closed the stage \"unused\"`, 2) // in the main and in the isolated process
	if text := h.log.text(); strings.Contains(text, `closed the stage \"kept\"`) {
		t.Errorf("a stage in use was closed:\n%s", text)
	}
}

// All messages of an origin go to one isolated process, which is kept for later messages.
func TestIsolatedProcessIsKept(t *testing.T) {
	t.Parallel()
	h := startHost(t, programSpec("scripted", "scripted"))
	h.pass(instruct("a", "die", 0))
	h.waitForEvent("scripted plugin_restarted", 1)
	isolated, other := h.processOf("a"), h.processOf("b")
	if isolated == other {
		t.Error("the process for messages to a inspects messages to b")
	}
	for range 3 {
		if got := h.processOf("a"); got != isolated {
			t.Errorf("process %d inspected a message, want the process %d", got, isolated)
		}
	}
}

// A stage that cannot be made in the isolated process does not end this process.
func TestIsolatedProcessOutlivesAStageThatCannotBeMade(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules")
	writeScript(t, file, "")
	specs := []plugins.Spec{builtinSpec("one", `{"file":`+string(mcp.Quote(file))+`}`),
		builtinSpec("two", `{}`)}
	h := startHost(t, specs...)
	h.pass(instruct("a", "die", 0))
	h.waitForEvent("built-in plugin_restarted", 1)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	stages := h.set.Stages(specs)
	process := func() string {
		t.Helper()
		v, err := stages[1].Stage.Inspect(t.Context(), instruct("a", "show the process", 0))
		if err != nil {
			t.Fatal(err)
		}
		return v.Reason
	}
	before := process()
	_, err := stages[0].Stage.Inspect(t.Context(), instruct("a", "good", 0))
	if !strings.Contains(fmt.Sprint(err), "does not have this stage") {
		t.Errorf("got the error %v, want that the stage is missing", err)
	}
	if after := process(); after != before {
		t.Errorf("the process %s inspects the next message, want the process %s", after, before)
	}
}

// stageOf returns the only stage of a host, for inspections with a context of their own.
func stageOf(h *testHost, spec plugins.Spec) pipeline.Stage {
	return h.set.Stages([]plugins.Spec{spec})[0].Stage
}

func waitForFile(server, file string, number int) *mcp.Message {
	m := instruct(server, "wait for a file", number)
	edited, err := m.Edit(mcp.Set("/file", mcp.Quote(file)))
	if err != nil {
		panic(err)
	}
	return edited
}

// A sender that gives up while its message waits for the isolated process gives up its turn.
func TestWaitingMessageIsGivenUp(t *testing.T) {
	t.Parallel()
	spec, file := programSpec("scripted", "scripted"), filepath.Join(t.TempDir(), "go on")
	spec.Sandbox.Write = []string{filepath.Dir(file)}
	h := startHost(t, spec)
	h.pass(instruct("a", "die", 0))
	first := make(chan error)
	go func() {
		_, err := stageOf(h, spec).Inspect(t.Context(), waitForFile("a", file, 1))
		first <- err
	}()
	var last chan error
	for n := range 3 { // the first message may come late
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if n == 2 { // which waits behind messages that were given up
			last = make(chan error)
			go func() {
				_, err := stageOf(h, spec).Inspect(t.Context(), instruct("a", "good", 9))
				last <- err
			}()
		}
		stageOf(h, spec).Inspect(ctx, instruct("a", "hang", n))
		cancel()
	}
	writeScript(t, file, "")
	for name, result := range map[string]chan error{"first": first, "last": last} {
		select {
		case err := <-result:
			if err != nil {
				t.Errorf("the %s message: %v", name, err)
			}
		case <-time.After(testTimeout):
			t.Fatalf("the %s message has no verdict", name)
		}
	}
}

// The messages that were in flight when the process ended wait for the isolated process and are
// inspected again, as is a message of an origin that has ended a process. TestOrderOfTurns has the
// order.
func TestLostMessagesWaitForTheIsolatedProcess(t *testing.T) {
	t.Parallel()
	spec, folder := programSpec("scripted", "scripted"), t.TempDir()
	spec.Sandbox.Write = []string{folder}
	h := startHost(t, spec)
	h.pass(instruct("a", "die", 0))
	h.waitForEvent("scripted plugin_restarted", 1)
	h.processOf("a")
	lost, isolatedGoesOn := filepath.Join(folder, "lost"), filepath.Join(folder, "goes on")
	inspected := make(chan string, 10)
	inspect := func(name string, m *mcp.Message, size int) {
		m, err := m.Edit(mcp.Set("/pad", mcp.Quote(strings.Repeat("x", size))))
		if err != nil {
			t.Error(err)
		}
		go func() {
			if _, err := stageOf(h, spec).Inspect(t.Context(), m); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			inspected <- name
		}()
	}
	inspect("first", waitForFile("a", isolatedGoesOn, 1), 0) // in the isolated process
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(isolatedGoesOn + ".waits"); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the first message did not reach the isolated process")
		}
	}
	inspect("offender", instruct("a", "good", 1), 0)
	for _, size := range []int{3000, 1000, 2000} { // in the main process
		inspect(fmt.Sprint(size), waitForFile("b", lost, size), size)
	}
	for deadline := time.Now().Add(testTimeout); h.host.Status()[0].InFlight < 3 &&
		time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if err := syscall.Kill(h.processOf("c"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.waitForEvent("scripted plugin_restarted", 2)
	writeScript(t, lost, "")
	writeScript(t, isolatedGoesOn, "")
	var names []string
	for range 5 {
		select {
		case name := <-inspected:
			names = append(names, name)
		case <-time.After(testTimeout):
			t.Fatalf("only %q got a verdict", names)
		}
	}
}

// A message that was in flight when a process ended, and then hangs alone, may have ended the
// process: later messages of its origin are isolated.
func TestMessageThatHangsAloneIsAnOffense(t *testing.T) {
	t.Parallel()
	spec := programSpec("scripted", "scripted")
	spec.Timeout = 3 * time.Second
	file := filepath.Join(t.TempDir(), "never written")
	spec.Sandbox.Write = []string{filepath.Dir(file)}
	h := startHost(t, spec)
	// h.processOf would deny the message if a process needs longer than spec.Timeout to start.
	processOf := func(server string) int {
		t.Helper()
		v, err := stageOf(h, spec).Inspect(t.Context(), instruct(server, "show the process", 0))
		pid, atoiErr := strconv.Atoi(v.Reason)
		if err = errors.Join(err, atoiErr); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	pid := processOf("b")
	waitUntilInspected := func() {
		t.Helper()
		for deadline := time.Now().Add(testTimeout); os.Remove(file+".waits") != nil; {
			if time.Now().After(deadline) {
				t.Fatal("the message did not reach a process")
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	done := make(chan error)
	go func() {
		_, err := stageOf(h, spec).Inspect(ctx, waitForFile("a", file, 0))
		done <- err
	}()
	waitUntilInspected()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitUntilInspected() // alone
	time.Sleep(spec.Timeout / 2)
	giveUp()
	if err := <-done; err == nil {
		t.Error("a message that hangs got a verdict")
	}
	h.waitForEvent("scripted plugin_restarted", 1)
	if a, b := processOf("a"), processOf("b"); a == b {
		t.Error("the next message to a was not isolated")
	}
}

// Requests that follow one another share a stream. A request that was given up ends its stream.
func TestStreamsAreKept(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"the number of the stream",
		"socket: the number of the stream"} {
		h := startHost(t, programSpec("scripted", program))
		for range 5 {
			_, err := h.pass(messagesByKind["a request"]("x"))
			if got := requireDenied(t, err).Reason; got != "1" {
				t.Errorf("%s: the request came over stream %s, want 1", program, got)
			}
		}
	}
}

// The limits of a response are the same over gRPC and sockets.
func TestLargestResponses(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"no fault, and edits", "the largest verdict",
		"socket: the largest verdict"} {
		h := &testHost{t: t, record: &recorder{},
			host: newHost(t, plugins.Options{MaxMessage: 2 << 20})}
		h.load(programSpec("scripted", program))
		m := instruct("a", "x", 0)
		if program == "no fault, and edits" {
			params := `{"name":"x","do":"edit a large text","text":"` +
				strings.Repeat("x", 2<<20-100) + `"}`
			m = addressed(mcp.NewRequest("1", "tools/call", []byte(params)), mcp.ToServer)
		}
		if _, err := h.pass(m); err != nil {
			t.Errorf("%s: %v: %s", program, err, h.record.last())
		}
	}
}
