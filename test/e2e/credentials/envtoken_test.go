package credentials

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// withToken returns the configuration of a program on stdio that gets the token of its user at the
// server box, and writes it to stderr. The program speaks one revision. env is added to its
// environment.
func withToken(revision string, env ...string) string {
	return harness.StdioServer("tool", []string{"/bin/sh", "-c",
		`echo "got $BOX_TOKEN or $${BOX_TOKEN#Bearer }" >&2; exec "$0" "$@"`, os.Args[0], "-name",
		"tool", "-revisions", revision}, append(env, "MCPTEST_SERVE", "1", "GORACE",
		"atexit_sleep_ms=0", "BOX_TOKEN", "Bearer ${token:box}")...)
}

// process is a process of the program that withToken configures.
type process struct {
	pid   int
	token string
}

// processOf returns the process that serves a client.
func processOf(t *testing.T, c *mcptest.Client) process {
	t.Helper()
	m, err := c.Tool(harness.Context(t), "tool__self", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	var self struct {
		StructuredContent struct {
			PID int
			Env []string
		}
	}
	if err := json.Unmarshal(m.Result, &self); err != nil {
		t.Fatalf("%v: %s%s", err, m.Result, m.Error)
	}
	for _, v := range self.StructuredContent.Env {
		if token, ok := strings.CutPrefix(v, "BOX_TOKEN=Bearer "); ok {
			return process{self.StructuredContent.PID, token}
		}
	}
	t.Fatalf("the program has no token: %s", m.Result)
	return process{}
}

// wantProcess fails the test unless the token of a process is valid and of a user, and is in no log
// and no argument.
func wantProcess(t *testing.T, a *provider, p *protected, g *harness.Gatekit, s process,
	user string) {
	t.Helper()
	info, err := a.check(s.token, p.url())
	if err != nil || info.UserID != user {
		t.Errorf("the process has the token of %+v, %v; want one of %s", info, err, user)
	}
	g.WaitForLog(`line="got `, 1)
	log, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	// Not on every system.
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.pid))
	for _, text := range []string{string(log), g.Stderr.String(), string(args)} {
		if strings.Contains(text, s.token) {
			t.Errorf("the token is in\n%s", text)
		}
	}
}

// wantEnded waits until a process has ended.
func wantEnded(t *testing.T, g *harness.Gatekit, times int) {
	t.Helper()
	g.WaitForLog(`msg="server ended" server=tool`, times)
}

// TestProgramsGetTheTokensOfTheirUsers has two users of a program on stdio. Each has processes of
// its own, with its own token. A login, a logout or a revocation ends them.
func TestProgramsGetTheTokensOfTheirUsers(t *testing.T) {
	for _, server := range harness.Revisions {
		for _, revision := range harness.Revisions {
			t.Run(server+" server, "+revision+" client", func(t *testing.T) {
				a := startProvider(t, 3600)
				p := protectedBy(t, a, false)
				annToken, annTable := staticToken(t, "ann")
				bobToken, bobTable := staticToken(t, "bob")
				g := start(t, annTable+bobTable+oauth(p, pinned(a), preRegistered)+
					withToken(server))
				ann, bob := bearer(t, g, annToken, revision), bearer(t, g, bobToken, revision)
				for _, c := range []*mcptest.Client{ann, bob} {
					c.Capabilities = `{}`
					harness.Handshake(t, c)
				}
				result := harness.Request(t, ann, "tools/list", `{}`).Result
				names := regexp.MustCompile(`"name":"(tool__[^"]*)"`).FindAllStringSubmatch(
					string(result), -1)
				if len(names) != 1 || names[0][1] != "tool__connect" || !strings.Contains(
					string(result), `it needs your token of the server`) {
					t.Errorf("without a login, the list is %s", result)
				}
				m, err := ann.Tool(harness.Context(t), "tool__self", `{}`)
				if err != nil || !strings.Contains(string(m.Error),
					"gatekit auth login box --principal 'token:ann'") {
					t.Errorf("without a login, got %s%s %v", m.Result, m.Error, err)
				}

				a.logIn(t, g.Dir, "ann", "box", "--principal", "token:ann")
				a.logIn(t, g.Dir, "bob", "box", "--principal", "token:bob")
				first, other := processOf(t, ann), processOf(t, bob)
				if first.pid == other.pid || first.token == other.token {
					t.Errorf("the users share the process %d", first.pid)
				}
				wantProcess(t, a, p, g, first, "ann")
				wantProcess(t, a, p, g, other, "bob")

				a.logIn(t, g.Dir, "anna", "box", "--principal", "token:ann")
				next := processOf(t, ann)
				if next.pid == first.pid || processOf(t, bob) != other {
					t.Errorf("after another login of ann, the processes are %d and %d, before %d "+
						"and %d", next.pid, processOf(t, bob).pid, first.pid, other.pid)
				}
				wantProcess(t, a, p, g, next, "anna")
				if out, code := gatekit(t, g.Dir, "auth", "logout", "box", "--principal",
					"token:ann"); code != 0 {
					t.Fatal(out)
				}
				m, err = ann.Tool(harness.Context(t), "tool__self", `{}`)
				if err != nil || !strings.Contains(string(m.Error), "not logged in") {
					t.Errorf("after the logout, got %s%s %v", m.Result, m.Error, err)
				}
				wantEnded(t, g, 2)
				if out, code := gatekit(t, g.Dir, "auth", "revoke", "token:bob", "--reason",
					"gone"); code != 0 {
					t.Fatal(out)
				}
				harness.WaitUntilAtMost(t, "a revoked principal has a process", 0, func() int {
					if syscall.Kill(other.pid, 0) != nil {
						return 0
					}
					return 1
				})
				g.WantRecords("- - - tool - ended", "to_server request tools/call tool self pass")
				wantHidden(t, g, p)
			})
		}
	}
}

