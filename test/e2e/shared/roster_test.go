package shared

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gatekit/test/clustertest"
	"gatekit/test/harness"
	"gatekit/test/peers"
	"gatekit/test/redistest"
)

// clustered returns the configuration of replica i with [cluster] and [shared].
func clustered(t *testing.T, i int, server, certificates string) string {
	t.Helper()
	return clustertest.Config(i, peers.FreeAddress(t), certificates) +
		strings.SplitN(sharedTable(server, `timeout = "5s"`), "\n", 2)[1]
}

// Replicas that forward each other nothing, because their clients are modern, know each other by
// the shared state: their logs name each other, and each reports that the other one has another
// configuration.
func TestReplicasMeetInTheSharedState(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	if err := clustertest.WriteCertificates(dir); err != nil {
		t.Fatal(err)
	}
	var all []*replica
	for i, extra := range []string{"", "[deny]\nreasons = true\n"} {
		all = append(all, startReplica(t, t.TempDir(), t.TempDir(), clustered(t, i, server.Addr,
			dir)+extra))
	}
	wantRefusals(t, all, "")
	for i, other := range []string{"replica-1", "replica-0"} {
		metric := regexp.MustCompile(`gatekit_replica_differs\{[^}]*gatekit_replica="` + other +
			`"[^}]*\} 1`)
		eventually(t, "the metrics report that "+other+" differs", func() bool {
			return metric.MatchString(page(t, all[i].admin+"/metrics"))
		})
		eventually(t, "the log names the log of "+other, func() bool {
			for _, line := range all[i].LogLines() {
				if strings.Contains(line, `"action":"roster"`) && strings.Contains(line,
					`"replica":"`+other+`","origin":"`) {
					return true
				}
			}
			return false
		})
		all[i].WaitForLog("a replica has another configuration or other policies", 1)
	}
	output, ok := all[0].gatekit("doctor")
	flat := strings.Join(strings.Fields(output), " ")
	if ok || !regexp.MustCompile(`ok replica-0 configuration [0-9a-f]{12}, no policies, log \S+ `+
		`since \S+; described itself `).MatchString(flat) ||
		!regexp.MustCompile(`FAIL replica-1 configuration [0-9a-f]{12}, .*: another configuration `+
			`than [0-9a-f]{12} here`).MatchString(flat) {
		t.Errorf("doctor has the result %t:\n%s", ok, output)
	}

	// a log that is missing is missed, although nothing was forwarded
	for _, r := range all {
		r.client.Close()
		r.Stop()
	}
	output, _ = all[0].gatekit("doctor")
	if flat := strings.Join(strings.Fields(output), " "); !strings.Contains(flat, "; ended ") {
		t.Errorf("doctor does not say that the replicas have ended:\n%s", output)
	}
	fleet := t.TempDir()
	if err := os.CopyFS(filepath.Join(fleet, "replica-0"), os.DirFS(all[0].Dir)); err != nil {
		t.Fatal(err)
	}
	output, ok = all[0].gatekit("audit", "verify", "--fleet", fleet)
	if ok || !regexp.MustCompile(`(?m)^.*replica-1.*missing|missing.*replica-1`).MatchString(
		output) {
		t.Errorf("without the log of replica-1, verify has the result %t:\n%s", ok, output)
	}
}

// A replica that describes itself differently while it runs is noticed, and so is that it no longer
// differs.
func TestDriftIsNoticedAfterAReload(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	if err := clustertest.WriteCertificates(dir); err != nil {
		t.Fatal(err)
	}
	var all []*replica
	for i := range 2 {
		all = append(all, startReplica(t, t.TempDir(), t.TempDir(), clustered(t, i, server.Addr,
			dir)))
	}
	differs := func(value string) func() bool {
		metric := regexp.MustCompile(`gatekit_replica_differs\{[^}]*gatekit_replica="replica-1"` +
			`[^}]*\} ` + value)
		return func() bool { return metric.MatchString(page(t, all[0].admin+"/metrics")) }
	}
	eventually(t, "the replicas do not differ", differs("0"))
	file := filepath.Join(all[1].Dir, "gatekit.toml")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	harness.ReplaceFile(t, file, []byte(string(before)+"\n[deny]\nreasons = true\n"))
	eventually(t, "the changed replica differs", differs("1"))
	harness.ReplaceFile(t, file, before)
	eventually(t, "the replicas do not differ again", differs("0"))
	all[0].WaitForLog("a replica has the same configuration and policies again", 1)
	all[1].WantRecords("- - - - - reload")
}
