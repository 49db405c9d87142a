package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// real are the three servers of the specification's authors, behind one gatekit.
type real struct {
	names    []string // in the order of the configuration
	commands map[string][]string
	env      map[string][]string
	dir      string // that the filesystem server shows
}

func realServers(t *testing.T) real {
	m, dir := peers.Node(t), t.TempDir()
	for name, text := range map[string]string{"a.txt": "alpha\n", "b c.txt": "beta \u2028 <&>\n",
		"deep/c.json": `{"n": 12345678901234567890}`} {
		p := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(p), 0o755)
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return real{
		names: []string{"everything", "files", "memory"},
		commands: map[string][]string{
			"everything": append(m.Server("everything"), "stdio"),
			"files":      append(m.Server("filesystem"), dir),
			"memory":     m.Server("memory"),
		},
		env: map[string][]string{"memory": {"MEMORY_FILE_PATH", filepath.Join(t.TempDir(),
			"memory.jsonl")}},
		dir: dir,
	}
}

func (r real) config() (s string) {
	for _, n := range r.names {
		s += stdioServer(n, r.commands[n], r.env[n]...)
	}
	return s
}

// direct is a client of one server with nothing between; end ends both.
func (r real) direct(t *testing.T, server string) (c *mcptest.Client, end func()) {
	t.Helper()
	cmd := exec.Command(r.commands[server][0], r.commands[server][1:]...)
	cmd.Env = os.Environ()
	for i := 0; i < len(r.env[server]); i += 2 {
		cmd.Env = append(cmd.Env, r.env[server][i]+"="+r.env[server][i+1])
	}
	p, err := mcptest.Command(cmd)
	if err != nil {
		t.Fatal(err)
	}
	c = mcptest.NewClient(p, "2025-11-25")
	end = func() {
		cmd.Process.Kill() // server-everything does not end with its stdin
		c.Close()
	}
	t.Cleanup(end)
	r.open(t, c)
	return c, end
}

// open shakes hands as a client whose one root is the folder of the filesystem server.
func (r real) open(t *testing.T, c *mcptest.Client) {
	t.Helper()
	c.Answer["roots/list"] = func(mcptest.Message) string {
		return fmt.Sprintf(`{"roots":[{"uri":"file://%s","name":"data"}]}`, r.dir)
	}
	open(t, c)
}

// step is something to do at one server: once directly, once through gatekit.
type step struct{ server, method, params string }

func (s step) String() string { return s.server + " " + s.method + " " + s.params }

// via is the step as a client of gatekit puts it: names and URIs as gatekit shows them.
func (s step) via() step {
	var p map[string]json.RawMessage
	json.Unmarshal([]byte(s.params), &p)
	expose := func(at map[string]json.RawMessage, member, kind string) {
		if v := mcptest.Text(at[member]); v != "" {
			switch {
			case kind == "name":
				v = s.server + "__" + v
			case strings.HasPrefix(v, "ui://"):
				v = "ui://" + s.server + "+" + strings.TrimPrefix(v, "ui://")
			default:
				v = s.server + "+" + v
			}
			at[member] = json.RawMessage(mcptest.Quote(v))
		}
	}
	switch s.method {
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
	return step{s.server, s.method, string(b)}
}

// take does a step and answers all messages that came in because of it, the answer last. What
// servers say on their own account is left out.
func take(t *testing.T, c *mcptest.Client, method,
	params string) (questions, others []mcptest.Message, answer mcptest.Message) {
	t.Helper()
	mark := c.Mark()
	answer, err := c.Call(bounded(t), method, params)
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

// steps are what clients do with these servers.
func (r real) steps() []step {
	return []step{
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
			filepath.Join(r.dir, "b c.txt"))},
		{"files", "tools/call", fmt.Sprintf(`{"name":"read_text_file","arguments":{"path":%q}}`,
			filepath.Join(r.dir, "deep/c.json"))},
		{"files", "tools/call", fmt.Sprintf(`{"name":"directory_tree","arguments":{"path":%q}}`,
			r.dir)},
		{"files", "tools/call", `{"name":"read_text_file","arguments":{"path":"/etc/passwd"}}`},
		{"files", "tools/call", `{"name":"list_allowed_directories","arguments":{}}`},
		{"memory", "tools/call", `{"name":"create_entities","arguments":{"entities":[{"name":"x","entityType":"t","observations":["o"]}]}}`},
		{"memory", "tools/call", `{"name":"read_graph","arguments":{}}`},
		{"memory", "tools/call", `{"name":"search_nodes","arguments":{"query":"x"}}`},
	}
}

