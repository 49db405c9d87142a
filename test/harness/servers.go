package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// RealServers are published servers. Tests use them directly and through gatekit.
type RealServers struct {
	Names    []string // in the order of the configuration
	Commands map[string][]string
	Env      map[string][]string // names and values in turn
	Dir      string              // the folder that the filesystem server serves
}

// NewRealServers returns the three reference servers of the specification's authors.
func NewRealServers(t *testing.T) RealServers {
	m, dir := peers.Node(t), t.TempDir()
	for name, text := range map[string]string{"a.txt": "alpha\n", "b c.txt": "beta \u2028 <&>\n",
		"deep/c.json": `{"n": 12345678901234567890}`} {
		p := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(p), 0o755)
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return RealServers{
		Names: []string{"everything", "files", "memory"},
		Commands: map[string][]string{
			"everything": append(m.Server("everything"), "stdio"),
			"files":      append(m.Server("filesystem"), dir),
			"memory":     m.Server("memory"),
		},
		Env: map[string][]string{"memory": {"MEMORY_FILE_PATH", filepath.Join(t.TempDir(),
			"memory.jsonl")}},
		Dir: dir,
	}
}

// Config returns the configuration of all the servers.
func (r RealServers) Config() (s string) {
	for _, n := range r.Names {
		s += StdioServer(n, r.Commands[n], r.Env[n]...)
	}
	return s
}

// Direct starts one server and returns a client that is connected to this server without gatekit.
// The function end ends the server and the client.
func (r RealServers) Direct(t *testing.T, server string) (c *mcptest.Client, end func()) {
	t.Helper()
	cmd := exec.Command(r.Commands[server][0], r.Commands[server][1:]...)
	cmd.Env = os.Environ()
	for i := 0; i < len(r.Env[server]); i += 2 {
		cmd.Env = append(cmd.Env, r.Env[server][i]+"="+r.Env[server][i+1])
	}
	p, err := mcptest.Command(cmd)
	if err != nil {
		t.Fatal(err)
	}
	c = mcptest.NewClient(p, "2025-11-25")
	end = func() {
		cmd.Process.Kill() // server-everything does not end when its stdin is closed
		c.Close()
	}
	t.Cleanup(end)
	r.Handshake(t, c)
	return c, end
}

// Handshake makes the handshake of a client whose only root is Dir.
func (r RealServers) Handshake(t *testing.T, c *mcptest.Client) {
	t.Helper()
	c.Answer["roots/list"] = func(mcptest.Message) string {
		return fmt.Sprintf(`{"roots":[{"uri":"file://%s","name":"data"}]}`, r.Dir)
	}
	Handshake(t, c)
}

// Step is a request to one server. Tests make it directly and through gatekit.
type Step struct{ Server, Method, Params string }

func (s Step) String() string { return s.Server + " " + s.Method + " " + s.Params }

// ViaGatekit returns the step with the names and URIs that clients of gatekit use.
func (s Step) ViaGatekit() Step {
	var p map[string]json.RawMessage
	json.Unmarshal([]byte(s.Params), &p)
	expose := func(at map[string]json.RawMessage, member, kind string) {
		if v := mcptest.Text(at[member]); v != "" {
			switch {
			case kind == "name":
				v = s.Server + "__" + v
			case strings.HasPrefix(v, "ui://"):
				v = "ui://" + s.Server + "+" + strings.TrimPrefix(v, "ui://")
			default:
				v = s.Server + "+" + v
			}
			at[member] = json.RawMessage(mcptest.Quote(v))
		}
	}
	switch s.Method {
	case "tools/call", "prompts/get":
		expose(p, "name", "name")
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		expose(p, "uri", "uri")
	case "completion/complete":
		var ref map[string]json.RawMessage
		json.Unmarshal(p["ref"], &ref)
		expose(ref, "name", "name")
		expose(ref, "uri", "uri")
		p["ref"], _ = json.Marshal(ref)
	}
	b, _ := json.Marshal(p)
	return Step{s.Server, s.Method, string(b)}
}

// Do makes a request and returns its answer. questions are the reverse requests that the client
// received before the answer, and others are its other messages. Do leaves out log messages and
// list changes, because servers send them at any time.
func Do(t *testing.T, c *mcptest.Client, method,
	params string) (questions, others []mcptest.Message, answer mcptest.Message) {
	t.Helper()
	mark := c.Mark()
	answer, err := c.Call(Context(t), method, params)
	if err != nil {
		t.Fatalf("%s %s: %v", method, params, err)
	}
	for _, f := range c.Frames()[mark:] {
		switch {
		case f.Sent || f.Method == "" || strings.HasSuffix(f.Method, "list_changed") ||
			f.Method == "notifications/message":
		case f.IsRequest():
			questions = append(questions, f.Message)
		default:
			others = append(others, f.Message)
		}
	}
	return questions, others, answer
}

