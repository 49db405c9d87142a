package shared

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gatekit/audit"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/redistest"
)

// denying is a configuration whose policy denies calls of the tool echo.
func denying(t *testing.T) string {
	t.Helper()
	return "[deny]\nreasons = true\n" + harness.PolicyFile(t,
		`deny contains "no echo" if { input.kind == "request"; input.name == "echo" }`)
}

// denialID returns the id of the last denial in the log of the replica.
func (r *replica) denialID() (id string) {
	r.T.Helper()
	for _, line := range r.LogLines() {
		record, err := audit.ParseRecord([]byte(line))
		if err != nil {
			r.T.Fatal(err)
		}
		for _, s := range record.Steps {
			if record.Action == "deny" && len(s.IDs) == 1 {
				id = s.IDs[0]
			}
		}
	}
	if id == "" {
		r.T.Fatal("no record of a denial with an id")
	}
	return id
}

// reasons returns the reasons of the records with an action, in their order.
func (r *replica) reasons(action string) (all []string) {
	r.T.Helper()
	for _, record := range r.Records() {
		if record.Action == action {
			all = append(all, record.Reason)
		}
	}
	return all
}

// wantReasonsOf waits until each replica has n records with an action, and checks that the last one
// contains a text.
func wantReasonsOf(t *testing.T, all []*replica, action string, n int, text string) {
	t.Helper()
	for i, r := range all {
		eventually(t, fmt.Sprintf("replica %d has %d records %s", i, n, action), func() bool {
			return len(r.reasons(action)) == n
		})
		if got := r.reasons(action)[n-1]; !strings.Contains(got, text) {
			t.Errorf("replica %d has the record %s with %q, want %q", i, action, got, text)
		}
	}
}

func (r *replica) mustRun(args ...string) string {
	r.T.Helper()
	output, ok := r.gatekit(args...)
	if !ok {
		r.T.Fatalf("gatekit %s: %s", strings.Join(args, " "), output)
	}
	return output
}

// An allowance that is made beside one replica holds at all of them, and can be listed and removed
// beside any of them. Each replica records it before it holds there, and its end.
func TestAllowanceHoldsAtEveryReplica(t *testing.T) {
	server := redistest.Start(t)
	all := startReplicas(t, 3, sharedTable(server.Addr, `timeout = "5s"`)+
		denying(t))
	wantRefusals(t, all, "no echo")
	id := all[0].denialID()
	for i, r := range all[1:] {
		if got := r.denialID(); got != id {
			t.Fatalf("the denial has the id %s at replica 0 and %s at replica %d", id, got, i+1)
		}
	}
	all[0].mustRun("allow", id, "--reason", "it is harmless")
	wantRefusals(t, all, "")
	wantReasonsOf(t, all, "allow", 1, "by user id "+fmt.Sprint(os.Geteuid())+": it is harmless")
	for i, r := range all {
		r.WantRecords("- - tools/call box echo allow",
			"to_server request tools/call box echo allowed")
		if output := r.mustRun("allow"); !strings.Contains(output, id) {
			t.Errorf("beside replica %d, the allowances are %q, want %s", i, output, id)
		}
	}
	late := startReplica(t, t.TempDir(), t.TempDir(), sharedTable(server.Addr, `timeout = "5s"`)+
		denying(t))
	all = append(all, late)
	wantRefusals(t, all, "")
	wantReasonsOf(t, all, "allow", 1, ": it is harmless")
	all[2].mustRun("allow", "remove", id)
	wantRefusals(t, all, "no echo")
	wantReasonsOf(t, all[2:3], "disallow", 1, "removed by gatekit allow remove")
	wantReasonsOf(t, all[3:], "disallow", 1, "used or removed at another replica")
	if output := all[1].mustRun("allow"); strings.Contains(output, id) {
		t.Errorf("the removed allowance is still listed: %s", output)
	}
}

// An allowance for one message lets one message of all replicas pass.
func TestAllowanceIsUsedOnceByAllReplicas(t *testing.T) {
	server := redistest.Start(t)
	all := startReplicas(t, 3, sharedTable(server.Addr, `timeout = "5s"`)+
		denying(t))
	wantRefusals(t, all, "no echo")
	all[1].mustRun("allow", all[1].denialID(), "--once", "--reason", "one call")
	wantReasonsOf(t, all, "allow", 1, " for one message ")
	var passed atomic.Int64
	var callers sync.WaitGroup
	for _, r := range all {
		for range 4 {
			c := r.Connect(mcptest.Modern)
			callers.Go(func() {
				m, err := c.Call(t.Context(), "tools/call", `{"name":"box__echo","arguments":{}}`)
				if err == nil && len(m.Error) == 0 {
					passed.Add(1)
				}
			})
		}
	}
	callers.Wait()
	if passed.Load() != 1 {
		t.Errorf("%d calls passed, want 1", passed.Load())
	}
	used := 0
	for _, r := range all {
		for _, record := range r.Records() {
			if record.Action == "allowed" {
				used++
			}
		}
	}
	if used != 1 {
		t.Errorf("the logs have %d records of an allowed call, want 1", used)
	}
}

// While the server is away, nothing is allowed, and each replica records that. What was allowed
// holds again when the server is back with its data.
func TestNothingIsAllowedWithoutTheServer(t *testing.T) {
	server := redistest.Start(t)
	all := startReplicas(t, 2, sharedTable(server.Addr, `timeout = "2s"`)+
		denying(t))
	wantRefusals(t, all, "no echo")
	id := all[0].denialID()
	all[0].mustRun("allow", id, "--reason", "it is harmless")
	wantRefusals(t, all, "")
	away := kill(t, server)
	wantRefusalsWithout(t, all, away, "no echo")
	wantReasonsOf(t, all, "disallow", 1,
		"1 allowance: no effect while the shared state is not available")
	if output, ok := all[0].gatekit("allow", id, "--reason", "again"); ok {
		t.Errorf("without the server, something is allowed: %s", output)
	}
	wantRefusalsWithout(t, all, away, "no echo")
	server.Restart(t)
	wantRefusals(t, all, "")
	wantReasonsOf(t, all[1:], "allow", 2, "the shared state is available again")
	server.Do(t, "FLUSHALL")
	wantRefusals(t, all, "no echo")
	for i, r := range all {
		eventually(t, fmt.Sprintf("replica %d records the end", i), func() bool {
			got := r.reasons("disallow")
			return strings.Contains(got[len(got)-1], "lost with the shared state")
		})
	}
}
