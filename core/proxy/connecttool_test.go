package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// loginServer is a server that users log in to. It implements proxy.LoginUpstream and proxy.Login.
type loginServer struct {
	*fakeServer
	noTool bool // there is no tool to log in
	noPage bool // there is no page for the principal

	mu       sync.Mutex
	loggedIn bool
	done     chan struct{} // of the login that has begun
	begun    int           // logins
}

var errLogin = errors.New("not logged in")

// newLoginServer returns a server of which each answer needs a login.
func newLoginServer(results map[string]string) *loginServer {
	s := &loginServer{done: make(chan struct{})}
	answer := fixedResults(results)
	s.fakeServer = &fakeServer{answer: func(ctx context.Context, m *mcp.Message,
		h proxy.Handler) string {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.loggedIn {
			return "login"
		}
		return answer(ctx, m, h)
	}}
	return s
}

func (s *loginServer) Open(ctx context.Context, o proxy.OpenOptions,
	feed proxy.Handler) (proxy.Server, error) {
	_, err := s.fakeServer.Open(ctx, o, feed)
	return s, err
}

func (s *loginServer) Call(ctx context.Context, p pipeline.Passed,
	h proxy.Handler) (*mcp.Message, error) {
	if s.isLoggedIn() {
		return s.fakeServer.Call(ctx, p, h)
	}
	s.note(p.Message())
	return nil, &proxy.UnavailableError{Server: p.Message().Server,
		Reason: "you are not logged in to it: run x", Err: errLogin}
}

func (s *loginServer) isLoggedIn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loggedIn
}

// logIn ends the login that has begun.
func (s *loginServer) logIn() {
	s.mu.Lock()
	s.loggedIn = true
	s.mu.Unlock()
	close(s.done)
}

// logOut makes the server want a login again.
func (s *loginServer) logOut() {
	s.mu.Lock()
	s.loggedIn, s.done = false, make(chan struct{})
	s.mu.Unlock()
}

