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

// published are servers of many makers as npm has them: the name that they get here, what node
// runs, and what they want before they start.
var published = []struct {
	name, main string
	args, env  []string
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

// fourteen are the published servers and the three of the specification's authors; they find no
// host.
func fourteen(t *testing.T) harness.RealServers {
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

// Fourteen real servers, none of which knows the modern era, or each other, used by one modern
// client: every tool of theirs is called once, with the least arguments that its schema allows.
// They find no host (test/servers/offline.cjs), so many calls fail; that is then the server's own
// word, and Gatekit's is never.
func TestAModernClientUsesFourteenPublishedServers(t *testing.T) {
	r := fourteen(t)
	g := harness.StartHTTP(t, r.Config())
	c := g.Client(mcptest.Modern)
	tools := map[string][]json.RawMessage{}
	// a list has what comes within 20 s
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
		t.Fatalf("tools are listed of %q, want %q", got, want)
	}
	for _, list := range []struct{ method, what, missing string }{
		{"tools/list", "tools", ""}, {"prompts/list", "prompts", ""}, {"resources/list",
			"resources", "postgres"}, {"resources/templates/list", "resourceTemplates", ""},
	} {
		m := harness.Request(t, c, list.method, `{}`)
		if got := mcptest.Text(m.Result, "_meta", "gatekit/partial", 0,
			"server"); got != list.missing || mcptest.At(m.Result, "_meta", "gatekit/partial",
			1) != nil {
			t.Errorf("%s lacks the items of %s, want of %q alone, which has no database: %s",
				list.method, mcptest.At(m.Result, "_meta", "gatekit/partial"), list.missing,
				harness.Clip(m.Raw))
		}
		t.Logf("%d %s", len(harness.ListAll(t, c, list.method, list.what)), list.what)
	}
	var all sync.WaitGroup
	// one call at a time of each, for each that runs beside another takes a process of its own
	for server, tools := range tools {
		all.Go(func() {
			ended := map[string]int{}
			for _, tool := range tools {
				ended[calls(t, c, tool)]++
			}
			t.Logf("%s: %d tools, %v", server, len(tools), ended)
		})
	}
	all.Wait()

	rows := map[string]bool{}
	for _, r := range g.Records() {
		if rows[r.String()] = true; r.Kind == "error" && r.Action != "pass" {
			t.Errorf("an error of Gatekit's own: %s %s %s", r, r.Reason, r.Error)
		}
	}
	for server, tools := range tools {
		for _, tool := range tools {
			name := strings.TrimPrefix(mcptest.Text(tool, "name"), server+"__")
			asked, answered := "to_server request tools/call %s %s pass",
				"to_client %s tools/call %s %s pass"
			if !rows[fmt.Sprintf(asked, server, name)] ||
				!rows[fmt.Sprintf(answered, "response", server, name)] &&
					!rows[fmt.Sprintf(answered, "error", server, name)] {
				t.Errorf("not recorded, or not with the server's own answer: a call of %s of %s",
					name, server)
			}
		}
	}
	g.CheckChain()
}

// calls calls a tool, holds its answer against the specification and says in a word how it ended.
func calls(t *testing.T, c *mcptest.Client, tool json.RawMessage) string {
	t.Helper()
	name, arguments := mcptest.Text(tool, "name"), least(mcptest.At(tool, "inputSchema"))
	if name == "everything__trigger-long-running-operation" {
		arguments = `{"duration":1,"steps":2}` // not the ten seconds that it takes else
	}
	m, err := c.Tool(harness.Context(t), name, arguments)
	switch result := (&mcp.CallToolResult{}); {
	case err != nil:
		t.Errorf("%s %s: %v", name, arguments, err)
	case m.Error != nil:
		return "error " + string(mcptest.At(m.Error, "code"))
	case json.Unmarshal(m.Result, result) != nil || result.Content == nil || mcptest.Text(m.Result,
		"resultType") != "complete":
		t.Errorf("%s %s answered what is no result: %s", name, arguments, harness.Clip(m.Raw))
	case result.IsError:
		return "isError"
	}
	return "done"
}

// least is the least value that a schema allows, as far as these servers make use of schemas.
func least(schema json.RawMessage) string {
	for _, one := range [][]any{{"const"}, {"default"}, {"enum", 0}} {
		if v := mcptest.At(schema, one...); v != nil {
			return string(v)
		}
	}
	for _, one := range [][]any{{"anyOf", 0}, {"oneOf", 0}} {
		if v := mcptest.At(schema, one...); v != nil {
			return least(v)
		}
	}
	switch cmp.Or(mcptest.Text(schema, "type"), mcptest.Text(schema, "type", 0)) {
	case "object":
		var required, members []string
		json.Unmarshal(mcptest.At(schema, "required"), &required)
		for _, name := range required {
			members = append(members, mcptest.Quote(name)+":"+least(mcptest.At(schema,
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
		return "[]"
	}
	return `"a"`
}