func TestThreeRealServersAnswerThroughGatekitAsTheyDoDirectly(t *testing.T) {
	r := realServers(t)
	steps := r.steps()
	// What the servers said directly is the measure for every way through gatekit.
	type said struct {
		questions, others []mcptest.Message
		answer            mcptest.Message
	}
	measure, hello, lists := map[step]said{}, map[string]mcptest.Message{},
		map[string][]json.RawMessage{}
	listed := map[string]string{"tools/list": "tools", "prompts/list": "prompts",
		"resources/list": "resources", "resources/templates/list": "resourceTemplates"}
	for _, name := range r.names {
		c, end := r.direct(t, name)
		for _, f := range c.Frames() {
			if f.Result != nil {
				hello[name] = f.Message
			}
		}
		settle(t, name, c)
		for method, what := range listed {
			if mcptest.At(hello[name].Result, "capabilities", capability(method)) != nil {
				lists[method+" "+name] = items(t, c, method, what)
			}
		}
		for _, s := range steps {
			if s.server == name {
				q, o, a := take(t, c, s.method, s.params)
				measure[s] = said{q, o, a}
			}
		}
		end()
	}

	os.Remove(r.env["memory"][1])
	front(t, r.config(), "2025-11-25", func(t *testing.T, g *gatekit, c *mcptest.Client) {
		os.Remove(r.env["memory"][1]) // what the way before left
		r.open(t, c)
		settle(t, "everything", c)
		for method, what := range listed {
			got := items(t, c, method, what)
			i := 0
			for _, name := range r.names {
				for _, want := range lists[method+" "+name] {
					if i < len(got) {
						wrap := func(item []byte) []byte {
							return fmt.Appendf(nil, `{"result":{%q:[%s]}}`, what, item)
						}
						sameBut(t, method+" of "+name, name, wrap(want), wrap(got[i]))
					}
					i++
				}
			}
			if i != len(got) || i == 0 {
				t.Errorf("%s has %d items, the servers together have %d", method, len(got), i)
			}
		}
		for _, s := range steps {
			want, put := measure[s], s.via()
			q, o, a := take(t, c, put.method, put.params)
			sameBut(t, s.String(), s.server, renumber(want.answer), renumber(a))
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
			g.recorded(fmt.Sprintf("to_server request %s %s %s pass", s.method, s.server,
				recordedName(s)))
		}
		instructions, _ := c.Await(bounded(t), 0, func(m mcptest.Message) bool {
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

// renumber is a message without what is another each time: its id, since clients count, and the
// clock.
func renumber(m mcptest.Message) []byte {
	return clock.ReplaceAll([]byte(strings.Replace(string(m.Raw), `"id":`+string(m.ID),
		`"id":0`, 1)), []byte("now"))
}

// clock is what server-everything writes into the text of a resource.
var clock = regexp.MustCompile(`[0-9]+:[0-9]+:[0-9]+ [AP]M`)

// sampled compares a question or notification that came with a step. Sampling carries its server in
// _meta, which it has not got directly.
func sampled(t *testing.T, s step, want, got mcptest.Message) {
	t.Helper()
	if got.Method == "sampling/createMessage" && mcptest.At(want.Params, "_meta") == nil {
		meta := string(mcptest.At(got.Params, "_meta"))
		if !strings.Contains(meta, mcptest.Quote(s.server)) {
			t.Errorf("%s: sampling does not say in _meta which server asks: %s", s, meta)
		}
		got.Raw = []byte(strings.Replace(strings.Replace(string(got.Raw), `,"_meta":`+meta, "", 1),
			`"_meta":`+meta+`,`, "", 1))
	}
	sameBut(t, s.String()+": "+want.Method, s.server, want.Raw, got.Raw)
}

func recordedName(s step) string {
	for _, at := range [][]any{{"name"}, {"uri"}, {"ref", "name"}, {"ref", "uri"}} {
		if v := mcptest.Text([]byte(s.params), at...); v != "" {
			return v
		}
	}
	return "-"
}

func capability(method string) string { return strings.Split(method, "/")[0] }

// settle waits until server-everything has asked for the roots, which it does some time after the
// handshake: its tools depend on the answer.
func settle(t *testing.T, server string, c *mcptest.Client) {
	t.Helper()
	if server == "everything" {
		if _, err := c.AwaitMethod(bounded(t), 0, "roots/list"); err != nil {
			t.Fatal(err)
		}
		// it says that it has them
		if _, err := c.AwaitMethod(bounded(t), 0, "notifications/message"); err != nil {
			t.Fatal(err)
		}
	}
}

// items are all items of a list, from all its pages.
func items(t *testing.T, c *mcptest.Client, method, what string) (all []json.RawMessage) {
	t.Helper()
	for params := `{}`; ; {
		m := ask(t, c, method, params)
		if m.Error != nil {
			t.Fatalf("%s: %s", method, m.Raw)
		}
		var page []json.RawMessage
		json.Unmarshal(mcptest.At(m.Result, what), &page)
		all = slices.Concat(all, page)
		next := mcptest.At(m.Result, "nextCursor")
		if next == nil {
			return all
		}
		params = fmt.Sprintf(`{"cursor":%s}`, next)
	}
}
