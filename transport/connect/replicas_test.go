package connect_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/transport/connect"
)

// cluster has the pages of three replicas with one state. The browsers of its world send each
// request to another one than the last.
type cluster struct {
	*world
	state    *sharedtest.Faulty
	replicas []*connect.Pages
	next     int
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{world: &world{t: t, user: "ann"}, state: sharedtest.NewFaulty(&shared.Memory{})}
	for range 3 {
		o := c.options(public)
		o.Values, o.Key = c.state, bytes.Repeat([]byte("k"), 32)
		pages, err := connect.New(o)
		if err != nil {
			t.Fatal(err)
		}
		c.replicas = append(c.replicas, pages)
	}
	c.turn()
	return c
}

// turn makes the browsers use another replica.
func (c *cluster) turn() {
	c.next++
	c.pages = c.replicas[c.next%len(c.replicas)]
}

// follow opens a link, and sends each request to another replica than the last, until the page of
// the link comes.
func (c *cluster) follow(b *browser, at string) *httptest.ResponseRecorder {
	c.t.Helper()
	for {
		c.turn()
		answer := b.get(at)
		if answer.Code != http.StatusSeeOther {
			return answer
		}
		if at = answer.Header().Get("Location"); strings.HasPrefix(at, issuer+"/") {
			at = answerOf(c.t, at, "")
		}
	}
}

// press is world.press, with each request at another replica.
func (c *cluster) press(b *browser, at string) (answer string) {
	c.t.Helper()
	token := csrf(c.t, c.follow(b, at))
	c.turn()
	to := b.post(at, url.Values{"csrf": {token}}).Header().Get("Location")
	c.turn()
	return answerOf(c.t, to, callback)
}

// A login that one replica has asked for is opened, begun and finished at others. Whoever asked
// learns of the result.
func TestEachStepAtAnotherReplica(t *testing.T) {
	for _, finishErr := range []error{nil, errors.New("the answer has no code")} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.finishErr = finishErr
			l := c.ask("ann")
			waited := make(chan error, 1)
			go func() { waited <- l.Wait(t.Context()) }()
			b := c.browser()
			to := c.press(b, l.URL)
			if answer := b.get(to); answer.Code != http.StatusOK || len(c.answers) != 1 {
				t.Errorf("the answer gets status %d, and %d logins are finished", answer.Code,
					len(c.answers))
			}
			if err := <-waited; (err == nil) != (finishErr == nil) ||
				err != nil && err.Error() != finishErr.Error() {
				t.Errorf("whoever asked gets %v, want %v", err, finishErr)
			}
			for range 3 { // the link and the answer are of no use any more, at all replicas
				c.turn()
				c.wantRefused(b.get(to), http.StatusBadRequest)
				c.wantRefused(b.get(l.URL), http.StatusNotFound)
			}
			if len(c.answers) != 1 {
				t.Errorf("the login was finished %d times", len(c.answers))
			}
		})
	}
}

// An answer that reaches all replicas at the same time ends a login once, whatever they race with.
func TestAnswersRaceAtReplicas(t *testing.T) {
	c := newCluster(t)
	const races = 10_000
	var finished, refused atomic.Int64
	for range races {
		l := c.ask("ann")
		b := c.browser()
		to := c.press(b, l.URL)
		before := len(c.answers)
		var wg sync.WaitGroup
		for _, pages := range c.replicas {
			r := httptest.NewRequest(http.MethodGet, to, nil)
			for name, value := range b.cookies {
				r.AddCookie(&http.Cookie{Name: name, Value: value})
			}
			wg.Go(func() {
				answer := httptest.NewRecorder()
				pages.ServeHTTP(answer, r)
				switch answer.Code {
				case http.StatusOK:
					finished.Add(1)
				case http.StatusBadRequest:
					refused.Add(1)
				default:
					t.Errorf("status %d", answer.Code)
				}
			})
		}
		wg.Wait()
		if n := len(c.answers) - before; n != 1 {
			t.Fatalf("one answer has finished %d logins", n)
		}
		result(t, l)
	}
	if finished.Load() != races || refused.Load() != 2*races {
		t.Errorf("%d answers were accepted and %d refused, want %d and %d", finished.Load(),
			refused.Load(), races, 2*races)
	}
}

// A form that reaches all replicas at the same time begins a login once.
func TestFormsRaceAtReplicas(t *testing.T) {
	c := newCluster(t)
	for range 1000 {
		l := c.ask("ann")
		b := c.browser()
		token := csrf(t, c.follow(b, l.URL))
		var begun atomic.Int64
		var wg sync.WaitGroup
		for _, pages := range c.replicas {
			r := form(l.URL, url.Values{"csrf": {token}})
			for name, value := range b.cookies {
				r.AddCookie(&http.Cookie{Name: name, Value: value})
			}
			wg.Go(func() {
				answer := httptest.NewRecorder()
				pages.ServeHTTP(answer, r)
				if answer.Code == http.StatusSeeOther {
					begun.Add(1)
				}
			})
		}
		wg.Wait()
		if n := begun.Load(); n != 1 {
			t.Fatalf("one form has begun %d logins", n)
		}
		result(t, l)
	}
}

// Without the state, no login begins and none is finished. Each refusal is recorded.
func TestPagesWithoutTheState(t *testing.T) {
	for name, request := range map[string]func(c *cluster, b *browser,
		l *connect.Link) *http.Request{
		"link": func(_ *cluster, _ *browser, l *connect.Link) *http.Request {
			return httptest.NewRequest(http.MethodGet, l.URL, nil)
		},
		"answer of the issuer": func(c *cluster, b *browser, l *connect.Link) *http.Request {
			at := b.get(l.URL).Header().Get("Location")
			return httptest.NewRequest(http.MethodGet, answerOf(c.t, at, ""), nil)
		},
		"form": func(c *cluster, b *browser, l *connect.Link) *http.Request {
			return form(l.URL, url.Values{"csrf": {csrf(c.t, c.follow(b, l.URL))}})
		},
		"answer": func(c *cluster, b *browser, l *connect.Link) *http.Request {
			return httptest.NewRequest(http.MethodGet, c.press(b, l.URL), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			l, b := c.ask("ann"), c.browser()
			r := request(c, b, l)
			answers, users := len(c.answers), len(c.issuerAnswers)
			c.state.Fail(shared.ErrUnavailable)
			x := c.wantRefused(b.do(r.Clone(t.Context())), http.StatusServiceUnavailable)
			if !strings.Contains(x.Reason, "shared state is not available") {
				t.Errorf("the record is %+v", x)
			}
			if len(c.answers) != answers || len(c.issuerAnswers) != users {
				t.Error("a login was finished")
			}
			if _, err := c.pages.Ask(t.Context(), connect.Login{
				Principal: principal(t, issuer, "ann")}); !errors.Is(err, shared.ErrUnavailable) {
				t.Errorf("a further link: got %v, want shared.ErrUnavailable", err)
			}
			c.state.Fail(nil)
			if answer := b.do(r); answer.Code >= 400 {
				t.Errorf("after that, the request gets status %d", answer.Code)
			}
		})
	}
}

// A login that the state has lost ends at once for whoever waits.
func TestLoginsThatTheStateHasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		l := c.ask("ann")
		c.state.Lose()
		began := time.Now()
		if err := l.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "was lost") ||
			time.Since(began) > time.Second {
			t.Errorf("after %v, got %v", time.Since(began), err)
		}
		c.wantRefused(c.browser().get(l.URL), http.StatusNotFound)
	})
}
