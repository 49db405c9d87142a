package identity_test

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/issuertest"
	"gatekit/test/mcptest"
)

// user is a client with a token.
type user struct {
	*mcptest.Client
	http *mcptest.HTTP
}

// connect opens a client with a token of the issuer, for a subject.
func connect(t *testing.T, g *harness.Gatekit, i *issuertest.Issuer, subject,
	revision string) user {
	t.Helper()
	return connectAs(t, g, i, subject, revision, "")
}

// connectAs is connect with the capabilities of the client, or "" for those of all clients.
func connectAs(t *testing.T, g *harness.Gatekit, i *issuertest.Issuer, subject, revision,
	capabilities string) user {
	t.Helper()
	h := mcptest.NewHTTP(g.URL)
	h.Header.Set("Authorization", "Bearer "+i.Token("first", i.Claims(resource,
		map[string]any{"sub": subject})))
	c := mcptest.NewClient(h, revision)
	if capabilities != "" {
		c.Capabilities = capabilities
	}
	t.Cleanup(func() { c.Close() })
	harness.Handshake(t, c)
	return user{c, h}
}

// ownerServer serves a server with tasks over HTTP. It must get no credential of a client.
func ownerServer(t *testing.T, revision string) (url string) {
	s := mcptest.Toolbox("box", revision)
	s.Capabilities = `{"tools":{},"prompts":{},"resources":{"subscribe":true},` +
		`"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},` +
		`"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	const task = `"taskId":"t1","status":"working","createdAt":"2026-01-01T00:00:00Z",` +
		`"lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null,"ttlMs":null`
	call := s.Handle["tools/call"]
	s.Handle["tools/call"] = func(c *mcptest.Call) {
		switch {
		case mcptest.At(c.Params, "arguments", "task") == nil:
			call(c)
		case revision == mcptest.Modern:
			c.Result(`{"resultType":"task",` + task + `}`)
		default:
			c.Result(`{"task":{` + task + `}}`)
		}
	}
	s.Handle["tasks/get"] = func(c *mcptest.Call) {
		if id := mcptest.Text(c.Params, "taskId"); id != "t1" {
			c.Error(-32602, `Unknown task: "own+`+id+`"`, "")
			return
		}
		c.Result(`{` + task + `}`)
	}
	return harness.ServeWithoutCredentials(t, s)
}

// What one principal got, another principal cannot use. The answer is the same as for a handle that
// does not exist, so it does not show whether somebody has the handle. For a task that Gatekit does
// not know, the server answers, here with the words of Gatekit.
func TestHandlesBelongToTheirPrincipal(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			url := ownerServer(t, revision)
			i := issuertest.Start(t)
			g := start(t, i, harness.HTTPServer("own", url)+"[limits]\npage_items = 2\n")
			ann, bob := connect(t, g, i, "ann", revision), connect(t, g, i, "bob", revision)
			ann.http.Header.Set("Cookie", "session=ann")
			for _, c := range []user{ann, bob} {
				c.Capabilities = `{"elicitation":{"form":{}},"tasks":{"requests":{}},` +
					`"extensions":{"io.modelcontextprotocol/tasks":{}}}`
			}
			answer := func(c user, method, params string) mcptest.Message {
				t.Helper()
				m, err := c.Do(harness.Context(t), c.ID(), method, params)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			page := answer(ann, "resources/list", "{}")
			const taskCall = `{"name":"own__echo","arguments":{"task":1}`
			started := answer(ann, "tools/call", taskCall+map[bool]string{true: "}",
				false: `,"task":{}}`}[revision == mcptest.Modern])
			taskID := mcptest.Text(started.Result, "taskId") +
				mcptest.Text(started.Result, "task", "taskId")
			handles := []struct{ name, handle, unknown, method, params string }{
				{"cursor", mcptest.Text(page.Result, "nextCursor"), "", "resources/list",
					`{"cursor":"HANDLE"}`},
				{"task", taskID, strings.Replace(taskID, "t1", "t9", 1), "tasks/get",
					`{"taskId":"HANDLE"}`},
			}
			if revision == mcptest.Modern {
				const ask = `{"name":"own__ask","arguments":{"method":"elicitation/create",` +
					`"params":{"mode":"form","message":"who?","requestedSchema":` +
					`{"type":"object","properties":{}}}}`
				asked := answer(ann, "tools/call", ask+"}")
				state := mcptest.Text(asked.Result, "requestState")
				handles = append(handles, struct{ name, handle, unknown, method, params string }{
					"requestState", state, "", "tools/call", ask +
						`,"inputResponses":{"q":{"action":"accept","content":{}}},` +
						`"requestState":"HANDLE"}`})
			}
			for _, tt := range handles {
				if tt.handle == "" {
					t.Errorf("%s: ann got none", tt.name)
					continue
				}
				with := func(c user, handle string) mcptest.Message {
					return answer(c, tt.method, strings.ReplaceAll(tt.params, "HANDLE", handle))
				}
				if tt.unknown == "" { // errors quote only the beginning of a long handle
					at := len(tt.handle) - 5
					tt.unknown = tt.handle[:at] + strings.Map(func(r rune) rune { return r ^ 1 },
						tt.handle[at:])
				}
				foreign, unknown := with(bob, tt.handle), with(bob, tt.unknown)
				got := strings.ReplaceAll(string(foreign.Error), tt.handle, tt.unknown)
				if foreign.Error == nil || got != string(unknown.Error) {
					t.Errorf("%s of ann: bob got %s%s, and for an unknown one %s%s", tt.name,
						foreign.Result, foreign.Error, unknown.Result, unknown.Error)
				}
				if own := with(ann, tt.handle); own.Error != nil {
					t.Errorf("%s: ann got the error %s, want her own", tt.name, own.Error)
				}
			}
			g.Stop()
			principals := map[string]bool{}
			for _, r := range g.Records() {
				if r.Method == "tasks/get" && r.Action == "deny" || r.Method == "resources/list" {
					principals[strings.TrimPrefix(r.Principal, i.URL+"#")] = true
				}
			}
			if !principals["ann"] || !principals["bob"] {
				t.Errorf("the records name %v, want ann and bob", principals)
			}
		})
	}
}

