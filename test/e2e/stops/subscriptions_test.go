package stops

import (
	"fmt"
	"slices"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// A subscription ends with the error of the stop. After the resume, the client can subscribe again.
func TestStopEndsSubscriptions(t *testing.T) {
	for _, back := range harness.Revisions {
		for _, front := range []string{"stdio", "http"} {
			t.Run(back+" before "+front, func(t *testing.T) {
				g, c := start(t, harness.ScriptedServer("box", "-revisions", back), mcptest.Modern,
					front)
				for i, id := range []string{"71", "72"} {
					answer, mark := make(chan mcptest.Message, 1), c.Mark()
					go func() {
						m, err := c.Do(harness.Context(t), id, "subscriptions/listen",
							`{"notifications":{"toolsListChanged":true}}`)
						if err != nil {
							t.Errorf("the subscription got no answer: %v", err)
						}
						answer <- m
					}()
					if _, err := c.AwaitMethod(harness.Context(t), mark,
						"notifications/subscriptions/acknowledged"); err != nil {
						t.Fatal(err)
					}
					mustGatekit(t, g, "stop", "--reason", fmt.Sprint("stop ", i))
					if m := <-answer; stopOf(m) == "" {
						t.Errorf("the subscription got %s, want the error of the stop", m.Raw)
					}
					mustGatekit(t, g, "resume")
				}
				harness.CallTool(t, c, "box__echo", "{}")
				wantEvents(t, g, "stop_traffic stop 0", "resume_traffic stop 0",
					"stop_traffic stop 1", "resume_traffic stop 1")
			})
		}
	}
}

// While a stop is in force, no message has a record of having passed.
func TestNothingPassesWhileStopped(t *testing.T) {
	for _, client := range harness.Revisions {
		for _, front := range []string{"stdio", "http"} {
			t.Run(client+" over "+front, func(t *testing.T) {
				g, c := start(t, harness.ScriptedServer("box"), client, front)
				harness.CallTool(t, c, "box__echo", "{}")
				mustGatekit(t, g, "stop", "--reason", "r")
				for _, request := range []struct{ method, params string }{
					{"tools/list", "{}"}, {"prompts/list", "{}"}, {"resources/list", "{}"},
					{"tools/call", `{"name":"box__echo"}`}, {"resources/read", `{"uri":"x:y"}`},
					{"prompts/get", `{"name":"box__x"}`}, {"acme/x", "{}"}, {"ping", "{}"},
					{"completion/complete", `{"ref":{"type":"ref/prompt","name":"box__x"},` +
						`"argument":{"name":"a","value":"b"}}`},
				} {
					if m := harness.Request(t, c, request.method,
						request.params); stopOf(m) == "" {
						t.Errorf("%s got %s, want the error of the stop", request.method, m.Raw)
					}
				}
				for _, method := range []string{"notifications/roots/list_changed",
					"notifications/progress", "acme/y"} {
					c.Notify(method, `{"progressToken":1,"progress":1}`)
				}
				harness.Request(t, c, "tools/list", "{}")
				mustGatekit(t, g, "resume")
				harness.CallTool(t, c, "box__echo", "{}")
				stopped := false
				for _, r := range records(t, g) {
					switch r.Action {
					case "stop_traffic":
						stopped = true
					case "resume_traffic":
						stopped = false
					}
					if stopped && slices.Contains([]string{"pass", "modify", "hide"}, r.Action) {
						t.Errorf("while stopped, the log has the record %s", r.line)
					}
				}
			})
		}
	}
}
