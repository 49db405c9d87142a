package credentials

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// toolsOf returns the names in the client's list of tools, and the whole result.
func toolsOf(t *testing.T, c *mcptest.Client) (names []string, result string) {
	t.Helper()
	result = string(harness.Request(t, c, "tools/list", `{}`).Result)
	for _, m := range regexp.MustCompile(`"name":"(box__[^"]*)"`).FindAllStringSubmatch(result, -1) {
		names = append(names, m[1])
	}
	return names, result
}

// wantTools fails the test unless the client's list has these tools of the server.
func wantTools(t *testing.T, c *mcptest.Client, want ...string) {
	t.Helper()
	if got, result := toolsOf(t, c); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got the tools %q, want %q, in\n%s", got, want, result)
	}
}

// connectResult calls the tool to log in, and returns its result or the error.
func connectResult(t *testing.T, c *mcptest.Client) string {
	t.Helper()
	m, err := c.Tool(harness.Context(t), "box__connect", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Result) + string(m.Error)
}

// TestConnectTool has only a server at which nobody has ever logged in. Its list has one tool,
// which asks the user to log in. After that, the list is the server's.
func TestConnectTool(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			a := startProvider(t, 3600)
			p := protectedBy(t, a, false)
			g := start(t, oauth(p, pinned(a), preRegistered))
			c := connect(t, g, revision)
			asked := opensURLs(c, "accept")
			harness.Handshake(t, c)
			subscribe(t, c)
			wantTools(t, c, "box__connect")
			mark := c.Mark()
			called := make(chan string, 1)
			go func() { called <- connectResult(t, c) }()
			select {
			case question := <-asked:
				page := mcptest.Text(question.Params, "url")
				if last := a.browse(page, "ann"); !strings.Contains(last, "You are logged in") {
					t.Errorf("the last page is\n%s", last)
				}
			case got := <-called:
				t.Fatalf("the tool returned without a question: %s", got)
			}
			if got := <-called; !strings.Contains(got, `You are logged in to the server \"box\"`) {
				t.Errorf("the tool returned %s", got)
			}
			awaitChange(t, c, mark)
			wantTools(t, c, "box__scopes", "box__whoami")
			wantUser(t, c, "ann")
			g.WantRecords("to_client response tools/list box - answer",
				"to_server request tools/call box connect pass",
				"to_client request elicitation/create box - pass",
				"to_client response tools/call box connect answer")
			wantHidden(t, g, p)
		})
	}
}

// TestConnectToolReturnsALink has clients that open no web pages. The user of an issuer gets a link
// of Gatekit's pages. A program with a static token gets the command for an operator.
func TestConnectToolReturnsALink(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			token, table := staticToken(t, "ci")
			c := startConnectable(t, preRegistered, table)
			client := func(token string) *mcptest.Client {
				client := bearer(t, c.gatekit, token, revision)
				client.Capabilities = `{}`
				harness.Handshake(t, client)
				wantTools(t, client, "box__connect")
				return client
			}
			if got := connectResult(t, client(token)); !strings.Contains(got,
				"gatekit auth login box --principal 'token:ci'") ||
				!strings.Contains(got, `"isError":true`) {
				t.Errorf("the tool of the program returned %s", got)
			}
			ann := client(c.provider.accessToken("ann"))
			subscribe(t, ann)
			mark := ann.Mark()
			got := connectResult(t, ann)
			link := regexp.MustCompile(regexp.QuoteMeta(c.public) + `/connect/gk1\.[^\\" ]+`).
				FindString(got)
			if link == "" {
				t.Fatalf("the tool returned %s, want a link", got)
			}
			if status, _ := newUser(t, "bob").open(c, link); status != 403 {
				t.Errorf("bob got status %d", status)
			}
			user := newUser(t, "ann")
			_, text := user.open(c, link)
			if _, last := user.press(c, link, text); !strings.Contains(last, "You are logged in") {
				t.Errorf("the last page is\n%s", last)
			}
			awaitChange(t, ann, mark)
			wantTools(t, ann, "box__scopes", "box__whoami")
			wantUser(t, ann, "ann")
			c.gatekit.WantRecords("to_client response tools/call box connect answer")
			wantHidden(t, c.gatekit, c.server, got)
		})
	}
}

// TestLoginIsRequiredByError has a client of 2025-11-25 whose request needs a login and cannot ask
// for it. The error names the page, and the client is notified of the login.
func TestLoginIsRequiredByError(t *testing.T) {
	a := startProvider(t, 3600)
	p := protectedBy(t, a, false)
	g := start(t, oauth(p, pinned(a), preRegistered)+harness.ScriptedServer("other"))
	c := connect(t, g, "2025-11-25")
	asked := opensURLs(c, "accept")
	harness.Handshake(t, c)
	mark := c.Mark()
	m := harness.Request(t, c, "completion/complete",
		`{"ref":{"type":"ref/prompt","name":"box__p"},"argument":{"name":"a","value":"b"}}`)
	got := regexp.MustCompile(`^{"code":-32042,.*run gatekit auth login box","data":` +
		`{"elicitations":\[{"mode":"url","url":"([^"]*)","message":"\[box\] Log in (?:[^"\\]|\\.)*",` +
		`"elicitationId":"(box\+[^"]*)"}\]}}$`).FindStringSubmatch(string(m.Error))
	if got == nil || len(asked) != 0 {
		t.Fatalf("got the error %s and %d questions", m.Error, len(asked))
	}
	if last := a.browse(got[1], "ann"); !strings.Contains(last, "You are logged in") {
		t.Errorf("the last page is\n%s", last)
	}
	complete, err := c.AwaitMethod(harness.Context(t), mark, "notifications/elicitation/complete")
	if err != nil || mcptest.Text(complete.Params, "elicitationId") != got[2] {
		t.Errorf("got the notification %s %v, want one for %s", complete.Params, err, got[2])
	}
	wantUser(t, c, "ann")
	g.WantRecords("to_client request elicitation/create box - pass",
		"to_client error completion/complete box p answer",
		"to_client notification notifications/elicitation/complete box - pass")
	wantHidden(t, g, p)
}

const hideConnect = `hide contains "connect" if {
	input.method == "tools/list"
	input.kind == "response"
	input.server == "box"
}
`

// TestPolicyHidesTheConnectTool has a policy that hides the tool. It is in no list, and its call is
// denied. With connect_tool = false, there is no such tool.
func TestPolicyHidesTheConnectTool(t *testing.T) {
	for _, c := range []struct{ name, setting, policy, want, record string }{
		{"a policy", "", hideConnect, "refused by policy",
			"to_server request tools/call box connect deny"},
		{"the setting", "connect_tool = false", "", "not logged in", ""},
	} {
		for _, revision := range harness.Revisions {
			t.Run(c.name+" "+revision, func(t *testing.T) {
				a := startProvider(t, 3600)
				p := protectedBy(t, a, false)
				config := oauth(p, pinned(a), preRegistered, c.setting) +
					harness.ScriptedServer("other")
				if c.policy != "" {
					config += harness.PolicyFile(t, c.policy)
				}
				g := start(t, config)
				client := connect(t, g, revision)
				client.Capabilities = `{}`
				harness.Handshake(t, client)
				wantTools(t, client)
				if got := connectResult(t, client); !strings.Contains(got, c.want) {
					t.Errorf("a call of the tool got %s, want %s", got, c.want)
				}
				if c.record != "" {
					g.WantRecords("to_client response tools/list box - hide", c.record)
				}
			})
		}
	}
}
