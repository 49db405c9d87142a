package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gatekit/core/downstream"
	"gatekit/core/identity"
	"gatekit/test/mcptest"
	"gatekit/transport"
)

// authEndpoint takes the principal of a client from a header, because Gatekit does not authenticate
// clients.
type authEndpoint struct{ transport.Endpoint }

const principalHeader = "X-Test-Principal"

func (k authEndpoint) Post(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply) {
	r.Principal = identity.FromID(r.Header.Get(principalHeader))
	k.Endpoint.Post(ctx, r, w)
}

func (k authEndpoint) Get(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply) {
	r.Principal = identity.FromID(r.Header.Get(principalHeader))
	k.Endpoint.Get(ctx, r, w)
}

func (k authEndpoint) Delete(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply) {
	r.Principal = identity.FromID(r.Header.Get(principalHeader))
	k.Endpoint.Delete(ctx, r, w)
}

// serveSecrets starts a server that has a secret item and another item of every kind. The function
// reached returns the requests that the server got.
func serveSecrets(t *testing.T, revision string) (url string, reached func() []string) {
	s := mcptest.Toolbox("s", revision)
	s.Capabilities = `{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	result := func(result string) func(*mcptest.Call) {
		return func(c *mcptest.Call) { c.Result(result) }
	}
	list := func(what, items string) func(*mcptest.Call) {
		return result(fmt.Sprintf(`{%q:[%s],"ttlMs":0,"cacheScope":"private"}`, what, items))
	}
	task := func(c *mcptest.Call) string {
		if mcptest.Text(c.Params, "name") == "secret_tool" || mcptest.Text(c.Params,
			"taskId") == "t1" {
			return `"taskId":"t1","status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null,"ttlMs":null`
		}
		return `"taskId":"t2","status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null,"ttlMs":null`
	}
	s.Handle = map[string]func(*mcptest.Call){
		"tools/list": list("tools",
			`{"name":"secret_tool","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}},{"name":"tool","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}`),
		"prompts/list": list("prompts", `{"name":"secret_prompt"},{"name":"prompt"}`),
		"resources/list": list("resources",
			`{"uri":"test://secret/a","name":"a"},{"uri":"test://b","name":"b"}`),
		"resources/templates/list": list("resourceTemplates",
			`{"uriTemplate":"test://secret/{x}","name":"a"},{"uriTemplate":"test://t/{x}","name":"b"}`),
		"tools/call": func(c *mcptest.Call) {
			switch {
			case mcptest.At(c.Params, "arguments", "task") == nil:
				c.Result(`{"content":[]}`)
			case revision == mcptest.Modern:
				c.Result(`{"resultType":"task",` + task(c) + `}`)
			default:
				c.Result(`{"task":{` + task(c) + `}}`)
			}
		},
		"tasks/get":    func(c *mcptest.Call) { c.Result(`{` + task(c) + `}`) },
		"tasks/cancel": func(c *mcptest.Call) { c.Result(`{` + task(c) + `}`) },
		"tasks/update": result(`{}`),
		"tasks/result": result(`{"content":[]}`),
		"tasks/list": result(
			`{"tasks":[{"taskId":"t1","status":"working"},{"taskId":"t2","status":"working"}]}`),
		"prompts/get":         result(`{"messages":[]}`),
		"resources/read":      result(`{"contents":[],"ttlMs":0,"cacheScope":"private"}`),
		"resources/subscribe": result(`{}`),
		"completion/complete": result(`{"completion":{"values":["x"]}}`),
	}
	var mu sync.Mutex
	var seen []string
	for method, handle := range s.Handle {
		s.Handle[method] = func(c *mcptest.Call) {
			mu.Lock()
			seen = append(seen, method+" "+string(c.Params))
			mu.Unlock()
			handle(c)
		}
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), seen...)
	}
}

