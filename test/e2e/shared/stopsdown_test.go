package shared

import (
	"strings"
	"testing"

	"gatekit/test/redistest"
)

// gatekit stop and gatekit resume beside a replica that does not run change what all replicas know.
// If they cannot, they fail, and say where the stop holds.
func TestStopAndResumeBesideAReplicaThatIsDown(t *testing.T) {
	server := redistest.Start(t)
	config := sharedTable(server.Addr, `timeout = "5s"`)
	all := startReplicas(t, 2, config)
	wantRefusals(t, all, "")
	down := all[1]
	down.client.Close()
	down.Stop()
	running := all[:1]

	output := down.mustRun("stop", "--server", "box", "--reason", "an incident")
	if !strings.Contains(output, "in the other replicas; no Gatekit runs here") {
		t.Errorf("a stop prints %q", output)
	}
	wantRefusals(t, running, byOperator)
	running[0].WantRecords("- - - box - stop_traffic")
	down.mustRun("resume", "--server", "box")
	wantRefusals(t, running, "")
	running[0].WantRecords("- - - box - resume_traffic")
	down.WantRecords("- - - box - stop_traffic", "- - - box - resume_traffic")

	running[0].mustRun("stop", "--reason", "made elsewhere")
	wantRefusals(t, running, byOperator)
	down.mustRun("resume")
	wantRefusals(t, running, "")

	server.Kill(t)
	if output, ok := down.gatekit("stop", "--server", "box", "--reason", "an incident"); ok ||
		!strings.Contains(output, "not yet in the other replicas") {
		t.Errorf("a stop without the server has the result %t: %s", ok, output)
	}
	if output, ok := down.gatekit("resume", "--server", "box"); ok ||
		!strings.Contains(output, "the stop stays in force") {
		t.Errorf("a resume without the server has the result %t: %s", ok, output)
	}
	server.Restart(t)
	all[1] = startReplica(t, down.Dir, down.state, config)
	wantRefusals(t, all, byOperator)
}
