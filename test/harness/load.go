package harness

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/test/mcptest"
)

// WaitForLog waits until gatekit has written a text to its log so often.
func (g *Gatekit) WaitForLog(text string, times int) {
	g.T.Helper()
	WaitUntilAtMost(g.T, fmt.Sprintf("reports of %q missing", text), 0, func() int {
		return times - min(times, strings.Count(g.Stderr.String(), text))
	})
}

// CallRepeatedly has clients of both eras make rounds of calls, at once and again and again, until
// end is called, which waits for them; or, each of them, until a round is false.
func (g *Gatekit) CallRepeatedly(clients int, round func(c *mcptest.Client) bool) (end func()) {
	g.T.Helper()
	var all sync.WaitGroup
	stop := make(chan struct{})
	for i := range clients {
		c := g.Client(Revisions[i%2])
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

// IsDenied says whether an answer is the error of what is refused.
func IsDenied(m mcptest.Message) bool { return string(mcptest.At(m.Error, "code")) == "-31000" }

// EchoAndDeniedLog is a round of calls while log is refused and echo is not, which are counted.
func EchoAndDeniedLog(t *testing.T, calls *atomic.Int64) func(c *mcptest.Client) bool {
	return func(c *mcptest.Client) bool {
		if m, err := c.Call(t.Context(), "tools/call", `{"name":"box__echo"}`); err != nil ||
			m.Error != nil {
			t.Errorf("a call was lost: %s, %v", m.Raw, err)
			return false
		}
		if m, err := c.Call(t.Context(), "tools/call", `{"name":"box__log"}`); err != nil ||
			!IsDenied(m) {
			t.Errorf("what is refused answered %s, %v", m.Raw, err)
			return false
		}
		calls.Add(2)
		return true
	}
}

// WaitUntilAtMost waits until a count has come down to want: it is another process that counts.
func WaitUntilAtMost(t *testing.T, what string, want int, count func() int) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		n := count()
		if n <= want {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d %s are left, want %d", n, what, want)
			return
		}
	}
}
