package e2e

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gatekit/test/mcptest"
)

// says waits until gatekit has written a text to its log so often.
func (g *gatekit) says(text string, times int) {
	g.t.Helper()
	settled(g.t, fmt.Sprintf("reports of %q missing", text), 0, func() int {
		return times - min(times, strings.Count(g.stderr.String(), text))
	})
}

// meanwhile has clients of both eras make rounds of calls, at once and again and again, until end
// is called, which waits for them; or, each of them, until a round is false.
func (g *gatekit) meanwhile(clients int, round func(c *mcptest.Client) bool) (end func()) {
	g.t.Helper()
	var all sync.WaitGroup
	stop := make(chan struct{})
	for i := range clients {
		c := g.client(eras[i%2])
		all.Go(func() {
			for round(c) {
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(stop)
		all.Wait()
	})
}

// wasDenied says whether an answer is the error of what is refused.
func wasDenied(m mcptest.Message) bool { return string(mcptest.At(m.Error, "code")) == "-31000" }

// echoAndLog is a round of calls while log is refused and echo is not, which are counted.
func echoAndLog(t *testing.T, calls *atomic.Int64) func(c *mcptest.Client) bool {
	return func(c *mcptest.Client) bool {
		if m, err := c.Call(t.Context(), "tools/call", `{"name":"box__echo"}`); err != nil ||
			m.Error != nil {
			t.Errorf("a call was lost: %s, %v", m.Raw, err)
			return false
		}
		if m, err := c.Call(t.Context(), "tools/call", `{"name":"box__log"}`); err != nil ||
			!wasDenied(m) {
			t.Errorf("what is refused answered %s, %v", m.Raw, err)
			return false
		}
		calls.Add(2)
		return true
	}
}
