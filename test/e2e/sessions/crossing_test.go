package sessions

import (
	"fmt"
	"sync"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// Four clients count their requests alike and call at the same time; every answer must be its own
// caller's. The binary has the race detector when the test has.
func TestFourClientsWithEqualIDsGetTheirOwnAnswers(t *testing.T) {
	harness.Long(t, "16,000 calls")
	const clients, calls, atOnce = 4, 1000, 32
	for _, wire := range harness.Routes {
		t.Run(wire.Name, func(t *testing.T) {
			g := harness.StartHTTP(t, harness.ScriptedServerOver(t, "box", wire.Revision,
				wire.Back))
			var all sync.WaitGroup
			for n := range clients {
				c := g.Connect(wire.Revision)
				c.Answer["roots/list"] = func(mcptest.Message) string {
					return fmt.Sprintf(`{"roots":[{"uri":"file:///%d"}]}`, n)
				}
				harness.Handshake(t, c)
				slots := make(chan struct{}, atOnce)
				all.Go(func() {
					var mine sync.WaitGroup
					for i := range calls {
						slots <- struct{}{}
						mine.Go(func() {
							defer func() { <-slots }()
							tag, id := fmt.Sprintf("%d-%d", n, i), fmt.Sprint(i+1000)
							params, want := fmt.Sprintf(
								`{"name":"box__echo","arguments":{"tag":%q}}`, tag), tag
							// some ask back: the question must reach its own caller, too
							if i%50 == 0 {
								params, want = `{"name":"box__ask","arguments":{"method":"roots/list","params":{}}}`, fmt.Sprintf("file:///%d", n)
							}
							var m mcptest.Message
							var err error
							if i%50 == 0 {
								m, err = c.Call(harness.Context(t), "tools/call", params)
							} else {
								m, err = c.Do(harness.Context(t), id, "tools/call", params)
							}
							got := mcptest.Text(m.Result, "structuredContent", "tag") +
								mcptest.Text(m.Result, "structuredContent", "result", "roots", 0,
									"uri")
							if err != nil || got != want {
								t.Errorf("client %d got %s, want %s: %s %v", n, got, want,
									harness.Clip(m.Raw), err)
							}
						})
					}
					mine.Wait()
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
				t.Errorf("%d answers are recorded, want %d", passed, want)
			}
		})
	}
}
