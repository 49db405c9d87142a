package replicas

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/test/clustertest"
	"gatekit/test/harness"
	"gatekit/test/issuertest"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
	"gatekit/test/redistest"
)

const replicaCount = 3

// audience is the resource that tokens are for.
const audience = "https://gatekit.example/mcp"

// storeTimeout is the time that a request to the store may take, so that a busy machine does not
// look like a store that is away.
const storeTimeout = 5 * time.Second

// policy labels a session that has read private data, and keeps the data in.
const policy = `label contains "private" if { input.name == "read"; input.kind != "request" }
deny contains "private data stays" if {
	input.name == "send"
	input.kind == "request"
	"private" in input.session.labels
}
`

// fleet has the replicas, and everything that they use.
type fleet struct {
	t             *testing.T
	replicas      []*harness.Gatekit
	ledger        *ledger
	issuer        *issuertest.Issuer
	primary, copy *redistest.Server // of the shared state
	relay         *redistest.Relay  // to the primary
}

// startFleet starts the replicas, with tables that are added to their configuration. On a busy
// machine, policies may have no verdict in time, and then they deny.
func startFleet(t *testing.T, tables string) *fleet {
	t.Helper()
	f := &fleet{t: t, issuer: issuertest.Start(t)}
	f.primary = redistest.Start(t)
	f.copy = redistest.StartReplica(t, f.primary)
	f.relay = redistest.StartRelay(t, f.primary)
	var dirs, logs []string
	for range replicaCount {
		dirs = append(dirs, t.TempDir())
		logs = append(logs, filepath.Join(dirs[len(dirs)-1], "audit.jsonl"))
	}
	f.ledger = openLedger(t, logs...)
	certificates := t.TempDir()
	if err := clustertest.WriteCertificates(certificates); err != nil {
		t.Fatal(err)
	}
	common := fmt.Sprintf(`replicas = ["replica-0", "replica-1", "replica-2"]
[shared]
url = "redis://%s"
copies = 1
timeout = "%v"
[listen.auth]
[[listen.auth.issuer]]
issuer = %q
[audit]
file = "audit.jsonl"
bodies = "redacted"
[deny]
reasons = true
[limits]
sessions = 20000
`, f.relay.Addr, storeTimeout, f.issuer.URL) + tables + startServers(t, f.ledger)
	for i := range replicaCount {
		f.replicas = append(f.replicas, harness.StartHTTPIn(t, dirs[i],
			"public_url = \"https://gatekit.example\"\n"+
				clustertest.Config(i, peers.FreeAddress(t), certificates)+common))
	}
	return f
}

// urls returns the URLs of the replicas.
func (f *fleet) urls() (all []string) {
	for _, g := range f.replicas {
		all = append(all, g.URL)
	}
	return all
}

// connect connects a client of a principal to a URL.
func (f *fleet) connect(url, principal, revision string) (*mcptest.Client, *mcptest.HTTP) {
	h := mcptest.NewHTTP(url)
	h.Header.Set("Authorization", "Bearer "+f.token(principal))
	c := mcptest.NewClient(h, revision)
	c.Capabilities = `{"sampling":{},"elicitation":{"form":{}},"roots":{"listChanged":true}}`
	return c, h
}

// token returns an access token of a principal.
func (f *fleet) token(principal string) string {
	return f.issuer.Token("first", f.issuer.Claims(audience, map[string]any{"sub": principal}))
}

// lateVerdicts returns the records of messages on which the policies had no verdict within their
// time limit: other processes had the processors. Such a message is denied, or lost.
func (f *fleet) lateVerdicts() (late []harness.Record) {
	for _, g := range f.replicas {
		for _, r := range g.Records() {
			if strings.Contains(r.Error, "no verdict within") {
				late = append(late, r)
			}
		}
	}
	return late
}

// verify stops the replicas and verifies their logs together.
func (f *fleet) verify() {
	f.t.Helper()
	all := f.t.TempDir()
	for i, g := range f.replicas {
		g.Stop()
		to := filepath.Join(all, fmt.Sprint("machine-", i))
		if err := os.CopyFS(to, os.DirFS(g.Dir)); err != nil {
			f.t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(to, "audit.jsonl.key")); err != nil {
			f.t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(harness.Context(f.t), peers.Gatekit(f.t), "audit", "verify",
		"--fleet", all).CombinedOutput()
	text := strings.Join(strings.Fields(string(out)), " ")
	for i := range f.replicas {
		if want := fmt.Sprintf("ok replica-%d records 1 to", i); !strings.Contains(text, want) {
			f.t.Errorf("gatekit audit verify --fleet does not print %q", want)
		}
	}
	if err != nil {
		f.t.Errorf("gatekit audit verify --fleet: %v\n%s", err, out)
	}
}