// TestNamesAreHiddenPerPrincipal uses a policy that hides names from the principal bob. Bob cannot
// use these names in any request, but ann can. The test runs over HTTP, in both eras.
func TestNamesAreHiddenPerPrincipal(t *testing.T) {
	const rego = `package gatekit.mine

secret(text) if {
	input.principal.subject == "bob"
	contains(text, "secret")
}

hide contains item.name if {
	input.method in {"tools/list", "prompts/list"}
	some item in input.items
	secret(item.name)
}

hide contains item.uri if {
	input.method == "resources/list"
	some item in input.items
	secret(item.uri)
}

hide contains item.uriTemplate if {
	input.method == "resources/templates/list"
	some item in input.items
	secret(item.uriTemplate)
}
`
	type use struct{ method, params string }
	uses := []use{
		{"tools/call", `{"name":"s__secret_tool","arguments":{}}`},
		{"tools/call", `{"name":"s__secret_tool","arguments":{"task":1},"task":{"ttl":1000}}`},
		{"prompts/get", `{"name":"s__secret_prompt"}`},
		{"resources/read", `{"uri":"s+test://secret/a"}`},
		{"resources/read", `{"uri":"test://secret/a"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"s__secret_prompt"},"argument":{"name":"x","value":""}}`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"s+test://secret/{x}"},"argument":{"name":"x","value":""}}`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"s+test://secret/a"},"argument":{"name":"x","value":""}}`},
		{"tasks/get", `{"taskId":"s+t1"}`},
		{"tasks/cancel", `{"taskId":"s+t1"}`},
	}
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			uses := uses
			if revision == mcptest.Modern {
				uses = append(uses, use{"tasks/update", `{"taskId":"s+t1","inputResponses":{}}`})
			} else {
				uses = append(uses, use{"tasks/result", `{"taskId":"s+t1"}`},
					use{"resources/subscribe", `{"uri":"s+test://secret/a"}`})
			}
			server, reached := serveSecrets(t, revision)
			dir := t.TempDir()
			for file, text := range map[string]string{"mine.rego": rego,
				"gatekit.toml": fmt.Sprintf("[server.s]\nurl = %q\n[policy]\nfiles = "+
					"[\"mine.rego\"]\n[audit]\nfile = \"audit.jsonl\"\n[listen]\nhttp = "+
					"\"127.0.0.1:0\"\n", server)} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			url := serveAuthenticated(t, filepath.Join(dir, "gatekit.toml"))
			client := func(name string) *mcptest.Client {
				h := mcptest.NewHTTP(url)
				h.Header.Set(principalHeader, name)
				c := mcptest.NewClient(h, revision)
				t.Cleanup(func() { c.Close() })
				c.Capabilities = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
				if m, err := c.Open(t.Context()); err != nil || m.Error != nil {
					t.Fatalf("the handshake got %s, %v, want a result", m.Raw, err)
				}
				return c
			}
			ask := func(c *mcptest.Client, method, params string) mcptest.Message {
				m, err := c.Call(t.Context(), method, params)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			// early is a client of bob that uses names without listing them first.
			ann, bob, early := client("ann"), client("bob"), client("bob")
			for _, c := range []*mcptest.Client{ann, bob} {
				for _, method := range []string{"tools/list", "prompts/list", "resources/list",
					"resources/templates/list"} {
					if list := string(ask(c, method, `{}`).Result); strings.Contains(list,
						"secret") != (c == ann) || !strings.Contains(list, `s__`) &&
						!strings.Contains(list, `s+test://`) {
						t.Errorf("%s got %s; want a list with secret items: %v", method, list,
							c == ann)
					}
				}
			}
			for _, u := range uses {
				before := len(reached())
				if m := ask(ann, u.method, u.params); m.Error != nil || len(reached()) != before+1 {
					t.Errorf("ann's %s %s got %s, want a result of the server", u.method, u.params,
						m.Raw)
				}
				before = len(reached())
				for _, c := range []*mcptest.Client{early, bob} {
					if m := ask(c, u.method, u.params); m.Error == nil ||
						strings.Contains(string(m.Raw), "working") {
						t.Errorf("bob's %s %s got %s, want an error", u.method, u.params, m.Raw)
					}
				}
				if now := reached(); len(now) != before {
					t.Errorf("bob's %s %s reached the server: %s", u.method, u.params,
						now[before:])
				}
			}
			if m := ask(bob, "tools/call",
				`{"name":"s__tool","arguments":{"task":1},"task":{"ttl":1000}}`); m.Error != nil {
				t.Errorf("bob's call of a visible tool got %s, want a result", m.Raw)
			}
			if m := ask(bob, "tasks/get", `{"taskId":"s+t2"}`); m.Error != nil {
				t.Errorf("bob's task of a visible tool got %s, want a result", m.Raw)
			}
			if revision == mcptest.Modern {
				for _, c := range []*mcptest.Client{ann, bob} {
					mark := c.Mark()
					c.Send(c.Request(`"l"`, "subscriptions/listen",
						`{"notifications":{"resourceSubscriptions":["s+test://secret/a","s+test://b"],"taskIds":["s+t1"]}}`))
					ack, err := c.AwaitMethod(t.Context(), mark,
						"notifications/subscriptions/acknowledged")
					if filter := string(mcptest.At(ack.Params, "notifications")); err != nil ||
						strings.Contains(filter, "secret") != (c == ann) || strings.Contains(filter,
						"t1") != (c == ann) || !strings.Contains(filter, "test://b") {
						t.Errorf("got the acknowledgement %s, %v; want secret items: %v",
							ack.Raw, err, c == ann)
					}
				}
			} else if list := string(ask(bob, "tasks/list", `{}`).Raw); strings.Contains(list,
				"s+t1") || !strings.Contains(list, "s+t2") {
				t.Errorf("bob's tasks are %s, want s+t2 without s+t1", list)
			}
			wantRecords(t, filepath.Join(dir, "audit.jsonl"), uses[0].method,
				"ann pass secret_tool",
				"bob deny secret_tool")
			wantRecords(t, filepath.Join(dir, "audit.jsonl"), "tasks/get", "ann pass t1",
				"bob deny t1", "bob pass t2")
			wantRecords(t, filepath.Join(dir, "audit.jsonl"),
				"prompts/get", "ann pass secret_prompt",
				"bob deny secret_prompt")
		})
	}
}

