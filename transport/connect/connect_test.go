package connect_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/transport/connect"
)

const (
	public = "https://gatekit.example/team"
	issuer = "https://login.example"
	other  = "https://other.example"
)

// world has pages, issuers at which the user of its field logs in, and an authorization server.
type world struct {
	t     *testing.T
	pages *connect.Pages

	user      string // who logs in at the issuer
	userError error  // of a login at the issuer
	finishErr error  // of a login at the server
	beginErr  error
	revoked   bool
	// is called while a login at the server is finished; may be nil
	duringFinish func()

	mu                     sync.Mutex
	issuerAnswers, answers []url.Values // that Finish got
	refusals               []connect.Refusal
	states                 int
}

func newWorld(t *testing.T) *world { return newWorldAt(t, public) }

func newWorldAt(t *testing.T, publicURL string) *world {
	w := &world{t: t, user: "ann"}
	var err error
	if w.pages, err = connect.New(w.options(publicURL)); err != nil {
		t.Fatal(err)
	}
	return w
}

// options returns the options for pages at a URL.
func (w *world) options(publicURL string) connect.Options {
	return connect.Options{
		PublicURL: publicURL,
		HasLogin:  func(i string) bool { return i == issuer || i == other },
		BeginLogin: func(_ context.Context, at, redirect string) (connect.Begun, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.states++
			state := fmt.Sprint("issuer-state-", w.states)
			return connect.Begun{
				URL: at + "/auth?" + url.Values{"state": {state},
					"redirect_uri": {redirect}}.Encode(),
				State: state, Rest: []byte("rest of " + state)}, w.beginErr
		},
		FinishUser: func(_ context.Context, at string, rest []byte, q url.Values) (
			*identity.Principal, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.issuerAnswers = append(w.issuerAnswers, q)
			if string(rest) != "rest of "+q.Get("state") {
				w.t.Errorf("the answer %s finishes a login with %q", q, rest)
			}
			if w.userError != nil {
				return nil, w.userError
			}
			return principal(w.t, at, w.user), nil
		},
		Finish: func(_ context.Context, n connect.Login, q url.Values) error {
			w.mu.Lock()
			w.answers = append(w.answers, q)
			w.mu.Unlock()
			if string(n.Rest) != "rest of "+q.Get("state") || n.Server != "box" {
				w.t.Errorf("the answer %s finishes the login %+v", q, n)
			}
			if w.duringFinish != nil {
				w.duringFinish()
			}
			return w.finishErr
		},
		Revoked: func(*identity.Principal) bool { return w.revoked },
		RecordRefusal: func(_ *http.Request, x connect.Refusal) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refusals = append(w.refusals, x)
		},
	}
}

