package audit

import (
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

var placeholderPattern = regexp.MustCompile(`\[secret:aws-access-token:[a-z2-7]{26}\]`)

// TestRestoredSecretReachesOnlyItsServer reads a key from a server, and sends its placeholder to
// tools. Only the server that sent the key gets it back. The key reaches no client, no policy, no
// file, no sink and no log.
func TestRestoredSecretReachesOnlyItsServer(t *testing.T) {
	// the environment of the servers, which their tool "self" returns
	t.Setenv("PLANTED", harness.PlantedKey)
	bodies := []string{"none", "digest", "redacted"}
	for i, route := range harness.Routes {
		for j, revision := range harness.Revisions {
			t.Run(revision+" client, "+route.Name, func(t *testing.T) {
				testRestore(t, route, revision, bodies[(i+j)%len(bodies)])
			})
		}
	}
}

func testRestore(t *testing.T, route harness.Route, revision, bodies string) {
	const rego = `
deny contains "the policy sees the key" if contains(json.marshal(input.params), "AKIA")
`
	collector := newOTLPCollector(t)
	server := func(name string) string {
		config := harness.ScriptedServerOver(t, name, route.Revision, route.Back)
		return strings.ReplaceAll(config, "env = {", `env = { PLANTED = "`+harness.PlantedKey+`",`)
	}
	config := server("box") + server("bag") +
		harness.Builtin("secrets", `restore = "entitled", restore_tools = ["bag/ra*"]`) +
		harness.PolicyFile(t, rego) + fullRecordingConfig(t, collector, bodies, "write")
	g, c := harness.StartStdio(t, config, revision)

	self := string(harness.CallTool(t, c, "box__self", `{}`).Raw)
	p := placeholderPattern.FindString(self)
	if p == "" {
		t.Fatalf("the result is %s, want a placeholder in it", self)
	}
	if again := string(harness.CallTool(t, c, "box__self", `{}`).Raw); !strings.Contains(again, p) {
		t.Errorf("the second result is %s, want the placeholder %s again", again, p)
	}
	// The server returns what it got, and Gatekit redacts the key again.
	mark := len(g.Records())
	for _, arguments := range []string{`{"tag":"` + p + `"}`,
		`{"tag":{"a":["Bearer ` + p + `"],"b":1}}`} {
		echo := string(harness.CallTool(t, c, "box__echo", arguments).Raw)
		// Behind "Bearer ", another rule finds the key.
		if digits := p[strings.LastIndexByte(p, ':'):]; !strings.Contains(echo, digits) {
			t.Errorf("the echo is %s, want the digits of %s in it", echo, p)
		}
	}
	// the other server, a tool that is entitled, the placeholder in a name, and one that is split
	harness.CallTool(t, c, "bag__echo", `{"tag":"`+p+`"}`)
	harness.CallTool(t, c, "bag__raw", `{"lines":["{\"jsonrpc\":\"2.0\",\"id\":$ID,`+
		`\"result\":{\"content\":[],\"resultType\":\"complete\",\"x\":\"`+p+`\"}}"]}`)
	harness.CallTool(t, c, "box__echo", `{"tag":{"`+p+`":1}}`)
	harness.CallTool(t, c, "box__echo", `{"tag":["`+p[:30]+`","`+p[30:]+`"]}`)
	harness.Request(t, c, "prompts/get", `{"name":"box__greet","arguments":{"who":"`+p+`"}}`)
	var got []string
	for _, r := range g.Records()[mark:] {
		if s := r.String(); strings.Contains(s, "tools/call") || strings.Contains(s,
			"prompts/get") {
			got = append(got, s)
		}
	}
	want := []string{
		"to_server request tools/call box echo restore",
		"to_client response tools/call box echo modify", // the server had the key
		"to_server request tools/call box echo restore",
		"to_client response tools/call box echo modify",
		"to_server request tools/call bag echo pass",
		"to_client response tools/call bag echo pass", // the server had the placeholder
		"to_server request tools/call bag raw restore",
		"to_client response tools/call bag raw modify",
		"to_server request tools/call box echo pass",
		"to_client response tools/call box echo pass",
		"to_server request tools/call box echo pass",
		"to_client response tools/call box echo pass",
		"to_server request prompts/get box greet pass",
		"to_client response prompts/get box greet pass",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the records are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want,
			"\n"))
	}

	// another client with the same configuration
	other, c2 := harness.StartStdio(t, config, revision)
	harness.CallTool(t, c2, "box__self", `{}`)
	harness.CallTool(t, c2, "box__echo", `{"tag":"`+p+`"}`)
	other.WantRecords("to_server request tools/call box echo pass",
		"to_client response tools/call box echo pass")
	if log := readFiles(t, other.Dir)[filepath.Join(other.Dir, "audit.jsonl")]; !strings.Contains(
		log, `"not-restored"`) {
		t.Errorf("the log is %.300s…, want the placeholder that was not restored", log)
	}

	for _, f := range c.Frames() {
		if !f.Sent {
			wantNoSecret(t, "a message to the client", string(f.Raw), harness.PlantedKey)
		}
	}
	written := readFiles(t, g.Dir)
	written["the process log"] = g.Stderr.String()
	collector.mu.Lock()
	written["the requests to the collector"] = collector.bodies.String()
	collector.mu.Unlock()
	for name, text := range written {
		wantNoSecret(t, name, text, harness.PlantedKey)
	}
	if log := written[filepath.Join(g.Dir, "audit.jsonl")]; !strings.Contains(log,
		"restored 1 redacted value") || !strings.Contains(log, `"not-restored"`) {
		t.Errorf("the log is %.300s…, want the restored value and the placeholder that was not",
			log)
	}
}

