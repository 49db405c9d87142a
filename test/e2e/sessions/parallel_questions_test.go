package sessions

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// eraPairs has every pair of the era of a client and that of its server.
var eraPairs = []struct{ client, server string }{
	{mcptest.Modern, mcptest.Modern},
	{mcptest.Modern, "2025-11-25"},
	{"2025-11-25", mcptest.Modern},
	{"2025-11-25", "2025-11-25"},
}

// TestParallelCallsAreAskedByTheirOwnClient lets clients make eight concurrent calls of a tool that
// asks the user. All questions to a client are open at the same time. Each question must reach the
// client that made the call, and the tool must get this client's answer.
func TestParallelCallsAreAskedByTheirOwnClient(t *testing.T) {
	for _, pair := range eraPairs {
		for _, back := range []string{"stdio", "http"} {
			t.Run(fmt.Sprintf("%s before %s %s", pair.client, pair.server, back),
				func(t *testing.T) {
					config := harness.ScriptedServerOver(t, "box", pair.server, back)
					t.Run("over stdio", func(t *testing.T) {
						g, c := harness.SpawnStdio(t, config, pair.client)
						callInParallel(t, g, c)
					})
					t.Run("over http", func(t *testing.T) {
						g := harness.StartHTTP(t, config)
						callInParallel(t, g, g.Connect(pair.client), g.Connect(pair.client))
					})
					if pair.client == mcptest.Modern {
						return
					}
					t.Run("over http without a GET stream", func(t *testing.T) {
						g := harness.StartHTTP(t, config)
						callInParallel(t, g, connectWithoutStream(g, pair.client),
							connectWithoutStream(g, pair.client))
					})
				})
		}
	}
}

// connectWithoutStream connects a legacy client that opens no GET stream.
func connectWithoutStream(g *harness.Gatekit, revision string) *mcptest.Client {
	over := mcptest.NewHTTP(g.URL)
	over.NoStream = true
	c := mcptest.NewClient(over, revision)
	g.T.Cleanup(func() { c.Close() })
	return c
}

// callInParallel lets each client make two rounds of concurrent calls of a tool that asks the user.
// A client answers the questions of a round once it has received all of them.
func callInParallel(t *testing.T, g *harness.Gatekit, clients ...*mcptest.Client) {
	const parallel, rounds = 8, 2
	var all sync.WaitGroup
	for n, c := range clients {
		asked := make(chan struct{}, parallel*rounds)
		answer := make(chan struct{}) // closed when a round's calls have asked
		failed := make(chan struct{}) // closed when a question is missing
		var mu sync.Mutex
		c.Answer["elicitation/create"] = func(m mcptest.Message) string {
			mu.Lock()
			wait := answer
			mu.Unlock()
			asked <- struct{}{}
			select {
			case <-wait:
			case <-failed:
			}
			return fmt.Sprintf(`{"action":"accept","content":{"client":%d,"asked":%s}}`, n,
				mcptest.At(m.Params, "message"))
		}
		harness.Handshake(t, c)
		all.Go(func() {
			for round := range rounds {
				var calls sync.WaitGroup
				for i := range parallel {
					calls.Go(func() {
						tag := fmt.Sprintf("client %d, round %d, call %d", n, round, i)
						m, err := c.Tool(harness.Context(t), "box__ask", fmt.Sprintf(
							`{"method":"elicitation/create","params":{"message":%q,"requestedSchema":{"type":"object","properties":{}}}}`, tag))
						want := fmt.Sprintf(`{"client":%d,"asked":"%s"}`, n, tag)
						got := string(mcptest.At(m.Result, "structuredContent", "result",
							"content"))
						if err != nil || strings.Replace(got, "[box] ", "", 1) != want {
							t.Errorf("%s: got %s, %v; want %s", tag, harness.Clip(m.Raw), err,
								want)
						}
					})
				}
				for range parallel {
					select {
					case <-asked:
					case <-time.After(harness.Patience / 8):
						t.Errorf("client %d, round %d: got fewer than %d questions", n, round,
							parallel)
						close(failed)
						return
					}
				}
				mu.Lock()
				close(answer)
				answer = make(chan struct{})
				mu.Unlock()
				calls.Wait()
			}
		})
	}
	all.Wait()
	for _, r := range g.Records() {
		if strings.Contains(r.String(), "response elicitation/create") &&
			!strings.HasSuffix(r.String(), "pass") || strings.Contains(r.String(),
			"error elicitation/create") {
			t.Errorf("got the record %s, want no refused question", r)
		}
	}
}
