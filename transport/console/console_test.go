package console_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit/query"
	"gatekit/transport/console"
)

const host = "127.0.0.1:7778"

// fakeTraffic returns the calls that it holds.
type fakeTraffic struct{ calls []*query.Call }

func (f fakeTraffic) Calls(_ context.Context, filter string, _ uint64) (*console.CallList, error) {
	if filter == "wrong" {
		return nil, errors.New("the filter is wrong")
	}
	return &console.CallList{Calls: f.calls}, nil
}

func (f fakeTraffic) Follow(ctx context.Context, _ string, _ uint64,
	send func(console.NewCalls) error) error {
	var live []*console.LiveCall
	for _, c := range f.calls {
		live = append(live, console.NewLiveCall(c))
	}
	if err := send(console.NewCalls{Calls: live, Skipped: 7, Through: 9}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// newConsole returns a console with the traffic page, and with the action "do" on it.
func newConsole(t *testing.T, scope console.Scope, calls ...*query.Call) *console.Console {
	t.Helper()
	page := console.TrafficPage(fakeTraffic{calls})
	page.Actions = map[string]func(context.Context, console.Request, url.Values) (string, error){
		"do": func(_ context.Context, _ console.Request, form url.Values) (string, error) {
			return "did " + form.Get("id"), nil
		},
	}
	c, err := console.New(console.Options{Scope: scope, Pages: []console.Page{page}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// send sends a request and returns the status and the body of the answer. A header is
// "Name: value".
func send(c *console.Console, method, path, body string, headers ...string) (int, string) {
	r := httptest.NewRequest(method, "http://"+host+path, strings.NewReader(body))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	all, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(all)
}

// login returns the header that authenticates a new session.
func login(t *testing.T, c *console.Console, scope console.Scope) string {
	t.Helper()
	status, body := send(c, "POST", "/console/api/session", "code="+c.NewCode(scope))
	_, token, ok := strings.Cut(body, `"token":"`)
	token, _, _ = strings.Cut(token, `"`)
	if status != http.StatusOK || !ok || len(token) < 43 {
		t.Fatalf("login: status %d, token of %d characters", status, len(token))
	}
	return "Authorization: Bearer " + token
}

const pagePath = "/console/api/page/traffic"

func TestNothingAnswersWithoutToken(t *testing.T) {
	c := newConsole(t, console.ScopeApprove)
	for _, path := range []string{"api/page/traffic", "api/live/traffic", "api/badges",
		"api/do/traffic/do", "api/end", "api/page/other", "api/"} {
		for _, headers := range [][]string{nil, {"Authorization: Bearer"},
			{"Authorization: Bearer "}, {"Authorization: Bearer wrong"},
			{"Authorization: " + c.NewCode(console.ScopeApprove)}} {
			for _, method := range []string{"GET", "POST"} {
				if status, _ := send(c, method, "/console/"+path, "", headers...); status != 401 {
					t.Errorf("%s %s with %q: status %d, want 401", method, path, headers, status)
				}
			}
		}
	}
}

func TestCodeIsValidOnce(t *testing.T) {
	c := newConsole(t, console.ScopeRead)
	code := c.NewCode(console.ScopeRead)
	for i, want := range []int{200, 403} {
		if status, _ := send(c, "POST", "/console/api/session", "code="+code); status != want {
			t.Errorf("use %d of the code: status %d, want %d", i+1, status, want)
		}
	}
}

func TestCodeAndTokenExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConsole(t, console.ScopeRead)
		code := c.NewCode(console.ScopeRead)
		token := login(t, c, console.ScopeRead)
		time.Sleep(time.Minute)
		if status, _ := send(c, "POST", "/console/api/session", "code="+code); status != 403 {
			t.Errorf("a code that is a minute old: status %d, want 403", status)
		}
		if status, _ := send(c, "GET", pagePath, "", token); status != 200 {
			t.Errorf("a token that is a minute old: status %d, want 200", status)
		}
		time.Sleep(8 * time.Hour)
		if status, _ := send(c, "GET", pagePath, "", token); status != 401 {
			t.Errorf("a token that is eight hours old: status %d, want 401", status)
		}
	})
}

func TestOtherConsoleRefusesToken(t *testing.T) {
	token := login(t, newConsole(t, console.ScopeRead), console.ScopeRead)
	other := newConsole(t, console.ScopeRead)
	if status, _ := send(other, "GET", pagePath, "", token); status != 401 {
		t.Errorf("a token of another process: status %d, want 401", status)
	}
}

func TestEndedSessionIsRefused(t *testing.T) {
	c := newConsole(t, console.ScopeRead)
	token, other := login(t, c, console.ScopeRead), login(t, c, console.ScopeRead)
	if status, _ := send(c, "POST", "/console/api/end", "", token); status != 200 {
		t.Fatalf("end: status %d, want 200", status)
	}
	if status, _ := send(c, "GET", pagePath, "", token); status != 401 {
		t.Errorf("an ended session: status %d, want 401", status)
	}
	if status, _ := send(c, "GET", pagePath, "", other); status != 200 {
		t.Errorf("another session: status %d, want 200", status)
	}
}

func TestSessionsAndCodesAreBounded(t *testing.T) {
	c := newConsole(t, console.ScopeRead)
	first, code := login(t, c, console.ScopeRead), c.NewCode(console.ScopeRead)
	for range 64 {
		login(t, c, console.ScopeRead)
	}
	if status, _ := send(c, "GET", pagePath, "", first); status != 401 {
		t.Errorf("the oldest of 65 sessions: status %d, want 401", status)
	}
	for range 16 {
		c.NewCode(console.ScopeRead)
	}
	if status, _ := send(c, "POST", "/console/api/session", "code="+code); status != 403 {
		t.Errorf("the oldest of 17 codes: status %d, want 403", status)
	}
}

func TestActionsNeedTheScopeApprove(t *testing.T) {
	const onlyRead = "can only read"
	for _, test := range []struct {
		name              string
		console, asked    console.Scope
		wantStatus        int
		wantBody, without string
	}{
		{"console may only read", console.ScopeRead, console.ScopeApprove, 403, onlyRead, "did"},
		{"token may only read", console.ScopeApprove, console.ScopeRead, 403, onlyRead, "did"},
		{"both may approve", console.ScopeApprove, console.ScopeApprove, 200, "did 7", "can only"},
		{"unknown scope", console.ScopeApprove, "all", 403, onlyRead, "did"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newConsole(t, test.console)
			token := login(t, c, test.asked)
			status, body := send(c, "POST", "/console/api/do/traffic/do", "id=7", token)
			if status != test.wantStatus || !strings.Contains(body, test.wantBody) ||
				strings.Contains(body, test.without) {
				t.Errorf("got status %d, %q; want %d, %q", status, body, test.wantStatus,
					test.wantBody)
			}
			if status, _ := send(c, "GET", "/console/api/do/traffic/do", "", token); status != 405 {
				t.Errorf("an action with GET: status %d, want 405", status)
			}
		})
	}
}

func TestRequestsOfOtherOriginsAreRefused(t *testing.T) {
	c := newConsole(t, console.ScopeApprove)
	token := login(t, c, console.ScopeApprove)
	const navigation = "Sec-Fetch-Mode: navigate"
	for _, test := range []struct {
		name, path string
		headers    []string
		want       int
	}{
		{"no browser", pagePath, nil, 200},
		{"the module", pagePath, []string{"Origin: http://" + host,
			"Sec-Fetch-Site: same-origin"}, 200},
		{"another port of this machine", pagePath, []string{"Origin: http://127.0.0.1:9"}, 403},
		{"another name of this machine", pagePath, []string{"Origin: http://localhost:7778"}, 403},
		{"another scheme", pagePath, []string{"Origin: https://" + host}, 403},
		{"an opaque origin", pagePath, []string{"Origin: null"}, 403},
		{"two origins", pagePath, []string{"Origin: http://" + host, "Origin: http://evil"}, 403},
		{"a page of the same site", pagePath, []string{"Sec-Fetch-Site: same-site"}, 403},
		{"a page of another site", pagePath, []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"an address typed by the user", pagePath, []string{"Sec-Fetch-Site: none"}, 403},
		{"the shell typed by the user", "/console/", []string{"Sec-Fetch-Site: none"}, 200},
		{"the shell by a link", "/console/", []string{"Sec-Fetch-Site: cross-site", navigation,
			"Sec-Fetch-Dest: document"}, 200},
		{"the shell in a frame", "/console/", []string{"Sec-Fetch-Site: same-site", navigation,
			"Sec-Fetch-Dest: iframe"}, 403},
		{"the module in another page", "/console/console.js",
			[]string{"Sec-Fetch-Site: same-site"}, 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			headers := append([]string{token}, test.headers...)
			if status, body := send(c, "GET", test.path, "", headers...); status != test.want {
				t.Errorf("status %d, %q; want %d", status, body, test.want)
			}
			if test.want == 403 && test.path == pagePath {
				status, body := send(c, "POST", "/console/api/do/traffic/do", "id=7", headers...)
				if status != 403 || strings.Contains(body, "did") {
					t.Errorf("action: status %d, %q; want 403", status, body)
				}
			}
		})
	}
}