func (s *loginServer) NeedsLogin(err error) bool { return errors.Is(err, errLogin) }
func (s *loginServer) HasConnectTool() bool      { return !s.noTool }
func (s *loginServer) Patience() time.Duration   { return time.Minute }
func (s *loginServer) BeginLogin(context.Context, *identity.Principal,
	time.Time) (proxy.Login, error) {
	if s.noPage {
		return nil, proxy.ErrCannotAsk
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	return s, nil
}
func (s *loginServer) Page() (page, text string) { return "https://page", "Log in." }
func (s *loginServer) Done() <-chan struct{}     { return s.done }
func (s *loginServer) Err() error                { return nil }

// calls returns how often the server got a call of the tool connect.
func (s *loginServer) calls() (n int) {
	for _, got := range s.seen() {
		if strings.HasPrefix(got, "tools/call ") {
			n++
		}
	}
	return n
}

// openLogin opens a session of a client that speaks a revision, at the server "box".
func openLogin(t *testing.T, s *loginServer, revision string, change func(*proxy.Options),
	stages ...pipeline.StageConfig) *fixture {
	t.Helper()
	w := open(t, nil, func(o *proxy.Options) {
		o.Servers = append(o.Servers, proxy.ServerConfig{Name: "box", Upstream: s})
		if change != nil {
			change(o)
		}
	}, stages...)
	w.session = w.proxy.Open(proxy.OpenOptions{Session: "s", Principal: identity.FromID("p"),
		Revision: revision}, w.feed)
	return w
}

// params returns the params of a request with members. A modern client declares elicitation.url in
// it.
func params(revision, members string) string {
	if revision != mcp.Rev20260728 {
		return "{" + members + "}"
	}
	if members != "" {
		members += ","
	}
	return `{` + members + `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}}}}`
}

const opensPages = `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"url":{}}},` +
	`"clientInfo":{"name":"c","version":"1"}}`

// begin sends what a client begins with.
func (w *fixture) begin(t *testing.T, revision string) string {
	t.Helper()
	if revision == mcp.Rev20260728 {
		return w.call(t, "server/discover", params(revision, ""))
	}
	answer := w.call(t, "initialize", opensPages)
	w.session.Notify(t.Context(), notification(t, "notifications/initialized", `{}`))
	return answer
}

// accept makes the client accept each question, and then do something.
func (w *fixture) accept(then func()) {
	w.client.answer = func(m *mcp.Message) *mcp.Message {
		if then != nil {
			then()
		}
		return mcp.NewResponse(m.ID(), []byte(`{"action":"accept"}`))
	}
}

var eras = []string{mcp.Rev20260728, mcp.Rev20251125}

// A principal who is not logged in sees one tool. Its call asks for the login, and after the login
// the client is notified, the tool is gone, and a late call of it reaches no server.
func TestConnectTool(t *testing.T) {
	for _, revision := range eras {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				box := newLoginServer(map[string]string{
					"initialize":      `{"capabilities":{"tools":{}}}`,
					"server/discover": `{"capabilities":{"tools":{}}}`,
					"tools/list":      `{"tools":[{"name":"connect"},{"name":"x"}]}`,
					"tools/call":      `{"content":[],"server":true}`})
				w := openLogin(t, box, revision, nil)
				if got := w.begin(t, revision); !strings.Contains(got, `"tools":{"listChanged"`) {
					t.Errorf("the client begins with %s, want a result with tools", got)
				}
				list := func() string { return w.call(t, "tools/list", params(revision, "")) }
				if got := list(); strings.Count(got, `"name":`) != 1 ||
					!strings.Contains(got, `"name":"box__connect"`) ||
					!strings.Contains(got, "not logged in to it: run x") {
					t.Errorf("before the login, the list is %s", got)
				}
				equal(t, "prompts", strings.HasPrefix(w.call(t, "prompts/list", params(revision,
					"")), `{"prompts":[]`), true)
				w.accept(func() {
					box.logIn()
					w.proxy.UseNewCredentials("box", func(string) bool { return true })
				})
				call := func() string {
					return w.call(t, "tools/call", params(revision,
						`"name":"box__connect","arguments":{}`))
				}
				if got := call(); !strings.Contains(got, "You are logged in") {
					t.Errorf("the tool returned %s", got)
				}
				if len(w.client.asked) != 1 || !strings.Contains(w.client.asked[0],
					`"mode":"url","url":"https://page","message":"Log in."`) {
					t.Errorf("the client was asked %q", w.client.asked)
				}
				synctest.Wait()
				if w.changes() == 0 {
					t.Error("the client was not notified")
				}
				if got := call(); !strings.Contains(got, "You are logged in") {
					t.Errorf("after the login, the tool returned %s", got)
				}
				equal(t, "calls at the server", box.calls(), 0)
				if got := list(); strings.Count(got, `"name":`) != 2 ||
					strings.Contains(got, "Log in") {
					t.Errorf("after the login, the list is %s", got)
				}
				// From now on, the name is the server's own tool, with or without a login.
				if got := call(); !strings.Contains(got, `"server":true`) {
					t.Errorf("the server's tool returned %s", got)
				}
				box.logOut()
				if got := call(); !strings.Contains(got, `"server":true`) {
					t.Errorf("the server's tool returned %s, want a login and its result", got)
				}
				w.record.expect(t, "answer to_client response tools/list box",
					"pass to_server request tools/call box connect",
					"pass to_client request elicitation/create box",
					"answer to_client response tools/call box connect")
			})
		})
	}
}

// A client that does not open web pages gets the page as text. A principal without a page gets the
// server's error.
func TestConnectToolWithoutQuestions(t *testing.T) {
	for _, revision := range []string{mcp.Rev20250326, mcp.Rev20251125} {
		for _, noPage := range []bool{false, true} {
			t.Run(fmt.Sprint(revision, noPage), func(t *testing.T) {
				box := newLoginServer(nil)
				box.noPage = noPage
				w := openLogin(t, box, revision, nil)
				w.call(t, "initialize", initializeParams)
				// The session has no list yet, and the tool is called all the same.
				got := w.call(t, "tools/call", `{"name":"box__connect"}`)
				want := `open this page in a browser: https://page`
				if noPage {
					want = `run x"}],"isError":true}`
				}
				if !strings.Contains(got, want) || strings.Contains(got, "isError") != noPage {
					t.Errorf("the tool returned %s, want %s", got, want)
				}
				equal(t, "questions", len(w.client.asked), 0)
			})
		}
	}
}

