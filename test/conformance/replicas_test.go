package conformance

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"gatekit/test/clustertest"
	"gatekit/test/harness"
	"gatekit/test/peers"
	"gatekit/transport/auth"
)

// startReplicas starts three replicas of gatekit in front of a server, behind a balancer that sends
// each request to another replica than the last. It returns the balancer's URL and the variables
// with which the suite sends its token. When the test is over, each replica must have recorded
// calls, with the principal of the token. Calls must have been forwarded if the client has
// sessions, and only then.
func startReplicas(t *testing.T, table string, hasSessions bool) (url string, env []string) {
	t.Helper()
	dir := t.TempDir()
	if err := clustertest.WriteCertificates(dir); err != nil {
		t.Fatal(err)
	}
	token, digest := auth.NewStaticToken("suite")
	forwarded := 0
	t.Cleanup(func() { // after those of all replicas
		if (forwarded > 0) != hasSessions {
			t.Errorf("%d calls were forwarded; the client has sessions: %t", forwarded, hasSessions)
		}
	})
	var urls []string
	for i := range 3 {
		g := harness.StartHTTP(t, clustertest.Config(i, peers.FreeAddress(t), dir)+
			fmt.Sprintf("[listen.auth.token.suite]\nsha256 = \"%x\"\n[names]\nprefix = \"never\"\n"+
				"[server.everything]\n%s\n", digest, table))
		urls = append(urls, g.URL)
		t.Cleanup(func() {
			checkPrincipal(t, g.Dir, "token:suite", token)
			for _, r := range g.Records() {
				if r.Method == "tools/call" && r.Via != "" {
					forwarded++
				}
			}
		})
	}
	handler, err := clustertest.RoundRobin(urls...)
	if err != nil {
		t.Fatal(err)
	}
	balancer := httptest.NewServer(handler)
	t.Cleanup(balancer.Close)
	return balancer.URL + "/mcp", bearer(token)
}
