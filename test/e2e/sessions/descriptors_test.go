package sessions

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestFewDescriptors connects 36 clients to a Gatekit that may have 64 open files. Gatekit admits
// 32 connections. All clients stay connected, so no descriptor becomes free. Nevertheless, each of
// them must get an answer or a clear refusal, and the audit log must have its records and
// checkpoints. When the clients have left, Gatekit serves others.
func TestFewDescriptors(t *testing.T) {
	const clients, files = 36, 64
	for _, pair := range eraPairs {
		for _, back := range []string{"stdio", "http"} {
			t.Run(fmt.Sprintf("%s before %s %s", pair.client, pair.server, back),
				func(t *testing.T) {
					g := harness.StartHTTPWithFiles(t, harness.ScriptedServerOver(t, "box",
						pair.server, back), files)
					var all sync.WaitGroup
					var mu sync.Mutex // guards the two variables below
					outcomes := map[string]int{}
					var conns []*mcptest.HTTP
					for i := range clients {
						conn := mcptest.NewHTTP(g.URL)
						conn.NoStream = true // so that a client needs one connection
						conns = append(conns, conn)
						all.Go(func() {
							outcome := callOnce(t, mcptest.NewClient(conn, pair.client), i)
							mu.Lock()
							defer mu.Unlock()
							outcomes[outcome]++
						})
					}
					all.Wait()
					t.Log(outcomes)
					const answered, refused = "answered", "HTTP 503 Service Unavailable"
					// net/http says this about an answer that came before its request: without a
					// free descriptor, Gatekit refuses a connection without waiting for a request.
					const early = "readLoopPeekFailLocked"
					// The few connections to a modern HTTP server may all be used by the
					// subscriptions of legacy sessions.
					if outcomes[answered] == 0 && (pair.client == mcptest.Modern ||
						pair.server != mcptest.Modern || back != "http") {
						t.Error("no client got an answer, want at least one")
					}
					refusals := outcomes[refused]
					for outcome, n := range outcomes {
						if strings.Contains(outcome, early) {
							refusals += n
						}
						if outcome != answered && outcome != refused &&
							!strings.Contains(outcome, early) &&
							!strings.HasPrefix(outcome, `server "box" is not available: `) {
							t.Errorf("%d clients got %q, want an answer or a clear refusal", n,
								outcome)
						}
					}
					if refusals > 0 && !strings.Contains(g.Stderr.String(),
						"connections refused") {
						t.Error("the log has no line about refused connections")
					}

					wantCallRecords(t, g, outcomes[answered])
					harness.WaitUntilAtMost(t, "records without a checkpoint", 0, func() int {
						return len(g.Records()) - checkpointSize(t, g)
					})

					for _, conn := range conns {
						conn.Vanish()
					}
					harness.WaitUntilAtMost(t, "refusals after the clients have left", 0,
						func() int {
							conn := mcptest.NewHTTP(g.URL)
							defer conn.Vanish()
							if callOnce(t, mcptest.NewClient(conn, pair.client), 0) == refused {
								return 1
							}
							return 0
						})
				})
		}
	}
}

// callOnce makes the handshake and calls a tool. It returns "answered", or the text of the error.
func callOnce(t *testing.T, c *mcptest.Client, tag int) string {
	m, err := c.Open(harness.Context(t))
	if err == nil && m.Error == nil {
		m, err = c.Tool(harness.Context(t), "box__echo", fmt.Sprintf(`{"tag":%d}`, tag))
	}
	switch {
	case err != nil:
		return err.Error()
	case m.Error != nil:
		return strings.TrimSuffix(mcptest.Text(m.Error, "message"), ": ")
	}
	return "answered"
}

// wantCallRecords fails the test unless the audit log has this number of results of the tool
// "echo", and an answer for each of its calls.
func wantCallRecords(t *testing.T, g *harness.Gatekit, results int) {
	t.Helper()
	got := map[string]int{}
	for _, r := range g.Records() {
		got[r.String()]++
	}
	calls := got["to_server request tools/call box echo pass"]
	if n := got["to_client response tools/call box echo pass"]; n != results {
		t.Errorf("the audit log has %d results of calls, want %d", n, results)
	}
	if n := got["to_client error tools/call box echo answer"]; calls != results+n {
		t.Errorf("the audit log has %d calls, %d results and %d errors, want an answer for each "+
			"call", calls, results, n)
	}
}

// checkpointSize returns the number of records that the last checkpoint of the audit log covers.
func checkpointSize(t *testing.T, g *harness.Gatekit) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl.tree", "checkpoint"))
	if os.IsNotExist(err) {
		return 0
	}
	lines := strings.Split(string(b), "\n") // the origin, the size and the root
	if err != nil || len(lines) < 3 {
		t.Fatalf("the checkpoint is %q, %v, want at least three lines", b, err)
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