// serverPID returns the id of the process of a stdio server that a user's calls reach.
func serverPID(t *testing.T, c user, server string) int {
	t.Helper()
	pid, err := strconv.Atoi(string(mcptest.At(harness.CallTool(t, c.Client, server+"__self",
		`{}`).Result, "structuredContent", "pid")))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// A session over HTTP belongs to the principal that opened it, with its streams and its calls.
func TestSessionBelongsToItsPrincipal(t *testing.T) {
	revision := harness.Revisions[0]
	i := issuertest.Start(t)
	g := start(t, i, "")
	ann, bob := connect(t, g, i, "ann", revision), connect(t, g, i, "bob", revision)
	send := func(method, session, event, body string) string {
		r, err := http.NewRequestWithContext(harness.Context(t), method, g.URL,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = bob.http.Header.Clone()
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Mcp-Session-Id", session)
		if event != "" {
			r.Header.Set("Last-Event-ID", event)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		var header bytes.Buffer
		answer.Header.Del("Date")
		answer.Header.Write(&header)
		return answer.Status + "\n" + header.String() + string(b)
	}
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	unknownSession := strings.Repeat("A", len(ann.http.Session()))
	for _, tt := range []struct{ method, event, body string }{{"POST", "", list}, {"GET", "", ""},
		{"GET", "0-1", ""}, {"DELETE", "", ""}} {
		foreign := send(tt.method, ann.http.Session(), tt.event, tt.body)
		unknown := send(tt.method, unknownSession, tt.event, tt.body)
		if foreign != unknown || !strings.HasPrefix(foreign, "404") {
			t.Errorf("%s: with ann's session, bob got\n%s\nand with an unknown one\n%s",
				tt.method, foreign, unknown)
		}
	}

	// Bob can neither cancel ann's call nor answer a question to her.
	harness.StartWaitingCall(t, ann.Client, "box", "77", "a")
	if err := bob.Notify("notifications/cancelled", `{"requestId":77}`); err != nil {
		t.Fatal(err)
	}
	asked := make(chan string)
	ann.Answer["elicitation/create"] = func(m mcptest.Message) string {
		asked <- string(m.ID)
		<-asked
		return `{"action":"accept","content":{"name":"ann"}}`
	}
	answered := make(chan mcptest.Message)
	go func() {
		m, _ := ann.Tool(harness.Context(t), "box__ask", `{"method":"elicitation/create",`+
			`"params":{"mode":"form","message":"who?","requestedSchema":{"type":"object",`+
			`"properties":{"name":{"type":"string"}}}}}`)
		answered <- m
	}()
	if err := bob.Send(`{"jsonrpc":"2.0","id":` + <-asked +
		`,"result":{"action":"accept","content":{"name":"bob"}}}`); err != nil {
		t.Fatal(err)
	}
	harness.CallTool(t, bob.Client, "box__echo", `{}`) // bob's messages have arrived
	asked <- ""
	if m := <-answered; !strings.Contains(string(m.Result), `"ann"`) {
		t.Errorf("the server got the answer %s%s, want ann's", m.Result, m.Error)
	}
	if err := ann.Notify("notifications/cancelled", `{"requestId":77}`); err != nil {
		t.Fatal(err)
	}
	harness.CallTool(t, ann.Client, "box__cancelled", `{"tag":"a"}`)

	if a, b := serverPID(t, ann, "box"), serverPID(t, bob, "box"); a == b {
		t.Errorf("ann and bob use the same process, %d", a)
	}
	g.Stop()
	cancelled := 0
	for _, r := range g.Records() {
		if r.Method == "notifications/cancelled" && r.Action == "drop" &&
			r.Principal == i.URL+"#bob" {
			cancelled++
		}
	}
	if cancelled != 1 {
		t.Errorf("got %d records of bob's dropped cancellation, want 1", cancelled)
	}
}

// A message to a session of the old transport counts only with a token of its principal.
func TestMessagesOfTheOldTransportNeedTheirPrincipal(t *testing.T) {
	i := issuertest.Start(t)
	g := start(t, i, "")
	base := strings.TrimSuffix(g.URL, "/mcp")
	token := func(subject string) string {
		return i.Token("first", i.Claims(resource, map[string]any{"sub": subject}))
	}
	r, err := http.NewRequestWithContext(harness.Context(t), "GET", base+"/sse", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token("ann"))
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	buffer := make([]byte, 4096)
	n, err := stream.Body.Read(buffer)
	_, path, found := strings.Cut(string(buffer[:n]), "data: ")
	if err != nil || !found {
		t.Fatalf("the stream began with %q, %v", buffer[:n], err)
	}
	path = strings.TrimSpace(path)
	foreign, foreignBody := post(t, g, "POST", base+path, token("bob"))
	unknown, unknownBody := post(t, g, "POST", base+"/messages?sid=AAAA", token("bob"))
	if foreign.StatusCode != 404 || unknown.StatusCode != 404 || foreignBody != unknownBody {
		t.Errorf("bob got status %d and %s, and for an unknown session %d and %s",
			foreign.StatusCode, foreignBody, unknown.StatusCode, unknownBody)
	}
	if own, body := post(t, g, "POST", base+path, token("ann")); own.StatusCode != 202 {
		t.Errorf("ann got status %d and %s, want 202", own.StatusCode, body)
	}
}
