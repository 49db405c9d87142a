package limits

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
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
	m.Direction, m.Principal, m.Session, m.Server, m.Name, m.Exchange = mcp.ToServer,
		identity.FromID(principal),
		principal,
		"files", tool, exchange
	return m
}

// The limiter must not remember a principal forever.
func TestSweepRemovesUnusedEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"tool","rate":60,"burst":3,"concurrent":2}]}`)
		for i := range 100 {
			if v, err := s.Inspect(t.Context(), call(fmt.Sprint("user", i),
				"read", "1")); err != nil || v.Action != pipeline.Allow {
				t.Fatalf("got %+v and the error %v, want allow", v, err)
			}
		}
		if n := len(s.limiter.principals); n != 100 || s.limiter.counters != 100 ||
			s.limiter.histories != 100 {
			t.Errorf("got %d principals, %d counters, %d histories, want 100 of each", n,
				s.limiter.counters, s.limiter.histories)
		}
		time.Sleep(5 * time.Minute)
		if _, err := s.Inspect(t.Context(), call("last", "read", "1")); err != nil {
			t.Fatal(err)
		}
		if n := len(s.limiter.principals); n != 1 || s.limiter.counters != 1 ||
			s.limiter.histories != 1 {
			t.Errorf("got %d principals, %d counters, %d histories, want 1 of each", n,
				s.limiter.counters,
				s.limiter.histories)
		}
	})
}

// When all counters are in use, a message that needs a new counter is denied. The counters of other
// principals are kept.
func TestTotalNumberOfCountersIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"principal","rate":1,"burst":2}],"loop":{"action":"off"}}`)
		denied := 0
		for i := range maxAllCounters + 10 {
			v, err := s.Inspect(t.Context(), call(fmt.Sprint(i), "read", "1"))
			if err != nil {
				t.Fatal(err)
			}
			if v.Action == pipeline.Deny {
				denied++
			}
		}
		if denied != 10 || s.limiter.counters != maxAllCounters {
			t.Errorf("got %d denied messages and %d counters, want 10 and %d", denied,
				s.limiter.counters, maxAllCounters)
		}
		time.Sleep(time.Minute)
		if v, _ := s.Inspect(t.Context(), call("last", "read", "1")); v.Action != pipeline.Allow {
			t.Errorf("got %+v after a minute without messages, want allow", v)
		}
	})
}

// A history that replaces another one does not count as one more.
func TestReplacedHistoriesAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[],"result":{"action":"off"}}`)
		for i := range maxHistories + 10 {
			m := call("user", "read", "1")
			m.Session = fmt.Sprint(i)
			if _, err := s.Inspect(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.limiter.histories; n != maxHistories {
			t.Errorf("%d histories are counted, want %d", n, maxHistories)
		}
	})
}
