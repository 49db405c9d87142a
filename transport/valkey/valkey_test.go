package valkey_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/test/redistest"
	"gatekit/transport/valkey"
)

// options returns options for a server. The timeout is long, because the machine may be busy.
func options(t *testing.T, addr string) valkey.Options {
	t.Helper()
	ring, err := shared.NewRing([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	return valkey.Options{Address: addr, Ring: ring, Prefix: "gatekit:test:",
		Timeout: 20 * time.Second}
}

// open opens a store, and closes it with the test.
func open(t *testing.T, o valkey.Options) *valkey.Store {
	t.Helper()
	s, err := valkey.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestMain lets more tests run at the same time than there are processors: those that are parallel
// mostly wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	m.Run()
}

func TestStore(t *testing.T) {
	t.Parallel()
	sharedtest.Run(t, func(t *testing.T, test func(*testing.T, sharedtest.Replicas)) {
		t.Parallel()
		server := redistest.Start(t)
		test(t, sharedtest.Replicas{
			Open: func(t *testing.T) shared.Store { return open(t, options(t, server.Addr)) },
			Wait: time.Sleep,
			Wipe: func(t *testing.T) { server.Do(t, "FLUSHALL") },
		})
	})
}

// The same, with a replica that must have each value.
func TestStoreWithCopies(t *testing.T) {
	t.Parallel()
	sharedtest.Run(t, func(t *testing.T, test func(*testing.T, sharedtest.Replicas)) {
		t.Parallel()
		server := redistest.Start(t)
		redistest.StartReplica(t, server)
		test(t, sharedtest.Replicas{
			Open: func(t *testing.T) shared.Store {
				o := options(t, server.Addr)
				o.Copies = 1
				return open(t, o)
			},
			Wait: time.Sleep,
			Wipe: func(t *testing.T) { server.Do(t, "FLUSHALL") },
		})
	})
}
