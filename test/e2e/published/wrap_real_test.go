package published

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// What wrap has by default refuses and changes nothing of what clients do with fourteen servers of
// many makers: every list, and a call of every tool.
func TestTheDefaultsOfWrapDoNotAnnoy(t *testing.T) {
	r := fourteen(t)
	turns := make(chan struct{}, 3) // that many servers at a time
	for _, name := range r.Names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			t.Cleanup(func() { <-turns })
			g, c := harness.Wrap(t, "2025-11-25", nil, r.Commands[name], r.Env[name]...)
			c.Capabilities = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`
			r.Handshake(t, c)
			tools := harness.ListAll(t, c, "tools/list", "tools")
			for _, method := range []string{"prompts/list", "resources/list",
				"resources/templates/list"} {
				harness.Request(t, c, method, `{}`)
			}
			for _, tool := range tools {
				name := mcptest.Text(tool, "name")
				if name == "trigger-long-running-operation" {
					continue
				}
				harness.Request(t, c, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name,
					least(mcptest.At(tool, "inputSchema"))))
				g.WantRecords("to_server request tools/call node " + name + " pass")
			}
			g.WantNothingChanged()
		})
	}
}

// The three servers of the specification's authors answer under wrap what they answer directly:
// sampling, elicitation and roots among it.
func TestRealServersAnswerUnderWrapAsTheyDoDirectly(t *testing.T) {
	r := harness.NewRealServers(t)
	for _, name := range r.Names {
		t.Run(name, func(t *testing.T) {
			direct, end := r.Direct(t, name)
			harness.AwaitRootsRequest(t, name, direct)
			answers := map[harness.Step]mcptest.Message{}
			for _, s := range r.Steps() {
				if s.Server == name {
					_, _, answers[s] = harness.Do(t, direct, s.Method, s.Params)
				}
			}
			end()
			if name == "memory" {
				os.Remove(r.Env[name][1])
			}
			g, c := harness.Wrap(t, "2025-11-25", nil, r.Commands[name], r.Env[name]...)
			r.Handshake(t, c)
			harness.AwaitRootsRequest(t, name, c)
			for _, s := range r.Steps() {
				switch {
				case s.Server != name:
				case strings.Contains(s.Params, "/etc/passwd"): // the server refuses it, too
					harness.WantDenied(t, c, s.Method, s.Params)
					g.WantRecords("to_server request tools/call node read_text_file deny")
					return
				default:
					_, _, a := harness.Do(t, c, s.Method, s.Params)
					if got, want := string(harness.Normalize(a)), string(
						harness.Normalize(answers[s])); got != want {
						t.Errorf("%s\ndirect  %s\nwrapped %s", s, harness.Clip([]byte(want)),
							harness.Clip([]byte(got)))
					}
				}
			}
			g.WantNothingChanged()
		})
	}
}
