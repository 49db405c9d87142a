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

// balancers send each request to another replica than the last. One is in the process of the test.
// The others are programs, with the configurations of examples/06-replicas. Each returns its URL.
var balancers = []struct {
	name  string
	start func(t *testing.T, replicas ...string) (url string)
}{
	{"each request to another replica than the last", func(t *testing.T, urls ...string) string {
		handler, err := clustertest.RoundRobin(urls...)
		if err != nil {
			t.Fatal(err)
		}
		balancer := httptest.NewServer(handler)
		t.Cleanup(balancer.Close)
		return balancer.URL + "/mcp"
	}},
	{"replicas behind haproxy", func(t *testing.T, urls ...string) string {
		return "http://" + clustertest.StartExampleBalancer(t, "haproxy", urls...) + "/mcp"
	}},
	{"replicas behind nginx", func(t *testing.T, urls ...string) string {
		return "http://" + clustertest.StartExampleBalancer(t, "nginx", urls...) + "/mcp"
	}},
}

// startReplicas starts three replicas of gatekit in front of a server, behind a balancer. It
// returns the balancer's URL and the variables with which the client sends its token. When the test
// is over, the replicas must have recorded calls, with the principal of the token. If the client
// has sessions, calls must have been forwarded. Otherwise each replica must have served some, and
// none was forwarded.
func startReplicas(t *testing.T, table string, hasSessions bool,
	balancer func(t *testing.T, replicas ...string) string) (url string, env []string) {
	t.Helper()
	dir := t.TempDir()
	if err := clustertest.WriteCertificates(dir); err != nil {
		t.Fatal(err)
	}
	token, digest := auth.NewStaticToken("suite")
	forwarded, serving := 0, 0 // calls, and replicas that have served calls
	t.Cleanup(func() {         // after those of all replicas
		if (forwarded > 0) != hasSessions || serving == 0 || serving < 3 && !hasSessions {
			t.Errorf("%d calls were forwarded, and %d of 3 replicas have served calls; the client "+
				"has sessions: %t", forwarded, serving, hasSessions)
		}
	})
	var urls []string
	for i := range 3 {
		g := harness.StartHTTP(t, clustertest.Config(i, peers.FreeAddress(t), dir)+
			fmt.Sprintf("[listen.auth.token.suite]\nsha256 = \"%x\"\n[names]\nprefix = \"never\"\n"+
				"[server.everything]\n%s\n", digest, table))
		urls = append(urls, g.URL)
		t.Cleanup(func() {
			if checkPrincipal(t, g.Dir, "token:suite", token) > 0 {
				serving++
			}
			for _, r := range g.Records() {
				if r.Method == "tools/call" && r.Via != "" {
					forwarded++
				}
			}
		})
	}
	return balancer(t, urls...), bearer(token)
}
