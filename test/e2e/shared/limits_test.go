package shared

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gatekit/test/clustertest"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
	"gatekit/test/redistest"
)

// limitsPlugin returns the configuration of the plugin limits with rules for calls.
func limitsPlugin(rules string, settings ...string) string {
	return harness.Builtin("limits", "calls = ["+rules+`], loop = { action = "off" }`+
		strings.Join(append([]string{""}, settings...), ", ")) + "timeout = \"60s\"\n"
}

// startLimited starts replicas with rules for calls, which share a redis-server.
func startLimited(t *testing.T, n int, rules string, settings ...string) (server *redistest.Server,
	all []*harness.Gatekit) {
	t.Helper()
	server = redistest.Start(t)
	for range n {
		all = append(all, harness.StartHTTP(t, sharedTable(server.Addr, `timeout = "5s"`)+
			limitsPlugin(rules, settings...)+harness.ScriptedServer("box")))
	}
	return server, all
}

// callTool calls a tool of the server box.
func callTool(t *testing.T, c *mcptest.Client, tool string) mcptest.Message {
	t.Helper()
	return harness.Request(t, c, "tools/call", fmt.Sprintf(`{"name":"box__%s","arguments":{}}`, tool))
}

// passed returns how many calls of a tool a replica has recorded as passed.
func passed(g *harness.Gatekit, tool string) (n int) {
	for _, r := range g.Records() {
		if r.String() == "to_server request tools/call box "+tool+" pass" {
			n++
		}
	}
	return n
}

// Three replicas admit no more calls than one would, also after the plugin's process was replaced.
// Without the server, calls are denied, and they pass again when it is back.
func TestReplicasShareRates(t *testing.T) {
	const burst = 20
	server, all := startLimited(t, 3, fmt.Sprintf(`{ per = "tool", rate = 1, burst = %d }`, burst))
	begun := time.Now()
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for i := range 9 {
		c := modern(t, all[i%3])
		callers.Go(func() {
			for range burst {
				m, err := c.Call(t.Context(), "tools/call", `{"name":"box__echo","arguments":{}}`)
				if err != nil {
					t.Error(err)
				}
				if m.Error == nil {
					admitted.Add(1)
				} else if !harness.IsDenied(m) {
					t.Errorf("a call got %s", m.Raw)
				}
			}
		})
	}
	callers.Wait()
	most := burst + int64(time.Since(begun)/time.Minute)
	if n := admitted.Load(); n < burst || n > most {
		t.Errorf("three replicas admit %d calls, want %d", n, burst)
	}
	records := 0
	for _, g := range all {
		records += passed(g, "echo")
		g.WantReasons("calls[0]: limit of 1 messages per minute per tool reached (burst 20); " +
			"retry in")
	}
	if n := admitted.Load(); int64(records) != n {
		t.Errorf("the logs have %d calls that passed, want %d", records, n)
	}

	a := modern(t, all[0])
	for _, pid := range all[0].PluginPIDs() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	eventually(t, "the plugin is started again", func() bool {
		return slices.ContainsFunc(all[0].Records(), func(r harness.Record) bool {
			return r.Action == "plugin_restarted"
		})
	})
	if m := callTool(t, a, "echo"); !harness.IsDenied(m) && time.Since(begun) < time.Minute {
		t.Errorf("the new process of the plugin counts from zero: %s", m.Raw)
	}
	if m := callTool(t, a, "self"); m.Error != nil {
		t.Errorf("with the new process of the plugin, a call got %s", m.Raw)
	}
	if keys := server.Do(t, "KEYS", "*"); strings.Contains(keys, "echo") ||
		strings.Contains(keys, "box") || strings.Contains(keys, "anonymous") {
		t.Errorf("the keys tell what they are for: %s", keys)
	}

	away := kill(t, server)
	for i, g := range all {
		c := modern(t, g)
		if m := callTool(t, c, "progress"); !harness.IsDenied(m) {
			t.Errorf("replica %d: without the server, a call got %s", i, m.Raw)
		}
		m := harness.Request(t, c, "prompts/get", `{"name":"box__plain"}`)
		if !away.isShort() {
			t.Log("the machine is too busy to check which requests pass without the server")
			break
		}
		if m.Error != nil {
			t.Errorf("replica %d: without the server, a request that no rule counts got %s", i,
				m.Raw)
		}
		g.WantRecords("to_server request tools/call box progress deny")
		g.WantReasons("shared state is not available")
	}
	server.RestartEmpty(t)
	for i, g := range all {
		c := modern(t, g)
		eventually(t, fmt.Sprintf("replica %d admits calls again", i), func() bool {
			return callTool(t, c, "progress").Error == nil
		})
		g.WantRecords("to_server request tools/call box progress pass")
	}
}

