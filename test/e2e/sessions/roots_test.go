package sessions

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// inquisitiveServer returns a legacy server that asks for the roots in each request for a list of
// tools, a prompt, a resource or a tool. The result of the request has the answer as its text.
// Published servers ask in tools/list, too (mcp-shrimp-task-manager).
func inquisitiveServer() *mcptest.Server {
	s := mcptest.Toolbox("box", "2025-11-25")
	for method, result := range map[string]string{
		"tools/list": `{"tools":[{"name":"echo","description":%s,` +
			`"inputSchema":{"type":"object"}}]}`,
		"prompts/get":    `{"messages":[{"role":"user","content":{"type":"text","text":%s}}]}`,
		"resources/read": `{"contents":[{"uri":"test://box/a","text":%s}]}`,
		"tools/call":     `{"content":[{"type":"text","text":%s}]}`,
	} {
		s.Handle[method] = func(c *mcptest.Call) {
			roots, fault := c.Ask("q", "roots/list", `{}`)
			c.Result(fmt.Sprintf(result, mcptest.Quote(string(roots)+string(fault))))
		}
	}
	return s
}

// TestServerAsksForTheRootsDuringAnyRequest connects clients to the server above. A modern client
// can be asked in each of its requests except in tools/list. There, the server gets an error in
// time, and the client gets the list. If the client has no roots, the server gets an empty list at
// once.
func TestServerAsksForTheRootsDuringAnyRequest(t *testing.T) {
	config := harness.StdioServer("box", []string{os.Args[0], "inquisitive-server"}, "GORACE",
		"atexit_sleep_ms=0") + "[names]\nprefix = \"never\"\n"
	const roots = `{"roots":[{"uri":"file:///work","name":"work"}]}`
	const none = `{"roots":[]}`
	const asked, passed = "to_client request roots/list box - pass",
		"to_server response roots/list box - pass"
	parked := func(method string) string { return "to_client response " + method + " box - park" }
	requests := []struct{ method, params string }{
		{"tools/list", `{}`}, {"prompts/get", `{"name":"plain"}`},
		{"resources/read", `{"uri":"test://box/a"}`}, {"tools/call", `{"name":"echo"}`}}
	for _, test := range []struct {
		name, revision, capabilities string
		// by method; "" stands for all other methods
		answer  map[string]string   // the text of the result
		records map[string][]string // of the question and its answer
	}{
		{"modern client with roots", mcptest.Modern, `{"roots":{}}`,
			map[string]string{"": roots, "tools/list": "the client could not be asked"},
			map[string][]string{
				"tools/list":     {asked, "to_server error roots/list box - answer"},
				"prompts/get":    {asked, parked("prompts/get"), passed},
				"resources/read": {asked, parked("resources/read"), passed},
				"tools/call":     {asked, parked("tools/call"), passed}}},
		{"modern client without roots", mcptest.Modern, `{}`, map[string]string{"": none},
			map[string][]string{"": {asked, "to_server response roots/list box - answer"}}},
		{"legacy client with roots", "2025-11-25", `{"roots":{}}`, map[string]string{"": roots},
			map[string][]string{"": {asked, passed}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			harness.EachTransport(t, config, test.revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				c.Capabilities = test.capabilities
				harness.Handshake(t, c)
				for _, r := range requests {
					before := len(g.Records())
					m := harness.Request(t, c, r.method, r.params)
					want, ok := test.answer[r.method]
					if !ok {
						want = test.answer[""]
					}
					encoded := strings.Trim(mcptest.Quote(want), `"`)
					if m.Result == nil || !strings.Contains(string(m.Raw), encoded) {
						t.Errorf("%s got %s, want a result with the text %s", r.method, m.Raw, want)
					}
					var records []string
					for _, record := range g.Records()[before:] {
						if record.Method == "roots/list" || record.Action == "park" {
							records = append(records, record.String())
						}
					}
					wantRecords, ok := test.records[r.method]
					if !ok {
						wantRecords = test.records[""]
					}
					if !slices.Equal(records, wantRecords) {
						t.Errorf("%s: the audit log has\n\t%s\nwant\n\t%s", r.method,
							strings.Join(records, "\n\t"), strings.Join(wantRecords, "\n\t"))
					}
				}
			})
		})
	}
}
