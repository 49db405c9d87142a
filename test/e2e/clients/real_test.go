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

func TestThreeRealServersAnswerThroughGatekitAsTheyDoDirectly(t *testing.T) {
	r := harness.NewRealServers(t)
	steps := r.Steps()
	// What the servers said directly is the measure for every way through gatekit.
	type said struct {
		questions, others []mcptest.Message
		answer            mcptest.Message
	}
	measure, hello, lists := map[harness.Step]said{}, map[string]mcptest.Message{},
		map[string][]json.RawMessage{}
	listed := map[string]string{"tools/list": "tools", "prompts/list": "prompts",
		"resources/list": "resources", "resources/templates/list": "resourceTemplates"}
	for _, name := range r.Names {
		c, end := r.Direct(t, name)
		for _, f := range c.Frames() {
			if f.Result != nil {
				hello[name] = f.Message
			}
		}
		harness.AwaitRootsRequest(t, name, c)
		for method, what := range listed {
			if mcptest.At(hello[name].Result, "capabilities", harness.CapabilityOf(method)) != nil {
				lists[method+" "+name] = harness.ListAll(t, c, method, what)
			}
		}
		for _, s := range steps {
			if s.Server == name {
				q, o, a := harness.Do(t, c, s.Method, s.Params)
				measure[s] = said{q, o, a}
			}
		}
		end()
	}

	os.Remove(r.Env["memory"][1])
	harness.EachTransport(t, r.Config(), "2025-11-25", func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		os.Remove(r.Env["memory"][1]) // what the way before left
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
				t.Errorf("%s has %d items, the servers together have %d", method, len(got), i)
			}
		}
		for _, s := range steps {
			want, put := measure[s], s.ViaGatekit()
			q, o, a := harness.Do(t, c, put.Method, put.Params)
			harness.WantSameExceptNames(t, s.String(), s.Server, harness.Normalize(want.answer),
				harness.Normalize(a))
			for _, pair := range []struct {
				what      string
				want, got []mcptest.Message
			}{{"question", want.questions, q}, {"notification", want.others, o}} {
				if len(pair.want) != len(pair.got) {
					t.Errorf("%s: %d %ss directly, %d through gatekit", s, len(pair.want),
						pair.what, len(pair.got))
					continue
				}
				for i := range pair.want {
					sampled(t, s, pair.want[i], pair.got[i])
				}
			}
			g.WantRecords(fmt.Sprintf("to_server request %s %s %s pass", s.Method, s.Server,
				recordedName(s)))
		}
		instructions, _ := c.Await(harness.Context(t), 0, func(m mcptest.Message) bool {
			return m.Result != nil
		})
		for name, h := range hello {
			if want := mcptest.Text(h.Result,
				"instructions"); !strings.Contains(mcptest.Text(instructions.Result,
				"instructions"), want) {
				t.Errorf("the instructions of %s are lost", name)
			}
			var caps map[string]json.RawMessage
			json.Unmarshal(mcptest.At(h.Result, "capabilities"), &caps)
			for k := range maps.Keys(caps) {
				if mcptest.At(instructions.Result, "capabilities", k) == nil {
					t.Errorf("the capability %s of %s is lost (D16)", k, name)
				}
			}
		}
	})
}

// sampled compares a question or notification that came with a step. Sampling carries its server in
// _meta, which it has not got directly.
func sampled(t *testing.T, s harness.Step, want, got mcptest.Message) {
	t.Helper()
	if got.Method == "sampling/createMessage" && mcptest.At(want.Params, "_meta") == nil {
		meta := string(mcptest.At(got.Params, "_meta"))
		if !strings.Contains(meta, mcptest.Quote(s.Server)) {
			t.Errorf("%s: sampling does not say in _meta which server asks: %s", s, meta)
		}
		got.Raw = []byte(strings.Replace(strings.Replace(string(got.Raw), `,"_meta":`+meta, "", 1),
			`"_meta":`+meta+`,`, "", 1))
	}
	harness.WantSameExceptNames(t, s.String()+": "+want.Method, s.Server, want.Raw, got.Raw)
}

func recordedName(s harness.Step) string {
	for _, at := range [][]any{{"name"}, {"uri"}, {"ref", "name"}, {"ref", "uri"}} {
		if v := mcptest.Text([]byte(s.Params), at...); v != "" {
			return v
		}
	}
	return "-"
}
