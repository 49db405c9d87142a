package shared

import (
	"strings"
	"testing"

	"gatekit/test/clustertest"
	"gatekit/test/harness"
)

// Gatekit does not start with a certificate that the other replicas would refuse, and says why.
// gatekit check says the same.
func TestCertificateOfAnotherNameIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := clustertest.WriteCertificates(dir); err != nil {
		t.Fatal(err)
	}
	config := "[listen]\nhttp = \"127.0.0.1:0\"\n" + clustertest.Config(0, "127.0.0.1:0", dir) +
		harness.ScriptedServer("box")
	g := harness.Prepare(t, config)
	output, ok := run(t, g, "check")
	if flat := strings.Join(strings.Fields(output), " "); !ok ||
		!strings.Contains(flat, "note [cluster] the certificate is valid until ") {
		t.Errorf("check has the result %t, want the end of the certificate:\n%s", ok, output)
	}
	if strings.Contains(output, "cluster.replicas") {
		t.Errorf("check reports cluster.replicas, which is not set:\n%s", output)
	}
	g.Configure(strings.Replace(config, "[cluster]\n",
		"[cluster]\nreplicas = [\"replica-1\"]\n", 1))
	if output, ok := run(t, g, "check"); !ok || !strings.Contains(output,
		`cluster.replicas does not have the name of this replica, "replica-0"`) {
		t.Errorf("check has the result %t, want a note about the name:\n%s", ok, output)
	}
	g.Configure(strings.Replace(config, `advertise = "127.0.0.1:0"`,
		`advertise = "replica-0.gatekit:7443"`, 1))
	const want = "the other replicas would refuse "
	if output, ok := run(t, g, "check"); ok || !strings.Contains(output, "[cluster]  "+want) {
		t.Fatalf("check has the result %t, want %q:\n%s", ok, want, output)
	}
	if output, ok := run(t, g, "run"); ok || !strings.Contains(output, "[cluster]: "+want) ||
		!strings.Contains(output, "replica-0.gatekit") {
		t.Errorf("run has the result %t, want %q and the name:\n%s", ok, want, output)
	}
}