// TestReturnedSecretStaysRedacted writes a restored password into a file of the server and reads
// the file, in which no name is beside the password. The client gets the placeholder again.
func TestReturnedSecretStaysRedacted(t *testing.T) {
	const password = "Xy7-kq29vLmw"
	for _, serverRevision := range []string{"2025-11-25", mcptest.Modern} {
		for _, revision := range harness.Revisions {
			t.Run(revision+" client, "+serverRevision+" server", func(t *testing.T) {
				var mu sync.Mutex
				file := ""
				s := mcptest.Toolbox("box", serverRevision)
				s.Handle["tools/call"] = func(c *mcptest.Call) {
					mu.Lock()
					defer mu.Unlock()
					text := "DB_PASSWORD=" + password
					switch mcptest.Text(c.Params, "name") {
					case "raw":
						file = mcptest.Text(c.Params, "arguments", "text")
						text = "written"
					case "log":
						text = file
					}
					c.Result(`{"content":[{"type":"text","text":` + mcptest.Quote(text) + `}]}`)
				}
				web := httptest.NewServer(s)
				t.Cleanup(web.Close)
				g, c := harness.StartStdio(t, harness.HTTPServer("box", web.URL)+
					harness.Builtin("secrets", `restore = "same-server"`), revision)
				call := func(tool, arguments string) string {
					return string(harness.CallTool(t, c, "box__"+tool, arguments).Raw)
				}
				p := regexp.MustCompile(`\[secret:[a-z0-9-]+:[a-z2-7]{26}\]`).FindString(call("echo",
					`{}`))
				if p == "" {
					t.Fatal("the password is not redacted with a placeholder that can be restored")
				}
				call("raw", `{"text":"<p>`+p+`</p>"}`)
				if got := call("log", `{}`); !strings.Contains(got, "<p>"+p+"</p>") {
					t.Errorf("the file is %s, want %s in it", got, p)
				}
				mu.Lock()
				if file != "<p>"+password+"</p>" {
					t.Errorf("the server got %s, want the password", file)
				}
				mu.Unlock()
				g.WantRecords("to_server request tools/call box raw restore",
					"to_client response tools/call box log modify")
				log := strings.Join(g.LogLines(), "\n")
				if !strings.Contains(log, "the server returned 1 restored value") {
					t.Errorf("the log is %.300s…, want the returned value", log)
				}
				wantNoSecret(t, "the log", log, password)
			})
		}
	}
}