func principal(t *testing.T, issuer, name string) *identity.Principal {
	p, err := identity.New(identity.Attributes{Method: identity.JWT, Issuer: issuer, Subject: name,
		Client: "editor"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask asks a user of the issuer to log in to the server box. The caller of Wait is not needed.
func (w *world) ask(name string) *connect.Link {
	w.t.Helper()
	return w.askFor(connect.Login{Principal: principal(w.t, issuer, name), Server: "box",
		AuthorizationServer: "https://as.example", Scopes: []string{"read", "write"}})
}

func (w *world) askFor(n connect.Login) *connect.Link {
	w.t.Helper()
	w.states++
	state := fmt.Sprint("server-state-", w.states)
	n.URL = "https://as.example/authorize?state=" + state
	n.State, n.Rest = state, []byte("rest of "+state)
	l, err := w.pages.Ask(w.t.Context(), n)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// browser is a browser with the cookies of the pages.
type browser struct {
	w       *world
	cookies map[string]string
	last    []*http.Cookie    // that the last answer has set
	before  map[string]string // the cookies before the last answer
}

func (w *world) browser() *browser { return &browser{w: w, cookies: map[string]string{}} }

func (b *browser) do(r *http.Request) *httptest.ResponseRecorder {
	b.w.t.Helper()
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	if !b.w.pages.Serves(r.URL.Path) {
		b.w.t.Fatalf("%s is not a page", r.URL.Path)
	}
	rec := httptest.NewRecorder()
	b.w.pages.ServeHTTP(rec, r)
	b.last, b.before = rec.Result().Cookies(), maps.Clone(b.cookies)
	for _, c := range b.last {
		b.cookies[c.Name] = c.Value
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return rec
}

func (b *browser) get(at string) *httptest.ResponseRecorder {
	b.w.t.Helper()
	return b.do(httptest.NewRequest(http.MethodGet, at, nil))
}

func (b *browser) post(at string, form url.Values) *httptest.ResponseRecorder {
	b.w.t.Helper()
	r := httptest.NewRequest(http.MethodPost, at, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.do(r)
}

// answerOf returns the URL to which a login page at the given URL sends the browser back.
func answerOf(t *testing.T, page, redirect string) string {
	t.Helper()
	u, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	if to := u.Query().Get("redirect_uri"); to != "" {
		redirect = to
	}
	return redirect + "?" + url.Values{"state": {u.Query().Get("state")},
		"code": {"code-1"}}.Encode()
}

const callback = public + "/connect/callback"

// show opens a link, logs in at the issuer, and returns the last answer: a page, or a refusal.
func (b *browser) show(l *connect.Link) *httptest.ResponseRecorder {
	b.w.t.Helper()
	for at := l.URL; ; {
		answer := b.get(at)
		if answer.Code != http.StatusSeeOther {
			return answer
		}
		if at = answer.Header().Get("Location"); strings.HasPrefix(at, issuer+"/") ||
			strings.HasPrefix(at, other+"/") {
			at = answerOf(b.w.t, at, "")
		}
	}
}

var csrfInput = regexp.MustCompile(`<input type="hidden" name="csrf" value="([^"]+)">`)

// csrf returns the token in the form of a page.
func csrf(t *testing.T, answer *httptest.ResponseRecorder) string {
	t.Helper()
	found := csrfInput.FindStringSubmatch(answer.Body.String())
	if answer.Code != http.StatusOK || found == nil {
		t.Fatalf("got status %d and the page %s, want one with a form", answer.Code, answer.Body)
	}
	return html.UnescapeString(found[1])
}

// press opens a link and presses its button. It returns the page of the authorization server.
func (b *browser) press(l *connect.Link) string {
	b.w.t.Helper()
	answer := b.post(l.URL, url.Values{"csrf": {csrf(b.w.t, b.show(l))}})
	to := answer.Header().Get("Location")
	if answer.Code != http.StatusSeeOther || !strings.HasPrefix(to, "https://as.example/") {
		b.w.t.Fatalf("the form got status %d and the location %q", answer.Code, to)
	}
	return to
}

// wantRefused fails the test unless an answer and the last record have a status. It returns the
// record.
func (w *world) wantRefused(answer *httptest.ResponseRecorder, status int) connect.Refusal {
	w.t.Helper()
	if answer.Code != status || len(w.refusals) == 0 ||
		w.refusals[len(w.refusals)-1].Status != status {
		w.t.Fatalf("got status %d, the page %s and the records %+v; want a refusal with %d",
			answer.Code, answer.Body, w.refusals, status)
	}
	return w.refusals[len(w.refusals)-1]
}

// result returns the result of a login that has ended.
func result(t *testing.T, l *connect.Link) error {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return l.Wait(ctx)
}

func TestPrincipalLogsIn(t *testing.T) {
	for _, c := range []struct {
		public, cookie string
		isSecure       bool
	}{
		{public, "__Host-gatekit-connect", true},
		{"https://gatekit.example/", "__Host-gatekit-connect", true},
		{"http://127.0.0.1:7777", "gatekit-connect", false},
	} {
		t.Run(c.public, func(t *testing.T) {
			w := newWorldAt(t, c.public)
			base := strings.TrimSuffix(c.public, "/") + "/connect/"
			l := w.ask("ann")
			if !strings.HasPrefix(l.URL, base) || len(l.URL) > len(base)+150 {
				t.Errorf("got the link %s", l.URL)
			}
			b := w.browser()
			first := b.get(l.URL)
			if len(b.last) != 1 {
				t.Fatalf("got the cookies %v, want one", b.last)
			}
			before := b.last[0].Value
			to := first.Header().Get("Location")
			if !strings.HasPrefix(to, issuer+"/auth?") || !strings.Contains(to,
				url.QueryEscape(base+"login")) {
				t.Errorf("the browser was sent to %s, want the issuer", to)
			}
			if back := b.get(answerOf(t, to, "")); back.Header().Get("Location") != l.URL {
				t.Errorf("after the login, the browser was sent to %q, want the link",
					back.Header().Get("Location"))
			}
			if k := b.last[0]; k.Name != c.cookie || k.Value == before || k.Secure != c.isSecure ||
				!k.HttpOnly || k.SameSite != http.SameSiteLaxMode || k.Path != "/" ||
				k.Domain != "" || k.MaxAge != 900 {
				t.Errorf("got the cookie %v, want another one than before the login", k)
			}
			page := b.get(l.URL)
			for _, want := range []string{"<dd>editor</dd>", "<dd>box</dd>",
				"<dd>https://as.example</dd>", "<dd>read, write</dd>",
				"<dd>https://login.example#ann</dd>", `<html lang="en">`,
				"<h1>Log in to box</h1>", `<form method="post">`} {
				if !strings.Contains(page.Body.String(), want) {
					t.Errorf("the page has no %s:\n%s", want, page.Body)
				}
			}
			if len(w.answers) != 0 {
				t.Error("a login began without the form")
			}
			pressed := b.post(l.URL, url.Values{"csrf": {csrf(t, page)}})
			last := b.get(answerOf(t, pressed.Header().Get("Location"), base+"callback"))
			if last.Code != 200 || !strings.Contains(last.Body.String(), "You are logged in") {
				t.Errorf("the last page has status %d:\n%s", last.Code, last.Body)
			}
			if err := result(t, l); err != nil || len(w.answers) != 1 ||
				w.answers[0].Get("code") != "code-1" {
				t.Errorf("the login got %v, %v", err, w.answers)
			}
			if len(w.refusals) != 0 {
				t.Errorf("got the refusals %v", w.refusals)
			}
		})
	}
}

// TestSessionOpensFurtherLinks logs in at the issuer once for two links.
func TestSessionOpensFurtherLinks(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.press(w.ask("ann"))
	second := w.ask("ann")
	csrf(t, b.get(second.URL))
	if len(w.issuerAnswers) != 1 {
		t.Errorf("%d logins at the issuer, want 1", len(w.issuerAnswers))
	}
}

func TestSessionEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.browser()
		csrf(t, b.show(w.ask("ann")))
		time.Sleep(15*time.Minute - time.Second)
		second := w.ask("ann")
		csrf(t, b.get(second.URL))
		time.Sleep(time.Second)
		if to := b.get(second.URL).Header().Get("Location"); !strings.HasPrefix(to, issuer) {
			t.Errorf("after the end of the session, the browser was sent to %q", to)
		}
	})
}

// wantNoHint fails the test if a page tells anything about the link of ann.
func wantNoHint(t *testing.T, answer *httptest.ResponseRecorder) {
	t.Helper()
	for _, text := range []string{"#ann", "box", "as.example", "write", "editor"} {
		if strings.Contains(answer.Body.String(), text) {
			t.Errorf("the page tells %q:\n%s", text, answer.Body)
		}
	}
}

// TestAnotherUserIsRefused has bob, who opens a link for ann.
func TestAnotherUserIsRefused(t *testing.T) {
	const bob = "https://login.example#bob"
	for _, c := range []struct {
		name string
		open func(w *world, b *browser, l *connect.Link) *httptest.ResponseRecorder
	}{
		{"bob logs in", func(_ *world, b *browser, l *connect.Link) *httptest.ResponseRecorder {
			return b.show(l)
		}},
		{"bob is logged in", func(w *world, b *browser,
			l *connect.Link) *httptest.ResponseRecorder {
			csrf(w.t, b.show(w.ask("bob")))
			return b.get(l.URL)
		}},
		{"bob sends the form", func(w *world, b *browser,
			l *connect.Link) *httptest.ResponseRecorder {
			return b.post(l.URL, url.Values{"csrf": {csrf(w.t, b.show(w.ask("bob")))}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.user = "bob"
			l, b := w.ask("ann"), w.browser()
			answer := c.open(w, b, l)
			x := w.wantRefused(answer, http.StatusForbidden)
			if x.Server != "box" || x.Principal != "https://login.example#ann" ||
				!strings.Contains(x.Reason, `was opened by "`+bob+`"`) {
				t.Errorf("got the record %+v", x)
			}
			wantNoHint(t, answer)
			if len(b.cookies) != 0 {
				t.Errorf("bob still has the session %v", b.cookies)
			}
			b.cookies = b.before // as if the browser had kept the cookie
			if to := b.get(l.URL).Header().Get("Location"); !strings.HasPrefix(to, issuer) {
				t.Errorf("with his old cookie, bob was sent to %q, want the issuer", to)
			}
			if err := result(t, w.ask("bob")); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if len(w.answers) != 0 {
				t.Error("the login at the server began")
			}
			// The link is still ann's.
			w.user = "ann"
			b = w.browser()
			b.get(answerOf(t, b.press(l), callback))
			if err := result(t, l); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUsersOfTwoIssuersAreDifferent has ann of another issuer, who opens a link for ann.
func TestUsersOfTwoIssuersAreDifferent(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	theirs := w.askFor(connect.Login{Principal: principal(t, other, "ann"), Server: "box"})
	csrf(t, b.show(theirs))
	if to := b.get(w.ask("ann").URL).Header().Get("Location"); !strings.HasPrefix(to, issuer+"/") {
		t.Errorf("the browser was sent to %q, want the issuer of the link", to)
	}
}

// TestClosedLinksLookTheSame opens links that were never made, or cannot be used any more.
func TestClosedLinksLookTheSame(t *testing.T) {
	bodies := map[string]bool{}
	for name, open := range map[string]func(w *world, b *browser) string{
		"forged": func(*world, *browser) string { return public + "/connect/gk1.AAAA" },
		"empty":  func(*world, *browser) string { return public + "/connect/gk1." },
		"changed": func(w *world, _ *browser) string {
			at := []byte(w.ask("ann").URL)
			at[len(at)-10] ^= 1
			return string(at)
		},
		"of another process": func(w *world, _ *browser) string {
			return newWorld(w.t).ask("ann").URL
		},
		"expired": func(w *world, _ *browser) string {
			l := w.ask("ann")
			time.Sleep(10 * time.Minute)
			return l.URL
		},
		"ended": func(w *world, _ *browser) string {
			l := w.ask("ann")
			result(w.t, l)
			return l.URL
		},
		"used": func(w *world, b *browser) string {
			l := w.ask("ann")
			b.press(l)
			return l.URL
		},
		"finished": func(w *world, b *browser) string {
			l := w.ask("ann")
			b.get(answerOf(w.t, b.press(l), callback))
			return l.URL
		},
		"of a revoked principal": func(w *world, _ *browser) string {
			l := w.ask("ann")
			w.revoked = true
			return l.URL
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				b := w.browser()
				at := open(w, b)
				for _, answer := range []*httptest.ResponseRecorder{b.get(at),
					w.browser().get(at), b.post(at, nil)} {
					w.wantRefused(answer, http.StatusNotFound)
					wantNoHint(t, answer)
					bodies[answer.Body.String()] = true
				}
				if len(w.refusals) != 3 {
					t.Errorf("got %d records, want 3", len(w.refusals))
				}
			})
		})
	}
	if len(bodies) != 1 {
		t.Errorf("got %d different pages, want one for all", len(bodies))
	}
}

func TestWaitEndsWithTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.ask("ann")
		begun := time.Now()
		if err := l.Wait(t.Context()); err == nil || time.Since(begun) != 10*time.Minute ||
			!strings.Contains(err.Error(), "nobody logged in within 10m0s") {
			t.Errorf("after %s, got %v", time.Since(begun), err)
		}
		l = w.ask("ann")
		b := w.browser()
		to := b.press(l)
		time.Sleep(10 * time.Minute)
		w.wantRefused(b.get(answerOf(t, to, callback)), http.StatusBadRequest)
		if len(w.answers) != 0 {
			t.Error("a login was finished after the end of its link")
		}
	})
}

// TestLoginEndsInTheBrowserInWhichItBegan sends answers of the authorization server that are not
// the one that Gatekit waits for.
func TestLoginEndsInTheBrowserInWhichItBegan(t *testing.T) {
	for name, answer := range map[string]func(w *world, b *browser,
		to string) *httptest.ResponseRecorder{
		"another browser": func(w *world, _ *browser, to string) *httptest.ResponseRecorder {
			return w.browser().get(to)
		},
		"another browser of ann": func(w *world, _ *browser, to string) *httptest.ResponseRecorder {
			b := w.browser()
			b.press(w.ask("ann"))
			return b.get(to)
		},
		"a browser of bob": func(w *world, _ *browser, to string) *httptest.ResponseRecorder {
			w.user = "bob"
			b := w.browser()
			b.press(w.ask("bob"))
			return b.get(to)
		},
		"a forged cookie": func(w *world, b *browser, to string) *httptest.ResponseRecorder {
			for name := range b.cookies {
				b.cookies[name] = strings.Repeat("A", 26)
			}
			return b.get(to)
		},
		"another state": func(_ *world, b *browser, to string) *httptest.ResponseRecorder {
			return b.get(strings.Replace(to, "server-state", "other-state", 1))
		},
		"two states": func(_ *world, b *browser, to string) *httptest.ResponseRecorder {
			return b.get(to + "&state=x")
		},
		"no query": func(_ *world, b *browser, _ string) *httptest.ResponseRecorder {
			return b.get(callback)
		},
		"a malformed query": func(_ *world, b *browser, to string) *httptest.ResponseRecorder {
			return b.get(to + "&x=%zz")
		},
		"a form": func(_ *world, b *browser, to string) *httptest.ResponseRecorder {
			return b.post(to, nil)
		},
		"a revoked principal": func(w *world, b *browser, to string) *httptest.ResponseRecorder {
			w.revoked = true
			defer func() { w.revoked = false }()
			return b.get(to)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			l, b := w.ask("ann"), w.browser()
			to := answerOf(t, b.press(l), callback)
			cookies := maps.Clone(b.cookies)
			status := http.StatusBadRequest
			if name == "a form" {
				status = http.StatusMethodNotAllowed
			}
			got := answer(w, b, to)
			w.wantRefused(got, status)
			wantNoHint(t, got)
			if len(w.answers) != 0 {
				t.Fatal("the login was finished")
			}
			if name == "a revoked principal" {
				return // the login has ended
			}
			// The right answer still ends the login, once.
			b.cookies, w.user = cookies, "ann"
			if last := b.get(to); !strings.Contains(last.Body.String(), "You are logged in") {
				t.Errorf("got the page %s", last.Body)
			}
			w.wantRefused(b.get(to), http.StatusBadRequest)
			if len(w.answers) != 1 {
				t.Errorf("the login was finished %d times", len(w.answers))
			}
			if err := result(t, l); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAnswerEndsALoginOnce sends an answer again while the login is being finished.
func TestAnswerEndsALoginOnce(t *testing.T) {
	w := newWorld(t)
	l, b := w.ask("ann"), w.browser()
	to := answerOf(t, b.press(l), callback)
	w.duringFinish = func() {
		w.duringFinish = nil
		w.wantRefused(b.get(to), http.StatusBadRequest)
	}
	b.get(to)
	if err := result(t, l); err != nil || len(w.answers) != 1 {
		t.Errorf("got %v, and the login was finished %d times", err, len(w.answers))
	}
}

// TestAnotherUserOfABrowserEndsNoLogin has a browser in which ann has begun a login, and then a
// user of another issuer logs in.
func TestAnotherUserOfABrowserEndsNoLogin(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	to := answerOf(t, b.press(w.ask("ann")), callback)
	old := maps.Clone(b.cookies)
	csrf(t, b.show(w.askFor(connect.Login{Principal: principal(t, other, "ann"), Server: "box"})))
	w.wantRefused(b.get(to), http.StatusBadRequest)
	b.cookies = old // of a session that has ended
	w.wantRefused(b.get(to), http.StatusBadRequest)
	if len(w.answers) != 0 {
		t.Error("the login was finished")
	}
}

// TestAnswerBeforeTheFormIsRefused has an answer for a login that nobody has agreed to.
func TestAnswerBeforeTheFormIsRefused(t *testing.T) {
	w := newWorld(t)
	l, b := w.ask("ann"), w.browser()
	csrf(t, b.show(l))
	w.wantRefused(b.get(callback+"?state=server-state-1&code=x"), http.StatusBadRequest)
	if len(w.answers) != 0 {
		t.Error("the login was finished")
	}
}

// TestFailedLoginShowsNoTextsOfOthers has an answer with an error, which the login refuses because
// its iss is another one.
func TestFailedLoginShowsNoTextsOfOthers(t *testing.T) {
	w := newWorld(t)
	w.finishErr = errors.New("the answer is not of the authorization server")
	l, b := w.ask("ann"), w.browser()
	to := answerOf(t, b.press(l), callback) + "&iss=https://evil.example&error=text-of-others" +
		"&error_description=text-of-others"
	last := b.get(to)
	if !strings.Contains(last.Body.String(), "The login failed") ||
		strings.Contains(last.Body.String(), "of-others") ||
		strings.Contains(last.Body.String(), "evil") {
		t.Errorf("got the page %s", last.Body)
	}
	if err := result(t, l); !errors.Is(err, w.finishErr) {
		t.Errorf("the login ended with %v", err)
	}
}

func TestFormNeedsItsPage(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, r *http.Request, b *browser, token string) *http.Request
		status int
	}{
		"no token": {func(_ *world, r *http.Request, _ *browser, _ string) *http.Request {
			return form(r.URL.String(), url.Values{})
		}, 403},
		"another token": {func(_ *world, r *http.Request, _ *browser, _ string) *http.Request {
			return form(r.URL.String(), url.Values{"csrf": {"x"}})
		}, 403},
		"the token of another session": {func(w *world, r *http.Request, _ *browser,
			_ string) *http.Request {
			token := csrf(w.t, w.browser().show(w.ask("ann")))
			return form(r.URL.String(), url.Values{"csrf": {token}})
		}, 403},
		"the token in the URL": {func(_ *world, r *http.Request, _ *browser,
			token string) *http.Request {
			return form(r.URL.String()+"?csrf="+token, url.Values{})
		}, 403},
		"a form of another site": {func(_ *world, r *http.Request, _ *browser,
			_ string) *http.Request {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			return r
		}, 403},
		"a form of another subdomain": {func(_ *world, r *http.Request, _ *browser,
			_ string) *http.Request {
			r.Header.Set("Sec-Fetch-Site", "same-site")
			return r
		}, 403},
		"another type": {func(_ *world, r *http.Request, _ *browser, _ string) *http.Request {
			r.Header.Set("Content-Type", "text/plain")
			return r
		}, 403},
		"a large form": {func(_ *world, r *http.Request, _ *browser,
			token string) *http.Request {
			return form(r.URL.String(), url.Values{"a": {strings.Repeat("x", 5000)},
				"csrf": {token}})
		}, 403},
		"no session": {func(_ *world, r *http.Request, b *browser, _ string) *http.Request {
			clear(b.cookies)
			return r
		}, 403},
		"another method": {func(_ *world, r *http.Request, _ *browser, _ string) *http.Request {
			r.Method = http.MethodPut
			return r
		}, 405},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			l, b := w.ask("ann"), w.browser()
			token := csrf(t, b.show(l))
			cookies := maps.Clone(b.cookies)
			answer := b.do(c.change(w, form(l.URL, url.Values{"csrf": {token}}), b, token))
			w.wantRefused(answer, c.status)
			if answer.Header().Get("Location") != "" {
				t.Errorf("the browser was sent to %s", answer.Header().Get("Location"))
			}
			b.cookies = cookies
			b.press(l) // the link was not used
		})
	}
}

// form returns a request with a form, as a browser without Sec-Fetch-Site sends it.
func form(at string, values url.Values) *http.Request {
	r := httptest.NewRequest(http.MethodPost, at, strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// TestAnswerOfTheIssuerNeedsItsBrowser sends answers of the issuer that belong to no login of the
// browser.
func TestAnswerOfTheIssuerNeedsItsBrowser(t *testing.T) {
	for name, answer := range map[string]func(w *world, b *browser,
		to string) *httptest.ResponseRecorder{
		"another browser": func(w *world, _ *browser, to string) *httptest.ResponseRecorder {
			return w.browser().get(to)
		},
		"another browser of a user": func(w *world, _ *browser,
			to string) *httptest.ResponseRecorder {
			b := w.browser()
			csrf(w.t, b.show(w.ask("ann")))
			return b.get(to)
		},
		"another state": func(_ *world, b *browser, to string) *httptest.ResponseRecorder {
			return b.get(strings.Replace(to, "issuer-state", "other-state", 1))
		},
		"two states": func(_ *world, b *browser, to string) *httptest.ResponseRecorder {
			return b.get(to + "&state=x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			l, b := w.ask("ann"), w.browser()
			to := answerOf(t, b.get(l.URL).Header().Get("Location"), "")
			n := len(w.issuerAnswers)
			w.wantRefused(answer(w, b, to), http.StatusBadRequest)
			if name == "another browser of a user" {
				n++ // its own login
			}
			if len(w.issuerAnswers) != n {
				t.Fatal("the login at the issuer was finished")
			}
			if got := b.get(to).Header().Get("Location"); got != l.URL {
				t.Errorf("the right answer sent the browser to %q", got)
			}
			w.wantRefused(b.get(to), http.StatusBadRequest) // once
		})
	}
}

// TestUserWhoDoesNotLogInSeesNoPage has an issuer that refuses the user.
func TestUserWhoDoesNotLogInSeesNoPage(t *testing.T) {
	w := newWorld(t)
	w.userError = errors.New("the issuer refused the login: access_denied")
	l, b := w.ask("ann"), w.browser()
	x := w.wantRefused(b.show(l), http.StatusForbidden)
	if x.Server != "box" || x.Principal != "https://login.example#ann" ||
		!strings.Contains(x.Reason, "access_denied") {
		t.Errorf("got the record %+v", x)
	}
	if to := b.get(l.URL).Header().Get("Location"); !strings.HasPrefix(to, issuer+"/") {
		t.Errorf("now the link sends the browser to %q, want the issuer", to)
	}
	w.beginErr = errors.New("the issuer is down")
	w.wantRefused(w.browser().get(l.URL), http.StatusServiceUnavailable)
}

// TestPagesCannotBeFramed checks the headers of all kinds of answers.
func TestPagesCannotBeFramed(t *testing.T) {
	w := newWorld(t)
	l, b := w.ask("ann"), w.browser()
	answers := []*httptest.ResponseRecorder{b.get(l.URL), b.show(l), b.get(callback),
		b.get(public + "/connect/gk1.x"), b.post(public+"/connect/login", nil)}
	page := b.get(l.URL)
	pressed := b.post(l.URL, url.Values{"csrf": {csrf(t, page)}})
	answers = append(answers, page, pressed,
		b.get(answerOf(t, pressed.Header().Get("Location"), callback)))
	for i, answer := range answers {
		h := answer.Header()
		policy := h.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none';") ||
			!strings.Contains(policy, "frame-ancestors 'none'") ||
			!strings.Contains(policy, "base-uri 'none'") || h.Get("X-Frame-Options") != "DENY" ||
			h.Get("Cache-Control") != "no-store" || h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("answer %d has the headers %v", i, h)
		}
		body := answer.Body.String()
		if body == "" {
			continue
		}
		_, style, _ := strings.Cut(body, "<style>")
		style, _, _ = strings.Cut(style, "</style>")
		sum := sha256.Sum256([]byte(style))
		if want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(
			policy, want) || style == "" {
			t.Errorf("the policy %q does not allow the style of the page", policy)
		}
		if strings.Contains(body, "<script") || strings.Contains(body, "code-1") {
			t.Errorf("answer %d has a script or a text of the request:\n%s", i, body)
		}
	}
}

// TestTextsOfOthersAreOnlyTexts has a server and scopes with HTML and a mark for the direction.
func TestTextsOfOthersAreOnlyTexts(t *testing.T) {
	w := newWorld(t)
	l := w.askFor(connect.Login{Principal: principal(t, issuer, "ann"), Server: "<b>box</b>",
		AuthorizationServer: "https://as.example/\u202e\"><script>", Scopes: []string{
			"<script>alert(1)</script>", strings.Repeat("x", 2000)}})
	body := w.browser().show(l).Body.String()
	for _, text := range []string{"<script", "<b>", "\u202e", strings.Repeat("x", 1000)} {
		if strings.Contains(body, text) {
			t.Errorf("the page has %q:\n%s", text, body)
		}
	}
	if !strings.Contains(body, "&lt;b&gt;box&lt;/b&gt;") {
		t.Errorf("the page does not name the server:\n%s", body)
	}
}

func TestPagesAreBounded(t *testing.T) {
	w := newWorld(t)
	l := w.ask("ann")
	for range 20 {
		w.browser().get(l.URL)
	}
	w.wantRefused(w.browser().get(l.URL), http.StatusTooManyRequests)
	b := w.browser()
	second := w.ask("ann")
	for range 19 { // the oldest logins at the issuer are forgotten
		b.get(second.URL)
	}
	csrf(t, b.show(second))

	for range 1000 - 2 {
		w.ask("ann")
	}
	n := connect.Login{Principal: principal(t, issuer, "ann"), Server: "box"}
	if _, err := w.pages.Ask(t.Context(), n); err == nil ||
		!strings.Contains(err.Error(), "1000 principals are asked") {
		t.Errorf("got the error %v", err)
	}
	result(t, l)
	if _, err := w.pages.Ask(t.Context(), n); err != nil {
		t.Error(err)
	}
}

func TestBrowsersAreBounded(t *testing.T) {
	w := newWorld(t)
	l, b := w.ask("ann"), w.browser()
	first := answerOf(t, b.get(l.URL).Header().Get("Location"), "")
	for range 5 {
		b.get(l.URL)
	}
	w.wantRefused(b.get(first), http.StatusBadRequest)

	for range 20 {
		b.press(w.ask("ann"))
	}
	answer := b.post(l.URL, url.Values{"csrf": {csrf(t, b.show(l))}})
	w.wantRefused(answer, http.StatusTooManyRequests)
}

func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for range 500 {
			l := w.ask("ann")
			for range 20 {
				w.browser().get(l.URL)
			}
		}
		w.wantRefused(w.browser().get(w.ask("ann").URL), http.StatusServiceUnavailable)
		time.Sleep(15 * time.Minute)
		csrf(t, w.browser().show(w.ask("ann")))
	})
}