// Steps returns requests that clients send to the three reference servers.
func (r RealServers) Steps() []Step {
	return []Step{
		{"everything", "tools/call", `{"name":"echo","arguments":{"message":"<&> \u00e9"}}`},
		{"everything", "tools/call", `{"name":"get-sum","arguments":{"a":1.5,"b":2}}`},
		{"everything", "tools/call", `{"name":"get-sum","arguments":{"a":"x"}}`},
		{"everything", "tools/call", `{"name":"get-tiny-image","arguments":{}}`},
		{"everything", "tools/call",
			`{"name":"get-annotated-message","arguments":{"messageType":"error","includeImage":true}}`},
		{"everything", "tools/call",
			`{"name":"get-structured-content","arguments":{"location":"New York"}}`},
		{"everything", "tools/call", `{"name":"get-resource-links","arguments":{"count":3}}`},
		{"everything", "tools/call",
			`{"name":"get-resource-reference","arguments":{"resourceType":"Text","resourceId":2}}`},
		{"everything", "tools/call",
			`{"name":"trigger-long-running-operation","arguments":{"duration":0.3,"steps":3},"_meta":{"progressToken":"p-1"}}`},
		{"everything", "tools/call",
			`{"name":"trigger-sampling-request","arguments":{"prompt":"say","maxTokens":7}}`},
		{"everything", "tools/call", `{"name":"trigger-elicitation-request","arguments":{}}`},
		{"everything", "tools/call", `{"name":"get-roots-list","arguments":{}}`},
		{"everything", "tools/call", `{"name":"toggle-subscriber-updates","arguments":{}}`},
		{"everything", "tools/call", `{"name":"no-such-tool","arguments":{}}`},
		{"everything", "prompts/get", `{"name":"simple-prompt"}`},
		{"everything", "prompts/get",
			`{"name":"args-prompt","arguments":{"city":"Oslo","state":"N"}}`},
		{"everything", "prompts/get",
			`{"name":"resource-prompt","arguments":{"resourceType":"Text","resourceId":"1"}}`},
		{"everything", "prompts/get", `{"name":"no-such-prompt"}`},
		{"everything", "completion/complete",
			`{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"department","value":"E"}}`},
		{"everything", "completion/complete",
			`{"ref":{"type":"ref/resource","uri":"demo://resource/dynamic/text/{resourceId}"},"argument":{"name":"resourceId","value":"1"}}`},
		{"everything", "resources/read", `{"uri":"demo://resource/static/document/features.md"}`},
		{"everything", "resources/read", `{"uri":"demo://resource/no/such"}`},
		{"everything", "resources/subscribe", `{"uri":"demo://resource/dynamic/text/1"}`},
		{"everything", "resources/unsubscribe", `{"uri":"demo://resource/dynamic/text/1"}`},
		{"files", "tools/call", fmt.Sprintf(`{"name":"read_text_file","arguments":{"path":%q}}`,
			filepath.Join(r.Dir, "b c.txt"))},
		{"files", "tools/call", fmt.Sprintf(`{"name":"read_text_file","arguments":{"path":%q}}`,
			filepath.Join(r.Dir, "deep/c.json"))},
		{"files", "tools/call", fmt.Sprintf(`{"name":"directory_tree","arguments":{"path":%q}}`,
			r.Dir)},
		{"files", "tools/call", `{"name":"read_text_file","arguments":{"path":"/etc/passwd"}}`},
		{"files", "tools/call", `{"name":"list_allowed_directories","arguments":{}}`},
		{"memory", "tools/call", `{"name":"create_entities","arguments":{"entities":[{"name":"x","entityType":"t","observations":["o"]}]}}`},
		{"memory", "tools/call", `{"name":"read_graph","arguments":{}}`},
		{"memory", "tools/call", `{"name":"search_nodes","arguments":{"query":"x"}}`},
	}
}

// Normalize returns a message with placeholders for its id and for the time of day, which differ
// from run to run.
func Normalize(m mcptest.Message) []byte {
	return clock.ReplaceAll([]byte(strings.Replace(string(m.Raw), `"id":`+string(m.ID),
		`"id":0`, 1)), []byte("now"))
}

// clock matches the time of day that server-everything writes into a resource.
var clock = regexp.MustCompile(`[0-9]+:[0-9]+:[0-9]+ [AP]M`)

// AwaitRootsRequest waits until server-everything has asked for the roots and has confirmed the
// answer. The server asks some time after the handshake, and its tools depend on the answer.
func AwaitRootsRequest(t *testing.T, server string, c *mcptest.Client) {
	t.Helper()
	if server == "everything" {
		if _, err := c.AwaitMethod(Context(t), 0, "roots/list"); err != nil {
			t.Fatal(err)
		}
		// server-everything confirms the answer by a log message
		if _, err := c.AwaitMethod(Context(t), 0, "notifications/message"); err != nil {
			t.Fatal(err)
		}
	}
}

// CapabilityOf returns the capability that a method belongs to.
func CapabilityOf(method string) string { return strings.Split(method, "/")[0] }