// The user declines, does not log in in time, or the session ends.
func TestConnectToolWithoutLogin(t *testing.T) {
	for _, action := range []string{"decline", "accept"} {
		for _, revision := range eras {
			t.Run(action+" "+revision, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					box := newLoginServer(nil)
					w := openLogin(t, box, revision, nil)
					w.begin(t, revision)
					w.client.answer = func(m *mcp.Message) *mcp.Message {
						return mcp.NewResponse(m.ID(), []byte(`{"action":"`+action+`"}`))
					}
					got := w.call(t, "tools/call", params(revision, `"name":"box__connect"`))
					if !strings.Contains(got, "The user has not logged in") ||
						!strings.Contains(got, `"isError":true`) {
						t.Errorf("the tool returned %s", got)
					}
					equal(t, "questions", len(w.client.asked), 1)
				})
			})
		}
	}
}

// There is no such tool if the configuration does not want it, and none without prefixes. A stage
// can hide it, and deny its call.
func TestConnectToolThatIsNotThere(t *testing.T) {
	stages := func(s stage) []pipeline.StageConfig {
		return []pipeline.StageConfig{{Name: "s", Stage: s, Timeout: time.Minute}}
	}
	allow := pipeline.Verdict{Action: pipeline.Allow}
	for _, c := range []struct {
		name       string
		noTool     bool
		naming     string
		stages     []pipeline.StageConfig
		list, call string
	}{
		{name: "it is not wanted", noTool: true, list: "!-32603", call: "!-32603"},
		{name: "without prefixes", naming: "never", list: "!-32603", call: "!-32603"},
		{name: "a stage hides it", stages: stages(func(m *mcp.Message) pipeline.Verdict {
			if m.Method == "tools/list" && m.Kind == mcp.Response {
				return pipeline.Verdict{Action: pipeline.Allow, Hide: []string{"connect"}}
			}
			return allow
		}), list: `{"tools":[],"_meta":`, call: `{"content":`},
		{name: "a stage denies its call", stages: stages(func(m *mcp.Message) pipeline.Verdict {
			if m.Method == "tools/call" && m.Name == "connect" && m.Server == "box" {
				return pipeline.Verdict{Action: pipeline.Deny}
			}
			return allow
		}), list: `{"tools":[{"name":"box__connect"`, call: "!-31000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			box := newLoginServer(nil)
			box.noTool = c.noTool
			w := openLogin(t, box, mcp.Rev20250326, func(o *proxy.Options) {
				o.Naming.Prefix = c.naming
			}, c.stages...)
			w.call(t, "initialize", initializeParams)
			if got := w.call(t, "tools/list", "{}"); !strings.HasPrefix(got, c.list) {
				t.Errorf("the list is %s, want %s", got, c.list)
			}
			name := "box__connect"
			if c.naming == "never" {
				name = "connect"
			}
			if got := w.call(t, "tools/call", `{"name":"`+name+`"}`); !strings.HasPrefix(got,
				c.call) {
				t.Errorf("the call returned %s, want %s", got, c.call)
			}
		})
	}
}

