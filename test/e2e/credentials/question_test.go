package credentials

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// opensURLs makes a client declare elicitation.url, and answer each question with an action. The
// questions are sent to the channel.
func opensURLs(c *mcptest.Client, action string) <-chan mcptest.Message {
	asked := make(chan mcptest.Message, 10)
	c.Capabilities = `{"elicitation":{"url":{}}}`
	c.Answer["elicitation/create"] = func(m mcptest.Message) string {
		asked <- m
		return fmt.Sprintf(`{"action":%q}`, action)
	}
	return asked
}

// begin makes a client of a server that the local user is not logged in to. A legacy client has
// initialized the server while the user was logged in.
func begin(t *testing.T, revision string) (*provider, *protected, *harness.Gatekit,
	*mcptest.Client) {
	t.Helper()
	a := startProvider(t, 3600)
	p := protectedBy(t, a, false)
	g := start(t, oauth(p, pinned(a), preRegistered)+harness.ScriptedServer("other"))
	a.logIn(t, g.Dir, "bob", "box")
	c := connect(t, g, revision)
	return a, p, g, c
}

// logOut ends the login of the local user, and waits until the client knows.
func logOut(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
	t.Helper()
	harness.Handshake(t, c)
	subscribe(t, c)
	wantUser(t, c, "bob")
	mark := c.Mark()
	if out, code := gatekit(t, g.Dir, "auth", "logout", "box"); code != 0 {
		t.Fatal(out)
	}
	awaitChange(t, c, mark)
}

// TestUserIsAskedToLogIn calls a tool without a login. The client opens the page, and the call goes
// on after the login.
func TestUserIsAskedToLogIn(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			a, p, g, c := begin(t, revision)
			asked := opensURLs(c, "accept")
			logOut(t, g, c)
			const calls = 2 // all wait for one login
			called := make(chan string, calls)
			for range calls {
				go func() {
					m, err := c.Tool(harness.Context(t), "box__whoami", `{}`)
					called <- fmt.Sprint(string(m.Result), string(m.Error), err)
				}()
			}
			page := ""
			for range calls {
				var question mcptest.Message
				select {
				case question = <-asked:
				case got := <-called:
					t.Fatalf("a call ended without a question: %s", got)
				}
				if page == "" {
					page = mcptest.Text(question.Params, "url")
				}
				text := mcptest.Text(question.Params, "message")
				if mcptest.Text(question.Params, "mode") != "url" ||
					!strings.HasPrefix(page, a.issuer+"/auth?") ||
					mcptest.Text(question.Params, "url") != page ||
					!strings.Contains(text, `[box] Log in to the server "box" at `+a.issuer) {
					t.Errorf("got the question %s, want one for the page %s", question.Params,
						page)
				}
			}
			if last := a.browse(page, "ann"); !strings.Contains(last, "You are logged in") {
				t.Errorf("the last page is %s", last)
			}
			for range calls {
				if got := <-called; !strings.Contains(got, "you are ann") {
					t.Errorf("a call got %s, want the result for ann", got)
				}
			}
			wantUser(t, c, "ann")
			if got := actions(g); got["login"] != 2 {
				t.Errorf("got the events %v, want two logins", got)
			}
			if revision != mcptest.Modern {
				if _, err := c.AwaitMethod(harness.Context(t), 0,
					"notifications/elicitation/complete"); err != nil {
					t.Error(err)
				}
			}
			g.WantRecords("to_client request elicitation/create box - pass",
				"to_server response elicitation/create box - pass")
			wantHidden(t, g, p)
		})
	}
}

// TestUserWhoDoesNotLogInGetsTheError declines the question, or cannot be asked.
func TestUserWhoDoesNotLogInGetsTheError(t *testing.T) {
	for _, revision := range harness.Revisions {
		for _, action := range []string{"decline", "cancel", ""} {
			t.Run(revision+" "+action, func(t *testing.T) {
				_, p, g, c := begin(t, revision)
				want := 1
				asked := opensURLs(c, action)
				if action == "" {
					c.Capabilities, want = `{"elicitation":{"form":{}}}`, 0
				}
				logOut(t, g, c)
				wantNoLogin(t, c, "gatekit auth login box")
				if len(asked) != want {
					t.Errorf("got %d questions, want %d", len(asked), want)
				}
				n := 0
				for _, r := range g.Records() {
					if r.Method == "elicitation/create" && r.Kind == "request" {
						n++
					}
				}
				if n != want {
					t.Errorf("got %d records of questions, want %d", n, want)
				}
				wantHidden(t, g, p)
			})
		}
	}
}

const denyQuestions = `deny contains "no questions" if {
	input.method == "elicitation/create"
	input.kind == "request"
}
`

// TestPolicyDeniesTheQuestion has a rule against questions of the server.
func TestPolicyDeniesTheQuestion(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			a := startProvider(t, 3600)
			p := protectedBy(t, a, false)
			g := start(t, oauth(p, pinned(a), preRegistered)+harness.ScriptedServer("other")+
				harness.PolicyFile(t, denyQuestions))
			a.logIn(t, g.Dir, "bob", "box")
			c := connect(t, g, revision)
			asked := opensURLs(c, "accept")
			logOut(t, g, c)
			wantNoLogin(t, c, "gatekit auth login box")
			if len(asked) != 0 {
				t.Errorf("got the question %s", (<-asked).Params)
			}
			g.WantRecords("to_client request elicitation/create box - deny")
			wantHidden(t, g, p)
		})
	}
}

// TestPrincipalsGetNoLoopbackPage has a principal with a token, whose browser may be elsewhere.
func TestPrincipalsGetNoLoopbackPage(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			a := startProvider(t, 3600)
			p := protectedBy(t, a, false)
			token, table := staticToken(t, "ann")
			g := start(t, table+oauth(p, pinned(a), preRegistered, `per = "gatekit"`)+
				harness.ScriptedServer("other"))
			a.logIn(t, g.Dir, "bob", "box")
			c := bearer(t, g, token, revision)
			asked := opensURLs(c, "accept")
			logOut(t, g, c)
			wantNoLogin(t, c, "gatekit auth login box")
			if len(asked) != 0 {
				t.Errorf("got the question %s", (<-asked).Params)
			}
			wantHidden(t, g, p)
		})
	}
}