// A call that is open at one replica counts at the others, until it ends, or until its time is over
// because its replica was killed.
func TestReplicasShareOpenCalls(t *testing.T) {
	t.Parallel()
	_, all := startLimited(t, 3, `{ per = "server", concurrent = 1 }`, `timeout = "5s"`)
	waiting := all[0].Client("2025-11-25")
	var clients []*mcptest.Client
	for _, g := range all[1:] { // starts the server, so that the next call takes no time
		c := modern(t, g)
		if m := callTool(t, c, "self"); m.Error != nil {
			t.Fatalf("before the open call, a call got %s", m.Raw)
		}
		clients = append(clients, c)
	}
	opened := time.Now() // the call counts for 6.25 seconds: the timeout, and a quarter of it
	harness.StartWaitingCall(t, waiting, "box", "7", "tag")
	for i, g := range all[1:] {
		m := callTool(t, clients[i], "echo")
		if time.Since(opened) > 6*time.Second {
			t.Log("the machine is too busy to check calls during an open one")
			break
		}
		if !harness.IsDenied(m) {
			t.Errorf("while a call is open at another replica, a call got %s", m.Raw)
		}
		g.WantRecords("to_server request tools/call box echo deny")
		g.WantReasons("calls[0]: limit of 1 open requests per server reached")
	}
	all[0].Killed = true
	all[0].Cmd.Process.Kill()
	<-all[0].Exited
	all[0].KillChildren()
	for i, c := range clients {
		eventually(t, fmt.Sprintf("replica %d admits a call", i+1), func() bool {
			return callTool(t, c, "echo").Error == nil
		})
		for range 5 { // each ends before the next one
			if m := callTool(t, c, "echo"); m.Error != nil {
				t.Errorf("a call after another one got %s", m.Raw)
			}
		}
	}
}

// With limits = "local", each replica admits its part while the server is away, and records that it
// counts alone.
func TestReplicasCountAloneWithoutTheServer(t *testing.T) {
	server, dir := redistest.Start(t), t.TempDir()
	if err := clustertest.WriteCertificates(dir); err != nil {
		t.Fatal(err)
	}
	var all []*harness.Gatekit
	for i := range 3 {
		all = append(all, harness.StartHTTP(t, clustertest.Config(i, peers.FreeAddress(t), dir)+
			"replicas = [\"replica-0\", \"replica-1\", \"replica-2\"]\n[shared]\nurl = \"redis://"+
			server.Addr+"\"\ntimeout = \"5s\"\nlimits = \"local\"\n"+
			limitsPlugin(`{ per = "tool", rate = 1, burst = 7 }`)+harness.ScriptedServer("box")))
	}
	if m := callTool(t, modern(t, all[0]), "self"); m.Error != nil {
		t.Fatalf("with the server, a call got %s", m.Raw)
	}
	var clients []*mcptest.Client
	for _, g := range all {
		clients = append(clients, modern(t, g))
	}
	away := kill(t, server)
	for i, g := range all {
		for n := range 3 {
			want := n < 2 // a third of seven
			if m := callTool(t, clients[i], "echo"); harness.IsDenied(m) == want &&
				away.isShort() {
				t.Errorf("replica %d: call %d without the server got %s", i, n, m.Raw)
			}
		}
		if !away.isShort() {
			t.Log("the machine is too busy to check what is counted without the server")
			break
		}
		g.WantRecords("to_server request tools/call box echo pass",
			"to_server request tools/call box echo deny")
		g.WantReasons("reached (burst 7)", "so this replica admits 1/3")
		if !strings.Contains(strings.Join(g.LogLines(), "\n"),
			"counted in this replica only: shared state is not available") {
			t.Errorf("replica %d does not record that it counts alone", i)
		}
	}
	server.Restart(t)
	c := clients[1]
	eventually(t, "the replicas count together again", func() bool {
		if callTool(t, c, "progress").Error != nil {
			return false
		}
		for _, line := range slices.Backward(all[1].LogLines()) {
			if strings.Contains(line, `"to_server"`) && strings.Contains(line, `"progress"`) {
				return !strings.Contains(line, "in this replica only")
			}
		}
		return false
	})
}
