package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/transport/connect"
	"gatekit/transport/console"
)

const (
	publicURL = "https://gatekit.example/gate"
	issuer    = "https://login.example"
)

// fakeIssuer logs users in, and keeps the records of the console. The state and the code of an
// answer are the name of the user.
type fakeIssuer struct {
	users    []string // that begin logins, in their order
	revoked  string   // ID of a principal
	noRecord bool     // openings cannot be recorded

	opened   []string
	refusals []string
}

func principal(t *testing.T, user string) *identity.Principal {
	t.Helper()
	name, group, _ := strings.Cut(user, ".")
	p, err := identity.New(identity.Attributes{Method: identity.JWT, Issuer: issuer, Subject: name,
		Groups: []string{group}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newPublicConsole returns a console to which users log in. Members of ops may read, those of leads
// approve.
func newPublicConsole(t *testing.T, f *fakeIssuer) *console.Console {
	t.Helper()
	page := console.TrafficPage(fakeTraffic{})
	page.Actions = map[string]func(context.Context, console.Request, url.Values) (string, error){
		"do": func(_ context.Context, r console.Request, _ url.Values) (string, error) {
			return "done by " + r.Viewer.Principal, nil
		}}
	c, err := console.New(console.Options{Pages: []console.Page{page}, Login: &console.Login{
		PublicURL: publicURL, Issuers: []string{issuer},
		Begin: func(_ context.Context, at, redirect string) (connect.UserLogin, error) {
			user := f.users[0]
			f.users = f.users[1:]
			if user == "" {
				return connect.UserLogin{}, errors.New("the issuer is down")
			}
			return connect.UserLogin{
				URL:     at + "/auth?redirect_uri=" + url.QueryEscape(redirect),
				Matches: func(q url.Values) bool { return q.Get("state") == user },
				Finish: func(_ context.Context, q url.Values) (*identity.Principal, error) {
					if q.Get("code") != user {
						return nil, errors.New("the code is wrong")
					}
					return principal(t, user), nil
				}}, nil
		},
		Scope: func(p *identity.Principal) console.Scope {
			return map[string]console.Scope{"ops": console.ScopeRead,
				"leads": console.ScopeApprove}[p.Groups()[0]]
		},
		Revoked: func(p *identity.Principal) bool { return p.ID() == f.revoked },
		RecordOpened: func(_ context.Context, p *identity.Principal, scope console.Scope) error {
			if f.noRecord {
				return errors.New("the disk is full")
			}
			f.opened = append(f.opened, fmt.Sprint(p.ID(), " ", scope))
			return nil
		},
		RecordRefusal: func(_ *http.Request, r connect.Refusal) {
			f.refusals = append(f.refusals, fmt.Sprint(r.Status, " ", r.Principal, " ", r.Reason))
		}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// visitor is a browser with at most one cookie.
type visitor struct {
	console *console.Console
	cookie  *http.Cookie
}

// send sends a request as a page of the console does, and keeps the cookie of the answer.
func (v *visitor) send(method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://gatekit.example"+path, nil)
	if v.cookie != nil {
		r.AddCookie(v.cookie)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	v.console.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if v.cookie = c; c.MaxAge < 0 {
			v.cookie = nil
		}
	}
	return w
}

const (
	beginPath  = "/gate/console/login?issuer=" + issuer
	sessionAPI = "/gate/console/api/session"
)

func callback(state, code string) string {
	return "/gate/console/callback?state=" + state + "&code=" + code
}

// logIn logs a user in and returns the header that authenticates the session, or the status of the
// answer that refuses it.
func logIn(c *console.Console, user string) (header string, status int) {
	v := &visitor{console: c}
	v.send("GET", beginPath)
	if w := v.send("GET", callback(user, user)); w.Code != http.StatusSeeOther {
		return "", w.Code
	}
	w := v.send("POST", sessionAPI)
	_, token, _ := strings.Cut(w.Body.String(), `"token":"`)
	token, _, _ = strings.Cut(token, `"`)
	return "Authorization: Bearer " + token, w.Code
}

const trafficAPI = "/gate/console/api/page/traffic"

func TestLoginGoesThroughTheIssuer(t *testing.T) {
	f := &fakeIssuer{users: []string{"ann.leads"}}
	v := &visitor{console: newPublicConsole(t, f)}
	w := v.send("GET", "/gate/console/")
	if want := `href="login?issuer=https%3a%2f%2flogin.example"`; w.Code != 200 ||
		!strings.Contains(w.Body.String(), want) {
		t.Errorf("the shell: status %d, without %s:\n%s", w.Code, want, w.Body)
	}
	w = v.send("GET", beginPath)
	if want := issuer + "/auth?redirect_uri=https%3A%2F%2Fgatekit.example%2Fgate%2Fconsole%2F" +
		"callback"; w.Code != 303 || w.Header().Get("Location") != want {
		t.Errorf("begin: status %d to %s, want %s", w.Code, w.Header().Get("Location"), want)
	}
	first := v.cookie
	if first == nil || first.Name != "__Host-gatekit-console" || !first.Secure ||
		!first.HttpOnly || first.Path != "/" || first.SameSite != http.SameSiteLaxMode ||
		first.Domain != "" || first.MaxAge != 600 {
		t.Fatalf("begin: got the cookie %v", first)
	}
	w = v.send("GET", callback("ann.leads", "ann.leads"), "Sec-Fetch-Site: cross-site",
		"Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
	if want := publicURL + "/console/#login"; w.Code != 303 ||
		w.Header().Get("Location") != want {
		t.Errorf("callback: status %d to %s, want %s", w.Code, w.Header().Get("Location"), want)
	}
	if v.cookie == nil || v.cookie.Value == first.Value {
		t.Error("after the login, the browser has the cookie of before")
	}
	w = v.send("POST", sessionAPI, "Origin: https://gatekit.example", "Sec-Fetch-Site: same-origin")
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"scope":"approve"`) ||
		!strings.Contains(w.Body.String(), `"user":"https://login.example#ann"`) {
		t.Errorf("session: status %d", w.Code)
	}
	if v.cookie != nil {
		t.Errorf("after the login, the browser keeps the cookie %v", v.cookie)
	}
	if want := []string{issuer + "#ann approve"}; !slices.Equal(f.opened, want) ||
		len(f.refusals) > 0 {
		t.Errorf("recorded %q and the refusals %q, want %q", f.opened, f.refusals, want)
	}
}

// The visitor of each case has begun the login of ann, a reader.
func TestLoginsAreRefused(t *testing.T) {
	other := &http.Cookie{Name: "__Host-gatekit-console", Value: "other"}
	for _, test := range []struct {
		name   string
		change func(f *fakeIssuer)
		try    func(v *visitor) int
		status int
		want   string // the record, without the status; "" for none
	}{
		{"an unknown issuer", nil, func(v *visitor) int {
			return v.send("GET", "/console/login?issuer=https://evil.example").Code
		}, 400, ` console: users cannot log in at the issuer "https://evil.example"`},
		{"a login that another site begins", nil, func(v *visitor) int {
			return v.send("GET", beginPath, "Sec-Fetch-Site: cross-site",
				"Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document").Code
		}, 403, " console: a page of another origin began a login"},
		{"an issuer that is down", func(f *fakeIssuer) { f.users = []string{""} },
			func(v *visitor) int { return v.send("GET", beginPath).Code }, 503,
			" console: the login at the issuer could not begin: the issuer is down"},
		{"an answer without the cookie", nil, func(v *visitor) int {
			v.cookie = nil
			return v.send("GET", callback("ann.ops", "ann.ops")).Code
		}, 400, " console: the answer of an issuer belongs to no login of this browser"},
		{"an answer with another cookie", nil, func(v *visitor) int {
			v.cookie = other
			return v.send("GET", callback("ann.ops", "ann.ops")).Code
		}, 400, " console: the answer of an issuer belongs to no login of this browser"},
		{"an answer with another state", nil, func(v *visitor) int {
			return v.send("GET", callback("bob.ops", "ann.ops")).Code
		}, 400, " console: the answer of an issuer belongs to no login of this browser"},
		{"an answer that is late", nil, func(v *visitor) int {
			time.Sleep(10 * time.Minute)
			return v.send("GET", callback("ann.ops", "ann.ops")).Code
		}, 400, " console: the answer of an issuer belongs to no login of this browser"},
		{"an answer that comes twice", nil, func(v *visitor) int {
			cookie := v.cookie
			v.send("GET", callback("ann.ops", "ann.ops"))
			v.cookie = cookie
			return v.send("GET", callback("ann.ops", "ann.ops")).Code
		}, 400, " console: the answer of an issuer belongs to no login of this browser"},
		{"a code that the issuer refuses", nil, func(v *visitor) int {
			return v.send("GET", callback("ann.ops", "x")).Code
		}, 403, " console: the user did not show who they are: the code is wrong"},
		{"a revoked principal", func(f *fakeIssuer) { f.revoked = issuer + "#ann" },
			func(v *visitor) int { return v.send("GET", callback("ann.ops", "ann.ops")).Code },
			403, issuer + "#ann console: the console is not opened: the principal was revoked"},
		{"an opening that cannot be recorded", func(f *fakeIssuer) { f.noRecord = true },
			func(v *visitor) int { return v.send("GET", callback("ann.ops", "ann.ops")).Code },
			503, ""},
		{"a session before the answer", nil, func(v *visitor) int {
			return v.send("POST", sessionAPI).Code
		}, 403, " console: the login has expired or was used before"},
		{"a session without the cookie", nil, func(v *visitor) int {
			v.send("GET", callback("ann.ops", "ann.ops"))
			v.cookie = nil
			return v.send("POST", sessionAPI).Code
		}, 403, " console: the login has expired or was used before"},
		{"a session that another site asks for", nil, func(v *visitor) int {
			v.send("GET", callback("ann.ops", "ann.ops"))
			return v.send("POST", sessionAPI, "Origin: https://evil.example").Code
		}, 403, ` console: Origin "https://evil.example" is not allowed`},
		{"a second session for one login", nil, func(v *visitor) int {
			v.send("GET", callback("ann.ops", "ann.ops"))
			cookie := v.cookie
			v.send("POST", sessionAPI)
			v.cookie = cookie
			return v.send("POST", sessionAPI).Code
		}, 403, " console: the login has expired or was used before"},
		{"a login with POST", nil, func(v *visitor) int { return v.send("POST", beginPath).Code },
			405, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeIssuer{users: []string{"ann.ops"}}
				v := &visitor{console: newPublicConsole(t, f)}
				v.send("GET", beginPath)
				if test.change != nil {
					test.change(f)
				}
				if got := test.try(v); got != test.status {
					t.Errorf("status %d, want %d", got, test.status)
				}
				var want []string
				if test.want != "" {
					want = []string{fmt.Sprint(test.status, " ", test.want)}
				}
				if !slices.Equal(f.refusals, want) {
					t.Errorf("got the records %q, want %q", f.refusals, want)
				}
			})
		})
	}
}

func TestUserWithoutRoleLearnsNothing(t *testing.T) {
	f := &fakeIssuer{users: []string{"eve.sales"}}
	v := &visitor{console: newPublicConsole(t, f)}
	v.send("GET", beginPath)
	w := v.send("GET", callback("eve.sales", "eve.sales"))
	if w.Code != 403 || !strings.Contains(w.Body.String(), "you may not use this console") ||
		strings.Contains(w.Body.String(), "roles") || v.cookie != nil {
		t.Errorf("status %d, cookie %v:\n%s", w.Code, v.cookie, w.Body)
	}
	if want := []string{"403 " + issuer + "#eve console: the console is not opened: the " +
		"principal has no role in [listen.auth.roles]"}; !slices.Equal(f.refusals, want) {
		t.Errorf("got the records %q, want %q", f.refusals, want)
	}
}

func TestSessionsOfPrincipalsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeIssuer{users: []string{"ann.ops", "bob.leads", "bob.leads"}}
		c := newPublicConsole(t, f)
		v := &visitor{console: c}
		want := func(name, header string, status int) {
			t.Helper()
			if got := v.send("GET", trafficAPI, header).Code; got != status {
				t.Errorf("%s: status %d, want %d", name, got, status)
			}
		}
		ann, _ := logIn(c, "ann.ops")
		bob, _ := logIn(c, "bob.leads")
		want("a reader", ann, 200)
		if w := v.send("POST", "/console/api/do/traffic/do", ann); w.Code != 403 {
			t.Errorf("an action of a reader: status %d, want 403", w.Code)
		}
		w := v.send("POST", "/console/api/do/traffic/do", bob)
		if !strings.Contains(w.Body.String(), "done by "+issuer+"#bob") {
			t.Errorf("an action of an approver: status %d, %s", w.Code, w.Body)
		}
		c.EndPrincipal(issuer + "#bob")
		want("a principal whose sessions were ended", bob, 401)
		want("another principal", ann, 200)
		bob, _ = logIn(c, "bob.leads")
		f.revoked = issuer + "#bob"
		want("a revoked principal", bob, 401)
		f.revoked = ""
		want("a principal who was revoked for a time", bob, 401)
		time.Sleep(time.Hour)
		want("a session that is an hour old", ann, 401)
	})
}

// One principal cannot end the sessions of another one by logging in often.
func TestSessionsOfOnePrincipalAreBounded(t *testing.T) {
	f := &fakeIssuer{users: append([]string{"ann.ops", "bob.ops"},
		slices.Repeat([]string{"bob.ops"}, 64)...)}
	c := newPublicConsole(t, f)
	ann, _ := logIn(c, "ann.ops")
	bob, _ := logIn(c, "bob.ops")
	for range 64 {
		logIn(c, "bob.ops")
	}
	v := &visitor{console: c}
	if got := v.send("GET", trafficAPI, bob).Code; got != 401 {
		t.Errorf("the oldest of 65 sessions: status %d, want 401", got)
	}
	if got := v.send("GET", trafficAPI, ann).Code; got != 200 {
		t.Errorf("the session of another principal: status %d, want 200", got)
	}
}

// Logins that nobody finishes do not keep others from logging in.
func TestOldestLoginEndsWhenThereAreTooMany(t *testing.T) {
	f := &fakeIssuer{users: append([]string{"ann.ops"},
		slices.Repeat([]string{"bob.ops"}, 1000)...)}
	c := newPublicConsole(t, f)
	oldest, newest := &visitor{console: c}, &visitor{console: c}
	oldest.send("GET", beginPath)
	for range 1000 {
		newest.cookie = nil
		newest.send("GET", beginPath)
	}
	if got := oldest.send("GET", callback("ann.ops", "ann.ops")).Code; got != 400 {
		t.Errorf("the oldest of 1001 logins: status %d, want 400", got)
	}
	if got := newest.send("GET", callback("bob.ops", "bob.ops")).Code; got != 303 {
		t.Errorf("the newest of 1001 logins: status %d, want 303", got)
	}
}

func TestPathsOfTheConsole(t *testing.T) {
	c := newPublicConsole(t, &fakeIssuer{})
	for path, want := range map[string]bool{"/console": true, "/console/": true,
		"/gate/console": true, "/gate/console/api/page/traffic": true, "/": false,
		"/consoles": false, "/mcp": false, "/other/console/": false} {
		if got := c.Serves(path); got != want {
			t.Errorf("%s: served: %t, want %t", path, got, want)
		}
	}
	v := &visitor{console: c}
	if w := v.send("GET", "/gate/console"); w.Code != 303 ||
		w.Header().Get("Location") != publicURL+"/console/" {
		t.Errorf("without the slash: status %d to %q", w.Code, w.Header().Get("Location"))
	}
}
