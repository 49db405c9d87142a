package sessions

import (
	"fmt"
	"sync"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestClientsWithEqualIDsGetTheirOwnAnswers makes concurrent calls of four clients that use the
// same request ids. Each client must get the answers to its own calls. If the test runs with -race,
// the gatekit binary is also built with -race.
func TestClientsWithEqualIDsGetTheirOwnAnswers(t *testing.T) {
	harness.Long(t, "16,000 calls")
	const clients, calls, concurrent = 4, 1000, 32
	for _, route := range harness.Routes {
		t.Run(route.Name, func(t *testing.T) {
			g := harness.StartHTTP(t, harness.ScriptedServerOver(t, "box", route.Revision,
				route.Back))
			var all sync.WaitGroup
			for n := range clients {
				c := g.Connect(route.Revision)
				c.Answer["roots/list"] = func(mcptest.Message) string {
					return fmt.Sprintf(`{"roots":[{"uri":"file:///%d"}]}`, n)
				}
				harness.Handshake(t, c)
				slots := make(chan struct{}, concurrent)
				all.Go(func() {
					var pending sync.WaitGroup
					for i := range calls {
						slots <- struct{}{}
						pending.Go(func() {
							defer func() { <-slots }()
							tag, id := fmt.Sprintf("%d-%d", n, i), fmt.Sprint(i+1000)
							params, want := fmt.Sprintf(
								`{"name":"box__echo","arguments":{"tag":%q}}`, tag), tag
							// For some calls the server sends a request, which must reach the
							// caller.
							if i%50 == 0 {
								params, want = `{"name":"box__ask","arguments":{"method":"roots/list","params":{}}}`, fmt.Sprintf("file:///%d", n)
							}
							var m mcptest.Message
							var err error
							if i%50 == 0 { // Do would not answer a modern server's question
								m, err = c.Call(harness.Context(t), "tools/call", params)
							} else {
								m, err = c.Do(harness.Context(t), id, "tools/call", params)
							}
							got := mcptest.Text(m.Result, "structuredContent", "tag") +
								mcptest.Text(m.Result, "structuredContent", "result", "roots", 0,
									"uri")
							if err != nil || got != want {
								t.Errorf("client %d: got %s, want %s: %s, %v", n, got, want,
									harness.Clip(m.Raw), err)
							}
						})
					}
					pending.Wait()
				})
			}
			all.Wait()
			passed := 0
			for _, r := range g.Records() {
				if r.String() == "to_client response tools/call box echo pass" {
					passed++
				}
			}
			if want := clients * calls * 49 / 50; passed != want {
				t.Errorf("the audit log has %d answers of the tool echo, want %d", passed, want)
			}
		})
	}
}
