package shared

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/redistest"
)

// replica is a gatekit of several that share state. Each has a state folder of its own.
type replica struct {
	*harness.Gatekit
	client *mcptest.Client
	admin  string
	state  string // folder
}

// startReplica starts a gatekit in dir, which may hold the log of an earlier one.
func startReplica(t *testing.T, dir, state, config string) *replica {
	t.Helper()
	table, address := admin(t)
	g := harness.StartHTTPIn(t, dir, config+table+harness.ScriptedServer("box"),
		"XDG_STATE_HOME="+state)
	return &replica{g, g.Connect(mcptest.Modern), address, state}
}

func startReplicas(t *testing.T, n int, config string) (all []*replica) {
	t.Helper()
	for range n {
		all = append(all, startReplica(t, t.TempDir(), t.TempDir(), config))
	}
	return all
}

// gatekit runs a command for the replica.
func (r *replica) gatekit(args ...string) (output string, ok bool) {
	r.T.Helper()
	return runIn(r.T, r.Gatekit, []string{"XDG_STATE_HOME=" + r.state}, args...)
}

// Who stopped, as clients are told.
const (
	byOperator = " with gatekit stop"
	byGatekit  = "stopped by an operator (Gatekit)"
)

// stopRecords returns how many stops and ends of stops the replica has recorded.
func (r *replica) stopRecords() (stopped, resumed int) {
	for _, record := range r.Records() {
		switch record.Action {
		case "stop_traffic":
			stopped++
		case "resume_traffic":
			resumed++
		}
	}
	return stopped, resumed
}

// refusal returns the text of the error that a call gets, or "" if it gets a result.
func (r *replica) refusal() string {
	r.T.Helper()
	m := harness.Request(r.T, r.client, "tools/call", `{"name":"box__echo","arguments":{}}`)
	if len(m.Error) == 0 {
		return ""
	}
	return string(m.Error)
}

// wantRefusals waits until calls at all replicas are refused with a text, or pass if it is "".
func wantRefusals(t *testing.T, all []*replica, want string) {
	t.Helper()
	for i, r := range all {
		eventually(t, fmt.Sprintf("replica %d refuses calls with %q", i, want), func() bool {
			got := r.refusal()
			return got == "" && want == "" || want != "" && strings.Contains(got, want)
		})
	}
}

// wantRefusalsWithout is wantRefusals for an outage: at its end, the calls are stopped.
func wantRefusalsWithout(t *testing.T, all []*replica, away outage, want string) {
	t.Helper()
	for i, r := range all {
		eventually(t, fmt.Sprintf("replica %d refuses calls with %q", i, want), func() bool {
			got := r.refusal()
			return strings.Contains(got, want) ||
				!away.isShort() && strings.Contains(got, byGatekit)
		})
	}
}

// awaitStop waits until all replicas have recorded a stop whose reason contains a text.
func awaitStop(t *testing.T, all []*replica, text string) {
	t.Helper()
	for i, r := range all {
		eventually(t, fmt.Sprintf("replica %d records a stop with %q", i, text), func() bool {
			return slices.ContainsFunc(r.reasons("stop_traffic"), func(reason string) bool {
				return strings.Contains(reason, text)
			})
		})
	}
}

// A stop at one replica reaches all of them, and so does its end at another one. Each has a record.
func TestStopReachesEveryReplica(t *testing.T) {
	server := redistest.Start(t)
	all := startReplicas(t, 3, sharedTable(server.Addr, `timeout = "5s"`))
	wantRefusals(t, all, "")
	if output, ok := all[0].gatekit("stop", "--reason", "an incident"); !ok {
		t.Fatal(output)
	}
	wantRefusals(t, all, byOperator)
	late := startReplica(t, t.TempDir(), t.TempDir(), sharedTable(server.Addr, `timeout = "5s"`))
	if got := late.refusal(); !strings.Contains(got, byOperator) {
		t.Errorf("a replica that starts later answers the first call with %q", got)
	}
	if output, ok := all[1].gatekit("stop", "--server", "box", "--reason", "another"); !ok {
		t.Fatal(output)
	}
	if output, ok := all[2].gatekit("resume"); !ok {
		t.Fatal(output)
	}
	all = append(all, late)
	for i, r := range all {
		eventually(t, fmt.Sprintf("replica %d ends the stop of everything", i), func() bool {
			stopped, resumed := r.stopRecords()
			return stopped == 2 && resumed == 1
		})
	}
	wantRefusals(t, all, byOperator)
	if output, ok := all[0].gatekit("resume", "--server", "box"); !ok {
		t.Fatal(output)
	}
	wantRefusals(t, all, "")
	for i, r := range all {
		if stopped, resumed := r.stopRecords(); stopped != 2 || resumed != 2 {
			t.Errorf("replica %d has %d records of stops and %d of ends, want 2 and 2", i, stopped,
				resumed)
		}
		r.WantReasons(byOperator+": an incident", byOperator+": another")
	}
}