// A request during which no question can be asked fails with the error -32042, if the client's
// revision has it and the client opens web pages. The client is notified of the login.
func TestLoginIsRequiredByError(t *testing.T) {
	deny := stage(func(m *mcp.Message) pipeline.Verdict {
		if m.Method == "elicitation/create" {
			return pipeline.Verdict{Action: pipeline.Deny}
		}
		return pipeline.Verdict{Action: pipeline.Allow}
	})
	for _, c := range []struct {
		name, revision, initialize, method, params string
		cannotAsk                                  bool
		stages                                     []pipeline.StageConfig
		want                                       bool // the error is -32042
	}{
		{name: "a completion", revision: mcp.Rev20251125, initialize: opensPages,
			method: "completion/complete",
			params: `{"ref":{"type":"ref/prompt","name":"box__p"},"argument":{}}`, want: true},
		{name: "a call of a client without a stream", revision: mcp.Rev20251125,
			initialize: opensPages, method: "tools/call", params: `{"name":"box__x"}`,
			cannotAsk: true, want: true},
		{name: "the tool to log in, without a stream", revision: mcp.Rev20251125,
			initialize: opensPages, method: "tools/call", params: `{"name":"box__connect"}`,
			cannotAsk: true, want: true},
		{name: "the user has declined", revision: mcp.Rev20251125, initialize: opensPages,
			method: "tools/call", params: `{"name":"box__x"}`},
		{name: "an older revision", revision: mcp.Rev20250618, initialize: opensPages,
			method: "completion/complete",
			params: `{"ref":{"type":"ref/prompt","name":"box__p"},"argument":{}}`},
		{name: "a client that opens no pages", revision: mcp.Rev20251125,
			initialize: initializeParams, method: "tools/call", params: `{"name":"box__x"}`},
		{name: "a stage denies questions", revision: mcp.Rev20251125, initialize: opensPages,
			method: "completion/complete",
			params: `{"ref":{"type":"ref/prompt","name":"box__p"},"argument":{}}`,
			stages: []pipeline.StageConfig{{Name: "s", Stage: deny, Timeout: time.Minute}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				box := newLoginServer(nil)
				w := openLogin(t, box, c.revision, nil, c.stages...)
				w.call(t, "initialize", c.initialize)
				if c.cannotAsk {
					w.client.fails = proxy.ErrOutsideCall
				}
				w.client.answer = func(m *mcp.Message) *mcp.Message {
					return mcp.NewResponse(m.ID(), []byte(`{"action":"decline"}`))
				}
				var ids []string
				for range 2 {
					m := w.session.Call(t.Context(), request(t, "7", c.method, c.params),
						w.client).Message()
					if got := m.ErrorCode() == mcp.CodeURLElicitationRequired; got != c.want {
						t.Fatalf("got %s, want -32042: %v", m.Body(), c.want)
					}
					if text, _ := m.Text("/message"); !strings.Contains(text, "run x") {
						t.Errorf("the message is %s", text)
					}
					if !c.want {
						return
					}
					id, _ := m.Text("/data/elicitations/0/elicitationId")
					ids = append(ids, id)
					if !strings.HasPrefix(id, "box+") || m.Len("/data/elicitations") != 1 ||
						!m.TextEquals("/data/elicitations/0/mode", "url") ||
						!m.TextEquals("/data/elicitations/0/url", "https://page") ||
						!m.TextEquals("/data/elicitations/0/message", "Log in.") {
						t.Errorf("the error is %s", m.Body())
					}
				}
				equal(t, "the ids of one login", ids[0], ids[1])
				box.logIn()
				synctest.Wait()
				want := `notifications/elicitation/complete {"elicitationId":"` + ids[0] + `"}`
				if got := w.feed.received(); strings.Count(strings.Join(got, "\n"), want) != 1 {
					t.Errorf("the client was notified of %q, want once %s", got, want)
				}
			})
		})
	}
}

// A call right after a login gets no old error: it waits until initialize has been repeated.
func TestCallWaitsForNewCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := newLoginServer(map[string]string{"initialize": `{"capabilities":{"tools":{}}}`,
			"tools/call": `{"content":[]}`})
		w := openLogin(t, box, mcp.Rev20250326, nil)
		w.call(t, "initialize", initializeParams)
		call := func() string { return w.call(t, "tools/call", `{"name":"box__x"}`) }
		for range 20 { // the scheduler may repeat initialize before the call, so try often
			equal(t, "without a login", strings.HasPrefix(call(), "!-32603"), true)
			w.proxy.UseNewCredentials("box", func(string) bool { return true })
		}
		box.logIn()
		w.proxy.UseNewCredentials("box", func(string) bool { return true })
		equal(t, "after the login", call(), `{"content":[]}`)
	})
}
