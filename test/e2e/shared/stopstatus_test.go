package shared

import (
	"encoding/json"
	"strings"
	"testing"

	"gatekit/test/redistest"
)

// gatekit stop status beside one replica, which does not run, shows the stops of the others, and
// says so if they are not known.
func TestStopStatusShowsTheStopsOfAllReplicas(t *testing.T) {
	server := redistest.Start(t)
	all := startReplicas(t, 2, sharedTable(server.Addr, `timeout = "5s"`))
	wantRefusals(t, all, "")
	all[1].client.Close()
	all[1].Stop()
	all[0].mustRun("stop", "--server", "box", "--reason", "an incident")
	all[0].WantRecords("- - - box - stop_traffic")
	for i, r := range all {
		if output := r.mustRun("stop", "status"); !strings.Contains(output,
			`server "box", in all replicas, by user id `) ||
			!strings.Contains(output, ": an incident\n") {
			t.Errorf("beside replica %d, the stops are %q", i, output)
		}
		var status struct {
			Stopped []struct{ Shared bool }
		}
		output := r.mustRun("stop", "status", "--json")
		if err := json.Unmarshal([]byte(output), &status); err != nil ||
			len(status.Stopped) != 1 || !status.Stopped[0].Shared {
			t.Errorf("beside replica %d, --json prints %s (%v)", i, output, err)
		}
	}
	server.Kill(t)
	if output, ok := all[0].gatekit("stop", "--reason", "without the server"); ok {
		t.Errorf("a stop without the server: %s", output)
	}
	output, ok := all[0].gatekit("stop", "status")
	if ok || !strings.Contains(output, "it is not known what the other replicas have stopped") ||
		strings.Count(output, ", in this replica, by user id ") != 2 {
		t.Errorf("without the server, the result is %t: %s", ok, output)
	}
	output, ok = all[0].gatekit("stop", "status", "--json")
	if ok || !strings.Contains(output, `"shared_fault":`) {
		t.Errorf("without the server, --json has the result %t: %s", ok, output)
	}
	server.Restart(t)
	wantRefusals(t, all[:1], byOperator)
}
