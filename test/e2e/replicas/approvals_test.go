package replicas

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/shared"
	"gatekit/policies"
	"gatekit/test/harness"
	"gatekit/test/redistest"
	"gatekit/transport/valkey"
)

// TestApprovalsAreUsedOnce approves each request at one replica. All replicas then use the approval
// at the same time. The state is in a redis-server that has one replica.
func TestApprovalsAreUsedOnce(t *testing.T) {
	harness.Long(t, "uses each of many approvals three times")
	races, workers := 200, 8
	if isLong() {
		races = 10_000
	}
	server := redistest.Start(t)
	redistest.StartReplica(t, server)
	ring, err := shared.NewRing([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	var replicas []*policies.Approvals
	for range replicaCount {
		store, err := valkey.Open(t.Context(), valkey.Options{Address: server.Addr, Ring: ring,
			Copies: 1, Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		replicas = append(replicas, &policies.Approvals{Shared: store})
	}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for n := w; n < races; n += workers {
				if used := useApproval(t, replicas, n); used != 1 {
					t.Errorf("approval %d was used %d times, want once", n, used)
				}
			}
		})
	}
	all.Wait()
}

// useApproval approves a new request, and returns how many of the replicas could use the approval.
func useApproval(t *testing.T, replicas []*policies.Approvals, n int) int64 {
	request := func() *mcp.Message {
		m := mcp.NewRequest("1", "tools/call", fmt.Appendf(nil,
			`{"name":"pay","arguments":{"n":%d}}`, n))
		m.Direction, m.Server, m.Session, m.Name = mcp.ToServer, "bank", "s", "pay"
		m.Principal = identity.FromID("ann")
		return m
	}
	how, err := replicas[n%len(replicas)].Submit(request(), "it is large", "")
	_, rest, _ := strings.Cut(how, "gatekit approve ")
	id, _, ok := strings.Cut(rest, "`")
	if err != nil || !ok {
		t.Errorf("approval %d: Submit returned %q, %v", n, how, err)
		return 0
	}
	if _, err := replicas[(n+1)%len(replicas)].Approve(id); err != nil {
		t.Errorf("approval %d: %v", n, err)
		return 0
	}
	var used atomic.Int64
	var race sync.WaitGroup
	for _, a := range replicas {
		race.Go(func() {
			if a.Consume(request()) {
				used.Add(1)
			}
		})
	}
	race.Wait()
	return used.Load()
}