// A stop that was made while the server was away reaches the others when it is back. A replica that
// does not know the stops of the others refuses everything after ten seconds. A stop is not lost
// when the server loses what it knows.
func TestStopsWithoutTheServer(t *testing.T) {
	harness.Long(t, "waits until stops are not known")
	t.Parallel()
	server := redistest.Start(t)
	all := startReplicas(t, 2, sharedTable(server.Addr, `timeout = "2s"`))
	wantRefusals(t, all, "")
	away := kill(t, server)
	if output, ok := all[0].gatekit("stop", "--server", "box", "--reason",
		"an incident"); ok || !strings.Contains(output, "not yet in the others") {
		t.Errorf("a stop without the server has the result %t: %s", ok, output)
	}
	if got := all[0].refusal(); !strings.Contains(got, byOperator) && away.isShort() {
		t.Errorf("the replica with the stop answers a call with %q", got)
	}
	wantRefusals(t, all[1:], byGatekit)
	awaitStop(t, all, "everything, by Gatekit: the stops of the other replicas are not known")
	if output, ok := all[0].gatekit("resume", "--server", "box"); ok ||
		!strings.Contains(output, "the stop stays in force") {
		t.Errorf("a resume without the server has the result %t: %s", ok, output)
	}
	server.RestartEmpty(t)
	wantRefusals(t, all, byOperator)
	for _, r := range all {
		r.WantReasons("shared state")
	}
	eventually(t, "the metrics show the loss", func() bool {
		return strings.Contains(page(t, all[1].admin+"/metrics"),
			`gatekit_shared_errors_total{error_type="lost",gatekit_shared_method=`)
	})
	losses := func(r *replica) int {
		return strings.Count(r.Stderr.String(), `msg="shared state was lost"`)
	}
	before := []int{losses(all[0]), losses(all[1])}
	server.Do(t, "FLUSHALL")
	late := startReplica(t, t.TempDir(), t.TempDir(), sharedTable(server.Addr, `timeout = "5s"`))
	for i, r := range all {
		eventually(t, fmt.Sprintf("replica %d notices the second loss", i), func() bool {
			return losses(r) > before[i]
		})
	}
	all = append(all, late)
	// A replica that has not looked at the stops since the loss would share a stop again that ends
	// before. One that has this stop has looked at them.
	all[0].mustRun("stop", "--principal", "nobody", "--reason", "after the loss")
	awaitStop(t, all, "after the loss")
	wantRefusals(t, all, byOperator)
	if output, ok := late.gatekit("resume", "--server", "box"); !ok {
		t.Fatal(output)
	}
	wantRefusals(t, all, "")
}

// A replica that was down when a stop was ended does not bring the stop back.
func TestEndedStopStaysEnded(t *testing.T) {
	server := redistest.Start(t)
	config := sharedTable(server.Addr, `timeout = "5s"`)
	all := startReplicas(t, 2, config)
	if output, ok := all[0].gatekit("stop", "--reason", "an incident"); !ok {
		t.Fatal(output)
	}
	wantRefusals(t, all, byOperator)
	down := all[1]
	down.client.Close()
	down.Stop()
	if output, ok := all[0].gatekit("resume"); !ok {
		t.Fatal(output)
	}
	all[1] = startReplica(t, down.Dir, down.state, config)
	if got := all[1].refusal(); got != "" {
		t.Errorf("after the start, a call gets %q", got)
	}
	wantRefusals(t, all, "")
	// a stop that was made while it was down is not lost
	all[1].client.Close()
	all[1].Stop()
	if output, ok := all[1].gatekit("stop", "--reason", "while down"); !ok {
		t.Fatal(output)
	}
	all[1] = startReplica(t, down.Dir, down.state, config)
	wantRefusals(t, all, byOperator)
}

// A loss that the policies notice first does not end the stops: their calls ask the store more
// often than Gatekit looks at the stops.
func TestStopsStayWhenAPolicyNoticesALoss(t *testing.T) {
	server := redistest.Start(t)
	all := startReplicas(t, 2, sharedTable(server.Addr, `timeout = "5s"`)+harness.PolicyFile(t,
		`deny contains "no" if "never" in input.session.labels`)+harness.ScriptedServer("other"))
	if output, ok := all[0].gatekit("stop", "--server", "box", "--reason", "an incident"); !ok {
		t.Fatal(output)
	}
	wantRefusals(t, all, byOperator)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for _, r := range all {
		c := r.Connect(mcptest.Modern)
		callers.Go(func() {
			for ctx.Err() == nil {
				c.Call(ctx, "tools/call", `{"name":"other__echo","arguments":{}}`)
			}
		})
	}
	for range 5 {
		server.Do(t, "FLUSHALL")
		for begun := time.Now(); time.Since(begun) < time.Second; {
			for i, r := range all {
				if got := r.refusal(); !strings.Contains(got, byOperator) {
					t.Fatalf("replica %d: after a loss, a call of the stopped server gets %q", i,
						got)
				}
			}
		}
	}
	cancel()
	callers.Wait()
	for _, r := range all {
		r.WantReasons("shared state")
		if _, resumed := r.stopRecords(); resumed != 0 {
			t.Errorf("the log has %d records of a resume, want none", resumed)
		}
	}
}

// A stop stays in force if all replicas restart, and the server has lost what it knew meanwhile.
func TestStopOutlivesTheServerAndAllReplicas(t *testing.T) {
	server := redistest.Start(t)
	config := sharedTable(server.Addr, `timeout = "5s"`)
	all := startReplicas(t, 2, config)
	if output, ok := all[0].gatekit("stop", "--reason", "an incident"); !ok {
		t.Fatal(output)
	}
	wantRefusals(t, all, byOperator)
	for _, r := range all {
		r.client.Close()
		r.Stop()
	}
	server.Do(t, "FLUSHALL")
	for i, r := range all {
		all[i] = startReplica(t, r.Dir, r.state, config)
		if got := all[i].refusal(); !strings.Contains(got, byOperator) {
			t.Errorf("replica %d answers the first call after the loss with %q", i, got)
		}
		if _, resumed := all[i].stopRecords(); resumed != 0 {
			t.Errorf("replica %d has recorded the end of a stop that nobody has ended", i)
		}
		if !slices.ContainsFunc(all[i].Records(), func(r harness.Record) bool {
			return r.Action == "lost"
		}) {
			t.Errorf("replica %d has not recorded the loss", i)
		}
	}
	if output, ok := all[0].gatekit("resume"); !ok {
		t.Fatal(output)
	}
	wantRefusals(t, all, "")
}
