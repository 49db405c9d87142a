package published

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// published has servers that many makers have published on npm.
var published = []struct {
	name string   // in the configuration
	main string   // the file that node runs
	args []string // needed to start
	env  []string // needed to start; names and values in turn
}{
	{name: "chart", main: "@antv/mcp-server-chart/build/index.js"},
	{name: "context7", main: "@upstash/context7-mcp/dist/index.js"},
	{name: "github", main: "@modelcontextprotocol/server-github/dist/index.js",
		env: []string{"GITHUB_PERSONAL_ACCESS_TOKEN", "x"}},
	{name: "gitlab", main: "@modelcontextprotocol/server-gitlab/dist/index.js",
		env: []string{"GITLAB_PERSONAL_ACCESS_TOKEN", "x"}},
	{name: "maps", main: "@modelcontextprotocol/server-google-maps/dist/index.js",
		env: []string{"GOOGLE_MAPS_API_KEY", "x"}},
	{name: "notion", main: "@notionhq/notion-mcp-server/bin/cli.mjs", env: []string{"NOTION_TOKEN",
		"x"}},
	{name: "postgres", main: "@modelcontextprotocol/server-postgres/dist/index.js",
		args: []string{"postgresql://localhost/x"}},
	{name: "searxng", main: "mcp-searxng/dist/cli.js", env: []string{"SEARXNG_URL",
		"http://localhost:1"}},
	{name: "slack", main: "@modelcontextprotocol/server-slack/dist/index.js",
		env: []string{"SLACK_BOT_TOKEN", "x", "SLACK_TEAM_ID", "x"}},
	{name: "tavily", main: "tavily-mcp/build/index.js", env: []string{"TAVILY_API_KEY", "x"}},
	{name: "thinking", main: "@modelcontextprotocol/server-sequential-thinking/dist/index.js"},
}

// allServers returns the published servers and the three reference servers, 14 in all. Their host
// name lookups fail (test/servers/offline.cjs).
func allServers(t *testing.T) harness.RealServers {
	r, modules := harness.NewRealServers(t), peers.Published(t)
	for _, p := range published {
		r.Names = append(r.Names, p.name)
		r.Commands[p.name] = append([]string{"node", modules.Path(p.main)}, p.args...)
		r.Env[p.name] = p.env
	}
	for _, n := range r.Names {
		r.Commands[n] = slices.Insert(r.Commands[n], 1, "-r", filepath.Join(peers.Top(),
			"test", "servers", "offline.cjs"))
		r.Env[n] = append(r.Env[n], "HOME", r.Dir)
	}
	return r
}