// TestOnlyUsersOfAnIssuerWithALoginAreAsked has principals who cannot show who they are.
func TestOnlyUsersOfAnIssuerWithALoginAreAsked(t *testing.T) {
	w := newWorld(t)
	var list []*identity.Principal
	for _, a := range []identity.Attributes{{Method: identity.Token, Subject: "ann"},
		{Method: identity.Certificate, Subject: "ann"}, {Subject: "anonymous"},
		{Method: identity.JWT, Issuer: "https://third.example", Subject: "ann"}} {
		p, err := identity.New(a)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	for _, p := range append(list, nil) {
		if w.pages.CanAsk(p) {
			t.Errorf("%q can be asked", p.ID())
		}
		if l, err := w.pages.Ask(t.Context(), connect.Login{Principal: p}); err == nil {
			t.Errorf("%q got the link %s", p.ID(), l.URL)
		}
	}
	if !w.pages.CanAsk(principal(t, issuer, "ann")) {
		t.Error("ann cannot be asked")
	}
}

func TestOnlyPagesAreServed(t *testing.T) {
	w := newWorld(t)
	l := w.ask("ann")
	_, sealed, _ := strings.Cut(l.URL, "/connect/")
	got := []string{}
	for _, path := range []string{"/connect/" + sealed, "/team/connect/" + sealed,
		"/connect/login", "/team/connect/callback", "/connect/", "/connect", "/connect/x",
		"/connect/client.json", "/connect/login/", "/connect/gk1.x/y", "/mcp", "/", "",
		"/other/connect/login", "/connect/gk1." + strings.Repeat("x", 200)} {
		if w.pages.Serves(path) {
			got = append(got, path)
		}
	}
	if want := []string{"/connect/" + sealed, "/team/connect/" + sealed, "/connect/login",
		"/team/connect/callback"}; !slices.Equal(got, want) {
		t.Errorf("the pages are %q, want %q", got, want)
	}
}
