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

// WaitForLog waits until gatekit has written the text to stderr at least as often as times says.
func (g *Gatekit) WaitForLog(text string, times int) {
	g.T.Helper()
	WaitUntilAtMost(g.T, fmt.Sprintf("missing log lines with %q", text), 0, func() int {
		return times - min(times, strings.Count(g.Stderr.String(), text))
	})
}

// CallRepeatedly connects clients of both eras. Each client calls round again and again,
// concurrently with the other clients. A client stops when round returns false. The function end
// stops all clients and waits for them.
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

// IsDenied reports whether an answer is the error of a denial.
func IsDenied(m mcptest.Message) bool { return string(mcptest.At(m.Error, "code")) == "-31000" }

// EchoAndDeniedLog returns a round of two calls for CallRepeatedly. The call of the tool "echo"
// must pass, and the call of the tool "log" must be denied. calls counts both.
func EchoAndDeniedLog(t *testing.T, calls *atomic.Int64) func(c *mcptest.Client) bool {
	return func(c *mcptest.Client) bool {
		if m, err := c.Call(t.Context(), "tools/call", `{"name":"box__echo"}`); err != nil ||
			m.Error != nil {
			t.Errorf("a call of echo got %s, %v, want a result", m.Raw, err)
			return false
		}
		if m, err := c.Call(t.Context(), "tools/call", `{"name":"box__log"}`); err != nil ||
			!IsDenied(m) {
			t.Errorf("a call of log got %s, %v, want a denial", m.Raw, err)
			return false
		}
		calls.Add(2)
		return true
	}
}

// WaitUntilAtMost polls count until it returns at most want. It is for states that send no event,
// such as the states of other processes. The parameter what names the counted things.
func WaitUntilAtMost(t *testing.T, what string, want int, count func() int) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		n := count()
		if n <= want {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: got %d after %s, want at most %d", what, n, Patience, want)
			return
		}
	}
}