// serveAuthenticated serves a configuration as `gatekit run` does, but with a listener that
// authenticates its clients.
func serveAuthenticated(t *testing.T, file string) (url string) {
	t.Helper()
	c, err := loadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	g, err := openGateway(t.Context(), c, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	front, err := transport.ListenHTTP(transport.HTTPServerOptions{Addr: c.Listen.HTTP,
		Path:     c.Listen.Path,
		Endpoint: authEndpoint{g.endpoint},
		RecordRefusal: func(_ context.Context, _ *http.Request, refusal transport.Refusal) {
			t.Error(refusal.Reason)
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- front.Serve(ctx) }()
	t.Cleanup(func() {
		err := g.endSessions()
		stop()
		for _, e := range []error{err, <-ended, g.close()} {
			if e != nil {
				t.Error(e)
			}
		}
	})
	return "http://" + front.Addr().String() + c.Listen.Path
}

// wantRecords fails the test unless the audit log in file has all wanted records of requests with
// this method. A wanted record is a text "PRINCIPAL ACTION NAME".
func wantRecords(t *testing.T, file, method string, want ...string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		var r struct{ Principal, Kind, Method, Action, Name string }
		if err := json.Unmarshal([]byte(line), &r); err == nil && r.Kind == "request" &&
			r.Method == method {
			got[r.Principal+" "+r.Action+" "+r.Name] = true
		}
	}
	for _, w := range want {
		if !got[w] {
			t.Errorf("%s: there is no record %s; the records are %v", method, w, got)
		}
	}
}