func TestEveryAnswerHasTheStrictHeaders(t *testing.T) {
	c := newConsole(t, console.ScopeRead)
	token := login(t, c, console.ScopeRead)
	for _, path := range []string{"", "console.js", "console.css", "api/page/traffic", "api/badges",
		"nothing"} {
		r := httptest.NewRequest("GET", "http://"+host+"/console/"+path, nil)
		name, value, _ := strings.Cut(token, ": ")
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; " +
				"style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
				"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; " +
				"require-trusted-types-for 'script'; trusted-types 'none'",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-store",
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%q: %s is %q, want %q", path, name, got, want)
			}
		}
	}
}

func TestStaticFilesAreOnlyRead(t *testing.T) {
	c := newConsole(t, console.ScopeRead)
	for path, want := range map[string]string{"": "console.js", "console.js": "sessionStorage",
		"console.css": "color-scheme"} {
		if status, body := send(c, "GET", "/console/"+path, ""); status != 200 ||
			!strings.Contains(body, want) {
			t.Errorf("GET %q: status %d, without %q", path, status, want)
		}
		if status, _ := send(c, "POST", "/console/"+path, ""); status != 405 {
			t.Errorf("POST %q: status %d, want 405", path, status)
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	c := newConsole(t, console.ScopeRead)
	for path, most := range map[string]int{"console.js": 500, "console.css": 300} {
		if _, body := send(c, "GET", "/console/"+path, ""); strings.Count(body, "\n") > most {
			t.Errorf("%s has %d lines, more than %d", path, strings.Count(body, "\n"), most)
		}
	}
}

func TestTextsOfPeersStayTexts(t *testing.T) {
	c := newConsole(t, console.ScopeRead, &query.Call{FirstSeq: 1, Start: time.Unix(0, 0),
		Kind: "request", Method: "tools/call", Name: "<img src=x onerror=alert(1)>\u202e\x1b",
		Servers: []string{`"><script>1</script>`}, Reason: "</td></table><a href=javascript:1>"})
	_, body := send(c, "GET", pagePath, "", login(t, c, console.ScopeRead))
	for _, want := range []string{`"\u003cimg src=x onerror=alert(1)\u003e\\u202e\\x1b"`,
		`"\"\u003e\u003cscript\u003e1\u003c/script\u003e"`,
		`"\u003c/td\u003e\u003c/table\u003e\u003ca href=javascript:1\u003e"`} {
		plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(want)
		if !strings.Contains(body, want) && !strings.Contains(body, plain) {
			t.Errorf("the tree does not contain the text %s", want)
		}
	}
	for _, element := range []string{`["img"`, `["script"`, `"onerror"`} {
		if strings.Contains(body, element) {
			t.Errorf("the tree has %s", element)
		}
	}
}

func TestErrorOfPageIsShown(t *testing.T) {
	c := newConsole(t, console.ScopeRead)
	status, body := send(c, "GET", pagePath+"?filter=wrong", "", login(t, c, console.ScopeRead))
	if status != 200 || !strings.Contains(body, `"error":"the filter is wrong"`) {
		t.Errorf("status %d, %s", status, body)
	}
}
