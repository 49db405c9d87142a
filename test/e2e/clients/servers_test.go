package clients

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestRealServersAnswerAsWithoutGatekit makes the same requests of the reference servers directly
// and through gatekit. Answers, server requests and notifications must be equal except for the
// exposed names.
func TestRealServersAnswerAsWithoutGatekit(t *testing.T) {
	r := harness.NewRealServers(t)
	steps := r.Steps()
	// exchange holds the messages that a server sent because of a request.
	type exchange struct {
		requests, notifications []mcptest.Message
		answer                  mcptest.Message
	}
	direct := map[harness.Step]exchange{}
	handshakes := map[string]mcptest.Message{} // by server
	lists := map[string][]json.RawMessage{}    // by method and server
	listed := map[string]string{"tools/list": "tools", "prompts/list": "prompts",
		"resources/list": "resources", "resources/templates/list": "resourceTemplates"}
	for _, name := range r.Names {
		c, end := r.Direct(t, name)
		for _, f := range c.Frames() {
			if f.Result != nil {
				handshakes[name] = f.Message
			}
		}
		harness.AwaitRootsRequest(t, name, c)
		for method, what := range listed {
			if mcptest.At(handshakes[name].Result, "capabilities",
				harness.CapabilityOf(method)) != nil {
				lists[method+" "+name] = harness.ListAll(t, c, method, what)
			}
		}
		for _, s := range steps {
			if s.Server == name {
				requests, notifications, answer := harness.Do(t, c, s.Method, s.Params)
				direct[s] = exchange{requests, notifications, answer}
			}
		}
		end()
	}

	os.Remove(r.Env["memory"][1]) // the file of the server memory, from the direct run
	harness.EachTransport(t, r.Config(), "2025-11-25", func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		os.Remove(r.Env["memory"][1]) // from the previous subtest
		r.Handshake(t, c)
		harness.AwaitRootsRequest(t, "everything", c)
		for method, what := range listed {
			got := harness.ListAll(t, c, method, what)
			i := 0
			for _, name := range r.Names {
				for _, want := range lists[method+" "+name] {
					if i < len(got) {
						wrap := func(item []byte) []byte {
							return fmt.Appendf(nil, `{"result":{%q:[%s]}}`, what, item)
						}
						harness.WantSameExceptNames(t, method+" of "+name, name, wrap(want),
							wrap(got[i]))
					}
					i++
				}
			}
			if i != len(got) || i == 0 {
				t.Errorf("%s: got %d items, want the %d of all servers", method, len(got), i)
			}
		}
		for _, s := range steps {
			want, exposed := direct[s], s.ViaGatekit()
			requests, notifications, answer := harness.Do(t, c, exposed.Method, exposed.Params)
			harness.WantSameExceptNames(t, s.String(), s.Server, harness.Normalize(want.answer),
				harness.Normalize(answer))
			for _, pair := range []struct {
				what      string
				want, got []mcptest.Message
			}{
				{"request", want.requests, requests},
				{"notification", want.notifications, notifications},
			} {
				if len(pair.want) != len(pair.got) {
					t.Errorf("%s: got %d %ss through gatekit, want %d as in the direct run", s,
						len(pair.got), pair.what, len(pair.want))
					continue
				}
				for i := range pair.want {
					wantSameServerMessage(t, s, pair.want[i], pair.got[i])
				}
			}
			g.WantRecords(fmt.Sprintf("to_server request %s %s %s pass", s.Method, s.Server,
				recordedName(s)))
		}
		handshake, _ := c.Await(harness.Context(t), 0, func(m mcptest.Message) bool {
			return m.Result != nil
		})
		for name, h := range handshakes {
			got := mcptest.Text(handshake.Result, "instructions")
			if want := mcptest.Text(h.Result, "instructions"); !strings.Contains(got, want) {
				t.Errorf("got the instructions %q, want the instructions of %s in them", got, name)
			}
			var caps map[string]json.RawMessage
			json.Unmarshal(mcptest.At(h.Result, "capabilities"), &caps)
			for k := range maps.Keys(caps) {
				if mcptest.At(handshake.Result, "capabilities", k) == nil {
					t.Errorf("the capability %s of %s is missing", k, name)
				}
			}
		}
	})
}

// wantSameServerMessage compares a request or notification that the server sent because of a step.
// Gatekit adds the server's name to _meta of a sampling request. The comparison leaves it out.
func wantSameServerMessage(t *testing.T, s harness.Step, want, got mcptest.Message) {
	t.Helper()
	if got.Method == "sampling/createMessage" && mcptest.At(want.Params, "_meta") == nil {
		meta := string(mcptest.At(got.Params, "_meta"))
		if !strings.Contains(meta, mcptest.Quote(s.Server)) {
			t.Errorf("%s: sampling has the _meta %s, want the server's name in it", s, meta)
		}
		got.Raw = []byte(strings.Replace(strings.Replace(string(got.Raw), `,"_meta":`+meta, "", 1),
			`"_meta":`+meta+`,`, "", 1))
	}
	harness.WantSameExceptNames(t, s.String()+": "+want.Method, s.Server, want.Raw, got.Raw)
}

// recordedName returns the name or URI that the audit log has for a step; "-" for none.
func recordedName(s harness.Step) string {
	for _, at := range [][]any{{"name"}, {"uri"}, {"ref", "name"}, {"ref", "uri"}} {
		if v := mcptest.Text([]byte(s.Params), at...); v != "" {
			return v
		}
	}
	return "-"
}
