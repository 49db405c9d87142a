// Package replicas tests three replicas of gatekit under load, with faults: real processes behind
// Debian's haproxy and nginx, with a redis-server that has one replica, while one of the replicas
// and then the primary of redis-server are killed (kill -9).
//
// go test runs a short form. The long form has the load of a company, and takes two minutes and a
// half at each balancer, and three minutes for the races:
//
//	GATEKIT_TEST_REPLICAS=long go test -v -count=1 -timeout 30m ./test/e2e/replicas
//
// Both forms make the same assertions. The load is bounded (calls in a second), so that the tests
// are about faults and not about overload.
package replicas

import (
	"os"
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(ledgerVariable); url != "" {
		serveStdio(url)
		return
	}
	harness.Main(m)
}

// isLong reports whether the long form was asked for.
func isLong() bool { return os.Getenv("GATEKIT_TEST_REPLICAS") == "long" }
