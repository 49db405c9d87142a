package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// waitingClient is a client whose calls are in flight.
type waitingClient struct {
	pid  int             // the gatekit that the client has started; 0 over HTTP
	ends func() []string // waits until every call has ended, and returns how each call ended
}

// TestStopAnswersEveryCallOfRealClients stops gatekit while 64 calls of a real client wait. Each
// call must get an error when shutdown_timeout is over, and each error must be recorded.
func TestStopAnswersEveryCallOfRealClients(t *testing.T) {
	harness.Long(t, "waits for shutdown_timeout")
	const calls, timeout = 64, 2 * time.Second
	for _, sdk := range []string{"go", "typescript"} {
		for _, revision := range []string{"2025-11-25", mcptest.Modern} {
			for _, front := range []string{"stdio", "http"} {
				t.Run(fmt.Sprintf("%s %s over %s", sdk, revision, front), func(t *testing.T) {
					setting := fmt.Sprintf("shutdown_timeout = %q\n", timeout)
					server := harness.ScriptedServer("box", "-revisions", revision)
					var g *harness.Gatekit
					if front == "http" {
						g = harness.StartHTTP(t, setting+server)
					} else {
						g = harness.Prepare(t, "[listen]\n"+setting+server)
						t.Cleanup(g.CheckExit)
					}
					start := startGoCalls
					if sdk == "typescript" {
						start = startNodeCalls
					}
					c := start(t, g, revision, calls)
					harness.WaitUntilAtMost(t, "calls that gatekit has not recorded", 0,
						func() int { return calls - countRecords(g, "to_server") })
					pid := c.pid
					if pid == 0 {
						pid = g.Cmd.Process.Pid
					}
					if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					ends := c.ends()
					if waited := time.Since(began); waited > timeout+10*time.Second {
						t.Errorf("the calls ended %v after SIGTERM, want about %v", waited, timeout)
					}
					if len(ends) != calls {
						t.Errorf("%d calls ended, want %d", len(ends), calls)
					}
					for i, end := range ends {
						if !strings.Contains(end, "shutting down") {
							t.Errorf("call %d ended with %q, want the error of the shutdown", i,
								end)
						}
					}
					if front == "http" {
						<-g.Exited
					}
					if n := countRecords(g, "to_client"); n != calls {
						t.Errorf("the log has %d answers, want %d", n, calls)
					}
				})
			}
		}
	}
}

// countRecords returns how many messages about the tool "wait" the log has in a direction. Progress
// reports are not counted.
func countRecords(g *harness.Gatekit, direction string) (n int) {
	for _, r := range g.Records() {
		if r.Direction == direction && r.Name == "wait" && r.Kind != "notification" {
			n++
		}
	}
	return n
}

// startGoCalls makes calls with a client of the Go SDK, which speaks the given revision.
func startGoCalls(t *testing.T, g *harness.Gatekit, revision string, calls int) *waitingClient {
	t.Helper()
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: g.URL}
	if g.URL == "" {
		transport = &mcp.CommandTransport{Command: g.Cmd}
	}
	ctx := harness.Context(t)
	s, err := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, nil).Connect(ctx,
		transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if got := s.InitializeResult().ProtocolVersion; got != revision {
		t.Fatalf("the client speaks %s, want %s", got, revision)
	}
	ends := make([]string, calls)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "box__wait",
				Arguments: map[string]any{"tag": strconv.Itoa(i)}})
			ends[i] = fmt.Sprint(err)
		})
	}
	c := &waitingClient{ends: func() []string {
		all.Wait()
		return ends
	}}
	if g.URL == "" {
		c.pid = g.Cmd.Process.Pid
	}
	return c
}

// startNodeCalls makes calls with a client of the TypeScript SDK: of version 1 for a legacy
// revision, and of version 2 for the modern revision.
func startNodeCalls(t *testing.T, g *harness.Gatekit, revision string, calls int) *waitingClient {
	t.Helper()
	sdk, era, target := "v1", "legacy", []string{g.URL}
	if revision == mcptest.Modern {
		sdk, era = "v2", "modern"
	}
	if g.URL == "" {
		target = []string{"--", g.Cmd.Path, "run"}
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "node", append([]string{peers.Top() +
		"/test/e2e/clients/stop.mjs", sdk, strconv.Itoa(calls)}, target...)...)
	cmd.Env = append(os.Environ(), "NODE_MODULES="+peers.Node(t).Path())
	cmd.Dir = g.Dir
	stderr := &harness.Output{}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	next := func() string {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the client ended early: %v\n%s", lines.Err(), stderr)
		}
		return lines.Text()
	}
	pid, err := strconv.Atoi(next())
	if err != nil {
		t.Fatal(err)
	}
	if got := next(); got != era {
		t.Fatalf("the client is %s, want %s", got, era)
	}
	return &waitingClient{pid, func() (ends []string) {
		t.Helper()
		if err := json.Unmarshal([]byte(next()), &ends); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the client ended with %v, want success\n%s", err, stderr)
		}
		return ends
	}}
}
