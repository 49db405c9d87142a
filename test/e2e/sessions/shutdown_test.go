package sessions

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestStopAnswersEveryCall stops gatekit while 64 waiting calls are in flight. While gatekit waits
// for the calls, the client cancels 4 of them. This ends 4 calls of the tool "cancelled", which get
// results. The other 60 waiting calls get an error that is recorded. A call that is made after
// SIGTERM also gets an error.
func TestStopAnswersEveryCall(t *testing.T) {
	harness.Long(t, "waits for calls and for shutdown_timeout")
	const waiting, ending = 60, 4
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		stop := func(t *testing.T, g *harness.Gatekit, c *mcptest.Client, cancel func(id string)) {
			harness.Handshake(t, c)
			mark := c.Mark()
			for i := range waiting + ending {
				tag := fmt.Sprint(i)
				harness.StartWaitingCall(t, c, "box", mcptest.Quote("w"+tag), tag)
			}
			for i := range ending { // each ends when the waiting call with its tag is cancelled
				c.Send(c.Request(fmt.Sprintf(`"c%d"`, i), "tools/call", fmt.Sprintf(
					`{"name":"box__cancelled","arguments":{"tag":"%d"}}`, i)))
			}
			harness.WaitUntilAtMost(t, "calls that gatekit has not received", 0, func() int {
				missing := ending // over HTTP, gatekit may receive requests in any order
				for _, r := range g.Records() {
					if r.Direction == "to_server" && r.Kind == "request" && r.Name == "cancelled" {
						missing--
					}
				}
				return missing
			})
			g.Cmd.Process.Signal(syscall.SIGTERM)
			g.WaitForLog("shutting down", 1)
			late, err := c.Call(harness.Context(t), "tools/call", `{"name":"box__echo"}`)
			if err != nil || !strings.Contains(mcptest.Text(late.Error, "message"),
				"shutting down") {
				t.Errorf("a call after SIGTERM got %s, %v; want an error with \"shutting down\"",
					late.Raw, err)
			}
			for i := range ending {
				cancel(fmt.Sprintf(`"w%d"`, i))
			}
			for i := range ending {
				m, err := c.Reply(harness.Context(t), mark, fmt.Sprintf(`"c%d"`, i))
				if err != nil || m.Result == nil {
					t.Errorf("call c%d, which ends in time, got %s, %v; want a result", i, m.Raw,
						err)
				}
			}
			for i := range waiting {
				id := fmt.Sprintf(`"w%d"`, i+ending)
				m, err := c.Reply(harness.Context(t), mark, id)
				if err != nil || string(mcptest.At(m.Error, "code")) != "-32603" ||
					!strings.Contains(mcptest.Text(m.Error, "message"), "shutting down") {
					t.Errorf("call %s got %s, %v; want -32603 with \"shutting down\"", id, m.Raw,
						err)
				}
			}
			<-g.Exited
			answers := 0
			for _, r := range g.Records() {
				if r.Direction == "to_client" && r.Kind == "error" && r.Name == "wait" {
					answers++
				}
			}
			if answers != waiting {
				t.Errorf("the log has %d error answers of the ended calls, want %d", answers,
					waiting)
			}
		}
		// Everything before the end of the remaining calls must happen in this time, also on a busy
		// machine.
		const timeout = "shutdown_timeout = \"10s\"\n"
		server := harness.ScriptedServer("box", "-revisions", revision)
		t.Run(revision+"/stdio", func(t *testing.T) {
			t.Parallel()
			g, c := harness.SpawnStdio(t, "[listen]\n"+timeout+server, revision)
			stop(t, g, c, func(id string) {
				c.Notify("notifications/cancelled", `{"requestId":`+id+`}`)
			})
		})
		t.Run(revision+"/http", func(t *testing.T) {
			t.Parallel()
			g := harness.StartHTTP(t, timeout+server)
			h := mcptest.NewHTTP(g.URL)
			c := mcptest.NewClient(h, revision)
			t.Cleanup(func() { c.Close() })
			stop(t, g, c, func(id string) {
				if revision == mcptest.Modern {
					h.Drop(id)
					return
				}
				c.Notify("notifications/cancelled", `{"requestId":`+id+`}`)
			})
		})
	}
}