// TestModernClientUsesPublishedServers lets one modern client use 14 real servers, all of them
// legacy. It calls every tool once, with the smallest arguments that the tool's schema allows. The
// servers are offline, so many calls fail. Every error must come from the server, not from Gatekit.
func TestModernClientUsesPublishedServers(t *testing.T) {
	r := allServers(t)
	g := harness.StartHTTP(t, r.Config())
	c := g.Client(mcptest.Modern)
	tools := map[string][]json.RawMessage{}
	// A list lacks the items of servers that do not answer within 20 s, so the test lists again.
	harness.WaitUntilAtMost(t, "servers without tools", 0, func() int {
		clear(tools)
		for _, tool := range harness.ListAll(t, c, "tools/list", "tools") {
			server, _, _ := strings.Cut(mcptest.Text(tool, "name"), "__")
			tools[server] = append(tools[server], tool)
		}
		return len(r.Names) - len(tools)
	})
	if got, want := slices.Sorted(maps.Keys(tools)), slices.Sorted(slices.Values(
		r.Names)); !slices.Equal(got, want) {
		t.Fatalf("got tools of the servers %q, want %q", got, want)
	}
	for _, list := range []struct{ method, what, missing string }{
		{"tools/list", "tools", ""},
		{"prompts/list", "prompts", ""},
		{"resources/list", "resources", "postgres"}, // postgres has no database here
		{"resources/templates/list", "resourceTemplates", ""},
	} {
		m := harness.Request(t, c, list.method, `{}`)
		missing := mcptest.At(m.Result, "_meta", "gatekit/partial")
		if mcptest.Text(missing, 0, "server") != list.missing || mcptest.At(missing, 1) != nil {
			t.Errorf("%s: got the missing servers %s, want only %q: %s", list.method, missing,
				list.missing, harness.Clip(m.Raw))
		}
		t.Logf("%d %s", len(harness.ListAll(t, c, list.method, list.what)), list.what)
	}
	var all sync.WaitGroup
	// Each server gets one call at a time: Gatekit starts a process for each concurrent call.
	for server, tools := range tools {
		all.Go(func() {
			outcomes := map[string]int{}
			for _, tool := range tools {
				outcomes[callTool(t, c, tool)]++
			}
			t.Logf("%s: %d tools, %v", server, len(tools), outcomes)
		})
	}
	all.Wait()

	recorded := map[string]bool{}
	for _, r := range g.Records() {
		recorded[r.String()] = true
		// server-everything asks for the roots a moment after its start. If the call that is open
		// then ends before the client is asked, the client is asked in the next call.
		isAskedLater := r.Method == "roots/list" && strings.HasSuffix(r.Error+r.Reason,
			"the call has ended")
		// a legacy server answers Gatekit's own server/discover with an error
		if r.Kind == "error" && r.Action != "pass" && r.Action != "own" && !isAskedLater {
			t.Errorf("the audit log has an error of Gatekit: %s %s %s", r, r.Reason, r.Error)
		}
	}
	for server, tools := range tools {
		for _, tool := range tools {
			name := strings.TrimPrefix(mcptest.Text(tool, "name"), server+"__")
			call := fmt.Sprintf("tools/call %s %s pass", server, name)
			if !recorded["to_server request "+call] ||
				!recorded["to_client response "+call] && !recorded["to_client error "+call] {
				t.Errorf("the audit log has no call of the tool %s of %s with an answer", name,
					server)
			}
		}
	}
	g.CheckChain()
}

// callTool calls a tool, checks that the answer is valid by the specification, and returns the
// outcome: "done", "isError" or the code of the error.
func callTool(t *testing.T, c *mcptest.Client, tool json.RawMessage) string {
	t.Helper()
	name, arguments := mcptest.Text(tool, "name"), minimalValue(mcptest.At(tool, "inputSchema"))
	if name == "everything__trigger-long-running-operation" {
		arguments = `{"duration":1,"steps":2}` // by default it takes ten seconds
	}
	m, err := c.Tool(harness.Context(t), name, arguments)
	switch result := (&mcp.CallToolResult{}); {
	case err != nil:
		t.Errorf("%s %s: %v", name, arguments, err)
	case m.Error != nil:
		return "error " + string(mcptest.At(m.Error, "code"))
	case json.Unmarshal(m.Result, result) != nil || result.Content == nil || mcptest.Text(m.Result,
		"resultType") != "complete":
		t.Errorf("%s %s: got %s, want a complete result", name, arguments, harness.Clip(m.Raw))
	case result.IsError:
		return "isError"
	}
	return "done"
}

// minimalValue returns a small JSON value that a schema allows. It knows the parts of JSON Schema
// that these servers use.
func minimalValue(schema json.RawMessage) string {
	for _, path := range [][]any{{"const"}, {"default"}, {"enum", 0}} {
		if v := mcptest.At(schema, path...); v != nil {
			return string(v)
		}
	}
	for _, path := range [][]any{{"anyOf", 0}, {"oneOf", 0}} {
		if v := mcptest.At(schema, path...); v != nil {
			return minimalValue(v)
		}
	}
	switch cmp.Or(mcptest.Text(schema, "type"), mcptest.Text(schema, "type", 0)) {
	case "object":
		var required, members []string
		json.Unmarshal(mcptest.At(schema, "required"), &required)
		for _, name := range required {
			members = append(members, mcptest.Quote(name)+":"+minimalValue(mcptest.At(schema,
				"properties", name)))
		}
		return "{" + strings.Join(members, ",") + "}"
	case "number", "integer":
		if v := mcptest.At(schema, "minimum"); v != nil {
			return string(v)
		}
		return "1"
	case "boolean":
		return "true"
	case "array":
		items, least := []string{}, 0
		json.Unmarshal(mcptest.At(schema, "minItems"), &least)
		for range least {
			items = append(items, minimalValue(mcptest.At(schema, "items")))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	return `"a"`
}