// TestProgramGetsANewTokenBeforeTheOldOneExpires has tokens that expire soon. The process ends
// before, and the next call gets one with another token.
func TestProgramGetsANewTokenBeforeTheOldOneExpires(t *testing.T) {
	t.Parallel()
	for _, server := range harness.Revisions {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			withShortTokens(t, func(seconds int) bool { return getNewToken(t, server, seconds) })
		})
	}
}

// getNewToken is TestProgramGetsANewTokenBeforeTheOldOneExpires with tokens that are valid for some
// seconds. It returns false if the first process got no token of the login, because it had expired.
func getNewToken(t *testing.T, server string, seconds int) (inTime bool) {
	a := startProvider(t, seconds)
	p := protectedBy(t, a, false)
	g := start(t, oauth(p, pinned(a), preRegistered)+withToken(server))
	a.logIn(t, g.Dir, "ann", "box")
	c := connect(t, g, harness.Revisions[0])
	harness.Handshake(t, c)
	first := processOf(t, c)
	if actions(g)["refreshed"] != 0 {
		return false
	}
	wantEnded(t, g, 1)
	next := processOf(t, c)
	if next.pid == first.pid || next.token == first.token {
		t.Errorf("got the process %d again", first.pid)
	}
	wantProcess(t, a, p, g, next, "ann")
	if got := actions(g); got["login"] != 1 || got["refreshed"] == 0 {
		t.Errorf("got the events %v, want a login and a refresh", got)
	}
	return true
}

// TestChangedServerEndsTheProcessesWithItsTokens changes the settings of the server whose token a
// program has.
func TestChangedServerEndsTheProcessesWithItsTokens(t *testing.T) {
	for _, server := range harness.Revisions {
		t.Run(server, func(t *testing.T) {
			a := startProvider(t, 3600)
			p := protectedBy(t, a, false)
			g := start(t, oauth(p, pinned(a), preRegistered)+withToken(server))
			a.logIn(t, g.Dir, "ann", "box")
			c := connect(t, g, harness.Revisions[0])
			harness.Handshake(t, c)
			first := processOf(t, c)
			g.Configure(fmt.Sprintf("[listen]\nhttp = %q\n", strings.TrimSuffix(
				strings.TrimPrefix(g.URL, "http://"), "/mcp")) + oauth(p, pinned(a), preRegistered,
				`max_scopes = ["read", "offline_access"]`) + withToken(server))
			g.WaitForLog("configuration reloaded", 1)
			wantEnded(t, g, 1)
			next := processOf(t, c)
			if next.pid == first.pid {
				t.Errorf("got the process %d again", first.pid)
			}
			wantProcess(t, a, p, g, next, "ann")
			g.WantRecords("- - - tool - ended")
		})
	}
}

// TestUserIsAskedForEveryToken has a program that gets the tokens of two servers. Its user is asked
// to log in to both, during one call of the tool to log in, or of another tool.
func TestUserIsAskedForEveryToken(t *testing.T) {
	for _, revision := range harness.Revisions {
		for _, tool := range []string{"tool__connect", "tool__self"} {
			t.Run(tool+", "+revision, func(t *testing.T) {
				a := startProvider(t, 3600)
				p, q := protectedBy(t, a, false), protectedBy(t, a, false)
				second := strings.NewReplacer("[server.box", "[server.crate").Replace(
					oauth(q, pinned(a), preRegistered))
				g := start(t, oauth(p, pinned(a), preRegistered)+second+withToken(revision,
					"CRATE_TOKEN", "${token:crate}"))
				c := connect(t, g, revision)
				c.Capabilities = `{"elicitation":{"url":{}}}`
				asked := opensURLs(c, "accept")
				harness.Handshake(t, c)
				if tool == "tool__self" { // so that the server's revision is known
					for _, name := range []string{"box", "crate"} {
						a.logIn(t, g.Dir, "old", name)
					}
					processOf(t, c)
					for _, name := range []string{"box", "crate"} {
						if out, code := gatekit(t, g.Dir, "auth", "logout", name); code != 0 {
							t.Fatal(out)
						}
					}
				}
				answered := make(chan string, 1)
				go func() {
					m, err := c.Tool(harness.Context(t), tool, `{}`)
					answered <- fmt.Sprint(string(m.Result), string(m.Error), err)
				}()
				for _, name := range []string{"box", "crate"} {
					select {
					case question := <-asked:
						if text := mcptest.Text(question.Params, "message"); !strings.Contains(text,
							`Log in to the server "`+name+`"`) {
							t.Errorf("got the question %s, want one about %s", text, name)
						}
						a.browse(mcptest.Text(question.Params, "url"), "ann")
					case got := <-answered:
						t.Fatalf("the call ended before the question about %s: %s", name, got)
					}
				}
				if got := <-answered; strings.Contains(got, "isError") ||
					strings.Contains(got, `"code"`) {
					t.Errorf("the call got %s", got)
				}
				harness.Request(t, c, "tools/list", `{}`)
				wantProcess(t, a, p, g, processOf(t, c), "ann")
				var logins []string
				for _, r := range g.Records() {
					if r.Action == "login" {
						logins = append(logins, r.Server)
					}
				}
				if n := len(logins); n < 2 || logins[n-2] != "box" || logins[n-1] != "crate" ||
					len(asked) != 0 {
					t.Errorf("got the logins %q and %d more questions, want box, crate and 0",
						logins, len(asked))
				}
				wantHidden(t, g, p)
				wantHidden(t, g, q)
			})
		}
	}
}
