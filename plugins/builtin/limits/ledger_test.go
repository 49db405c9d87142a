package limits

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

func newStage(t *testing.T, config string) *stage {
	t.Helper()
	s, err := Plugin().New([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return s.(*stage)
}

func call(principal, tool, exchange string) *mcp.Message {
	m := mcp.NewRequest("1", "tools/call", []byte(`{}`))
	m.Direction, m.Principal, m.Session, m.Server, m.Name, m.Exchange = mcp.ToServer, principal,
		principal,
		"files", tool, exchange
	return m
}

// What is remembered cannot be seen from outside, and must not grow: everybody who ever called
// would be in it.
func TestWhatHasComeToRestIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"tool","rate":60,"burst":3,"concurrent":2}]}`)
		for i := range 100 {
			if v, err := s.Inspect(t.Context(), call(fmt.Sprint("user", i),
				"read", "1")); err != nil || v.Action != pipeline.Allow {
				t.Fatalf("got %+v, %v", v, err)
			}
		}
		if n := len(s.ledger.of); n != 100 || s.ledger.counts != 100 || s.ledger.trails != 100 {
			t.Errorf("got %d principals, %d counts, %d trails, want 100 of each", n,
				s.ledger.counts, s.ledger.trails)
		}
		time.Sleep(5 * time.Minute)
		if _, err := s.Inspect(t.Context(), call("last", "read", "1")); err != nil {
			t.Fatal(err)
		}
		if n := len(s.ledger.of); n != 1 || s.ledger.counts != 1 || s.ledger.trails != 1 {
			t.Errorf("got %d principals, %d counts, %d trails, want 1 of each", n, s.ledger.counts,
				s.ledger.trails)
		}
	})
}

// When all places are taken, who has none is refused, and nobody loses what was counted.
func TestTheWholeLedgerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"principal","rate":1,"burst":2}],"loop":{"action":"off"}}`)
		refused := 0
		for i := range allCounts + 10 {
			v, err := s.Inspect(t.Context(), call(fmt.Sprint(i), "read", "1"))
			if err != nil {
				t.Fatal(err)
			}
			if v.Action == pipeline.Deny {
				refused++
			}
		}
		if refused != 10 || s.ledger.counts != allCounts {
			t.Errorf("%d were refused and %d counts kept, want 10 and %d", refused, s.ledger.counts,
				allCounts)
		}
		time.Sleep(time.Minute)
		if v, _ := s.Inspect(t.Context(), call("last", "read", "1")); v.Action != pipeline.Allow {
			t.Errorf("got %+v when there is room again, want it allowed", v)
		}
	})
}
