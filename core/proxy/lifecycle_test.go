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

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

func TestCancellationBeforeDuringAndAfterCall(t *testing.T) {
	cancel := func(w *fixture, id string) {
		w.session.Notify(context.Background(), notification(t, "notifications/cancelled",
			`{"requestId":`+id+`}`))
	}
	t.Run("a call that does not run yet", func(t *testing.T) {
		s := &fakeServer{answer: echo}
		w := open(t, map[string]*fakeServer{"a": s}, nil)
		call := w.session.Begin(request(t, "7", "tools/call", `{"name":"a__x"}`), w.client)
		cancel(w, "7")
		equal(t, "answer", answerText(t, "7", call.Run(t.Context())), "nothing")
		equal(t, "the server saw", s.seen(), []string{})
		w.record.expect(t, "pass to_server notification notifications/cancelled")
		equal(t, "the id is free again", w.call(t, "tools/call", `{"name":"a__x"}`), `{"name":"x"}`)
	})
	t.Run("a denied cancellation leaves the call as it is", func(t *testing.T) {
		s := &fakeServer{answer: echo}
		w := open(t, map[string]*fakeServer{"a": s}, nil, denyMethods("notifications/cancelled"))
		call := w.session.Begin(request(t, "7", "tools/call", `{"name":"a__x"}`), w.client)
		cancel(w, "7")
		equal(t, "answer", answerText(t, "7", call.Run(t.Context())), `{"name":"x"}`)
		w.record.expect(t, "deny to_server notification notifications/cancelled")
	})
	t.Run("a discarded call reaches no server and frees its id", func(t *testing.T) {
		s := &fakeServer{answer: echo}
		w := open(t, map[string]*fakeServer{"a": s}, nil)
		w.session.Begin(request(t, "7", "tools/call", `{"name":"a__x"}`), w.client).Discard()
		equal(t, "the server saw", s.seen(), []string{})
		equal(t, "the id is free again", w.call(t, "tools/call", `{"name":"a__x"}`), `{"name":"x"}`)
	})
	t.Run("a call that was answered", func(t *testing.T) {
		w := open(t, map[string]*fakeServer{"a": {answer: echo}}, nil)
		w.call(t, "tools/call", `{"name":"a__x"}`)
		cancel(w, "7")
		w.record.expect(t, "drop to_server notification notifications/cancelled")
	})
	t.Run("a call cancelled twice, whose client then leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := serverAnswering("")
			w := open(t, map[string]*fakeServer{"a": s}, nil)
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan pipeline.Passed, 1)
			go func() {
				done <- w.session.Call(ctx,
					request(t, "7", "tools/call", `{"name":"a__x"}`), w.client)
			}()
			synctest.Wait()
			for range 2 {
				cancel(w, "7")
			}
			leave()
			equal(t, "answer", answerText(t, "7", <-done), "nothing")
			synctest.Wait()
			equal(t, "calls that ended at the server", len(s.ended), 1)
		})
	})
	t.Run("initialize cannot be cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
				time.Sleep(time.Second)
				return `{"capabilities":{}}`
			}}
			w := open(t, map[string]*fakeServer{"a": s}, nil)
			go cancel(w, "7")
			if got := w.call(t, "initialize", initializeParams); strings.HasPrefix(got, "!") ||
				got == "nothing" {
				t.Errorf("initialize: got %s, want a result", got)
			}
		})
	})
	t.Run("a cancelled list ends at every server that was asked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := serverAnswering(""), serverAnswering("")
			w := open(t, map[string]*fakeServer{"a": a, "b": b}, nil)
			done := make(chan pipeline.Passed, 1)
			go func() {
				done <- w.session.Call(t.Context(), request(t, "7", "tools/list", `{}`),
					w.client)
			}()
			synctest.Wait()
			cancel(w, "7")
			equal(t, "answer", answerText(t, "7", <-done), "nothing")
			equal(t, "calls that ended at the servers", len(a.ended)+len(b.ended), 2)
			// the record names neither server
			w.record.expect(t, "pass to_server notification notifications/cancelled")
		})
	})
}

func TestReloadBetweenBeginAndRun(t *testing.T) {
	for _, method := range []string{"tools/call", "tools/list", "subscriptions/listen",
		"server/discover", "acme/x"} {
		for _, prefix := range []string{"always", "never"} {
			t.Run(method+", "+prefix, func(t *testing.T) {
				w := open(t, map[string]*fakeServer{"a": {answer: echo}},
					func(o *proxy.Options) {
						o.Naming.Prefix, o.Servers[0].Methods = prefix, []string{"acme/*"}
					})
				call := w.session.Begin(request(t, "7", method,
					`{"name":"a__x","notifications":{}}`), w.client)
				o := w.options
				o.Servers = []proxy.ServerConfig{{Name: "b", Upstream: &fakeServer{answer: echo}}}
				if err := w.proxy.Apply(o); err != nil {
					t.Fatal(err)
				}
				ctx, leave := context.WithCancel(t.Context())
				// A subscription without servers stays open until leave.
				timer := time.AfterFunc(50*time.Millisecond, leave)
				defer timer.Stop()
				if got := answerText(t, "7", call.Run(ctx)); method != "subscriptions/listen" &&
					!strings.HasPrefix(got, "!") || strings.HasPrefix(got, "{") {
					t.Errorf("answer %s, want an error, or nothing for a subscription", got)
				}
			})
		}
	}
}

// inParallel runs f in n goroutines and waits for them.
func inParallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func TestReloadsDuringCalls(t *testing.T) {
	busy := func() *fakeServer {
		return &fakeServer{answer: func(ctx context.Context, m *mcp.Message,
			c proxy.Handler) string {
			c.HandleNotification(ctx, mcp.NewNotification("notifications/message",
				[]byte(`{"level":"info","logger":"l","data":1}`)))
			switch m.Method {
			case "initialize":
				return `{"capabilities":{"tools":{}}}`
			case "tools/list":
				return `{"tools":[{"name":"x"}]}`
			case "tools/call":
				c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "elicitation/create",
					[]byte(`{"message":"m"}`))})
			}
			return `{}`
		}}
	}
	w := open(t, map[string]*fakeServer{"a": busy(), "b": busy()}, nil)
	w.client.answer = func(m *mcp.Message) *mcp.Message {
		return mcp.NewResponse(m.ID(), []byte(`{"action":"accept"}`))
	}
	w.call(t, "initialize", initializeParams)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("%d%04d", i+1, n)
				for _, c := range [][2]string{{"tools/list", `{}`},
					{"tools/call", `{"name":"b__x"}`}, {"tools/call", `{"name":"a__x"}`}} {
					got := w.callAs(t, w.session, w.client, id, c[0], c[1])
					if strings.HasPrefix(got, "!-310") || got == "nothing" {
						t.Errorf("%s: got %s, want an answer that is no denial", c, got)
					}
				}
				w.session.Notify(t.Context(), notification(t, "notifications/roots/list_changed",
					`{}`))
			}
		})
	}
	inParallel(2, func(i int) {
		for n := range 20 {
			o := w.options
			o.Servers = []proxy.ServerConfig{{Name: "a", Upstream: w.options.Servers[0].Upstream,
				Timeout: time.Duration(n+1) * time.Second}}
			if n%2 == i {
				o.Servers = append(o.Servers, proxy.ServerConfig{Name: "b", Upstream: busy()},
					proxy.ServerConfig{Name: "c", Upstream: busy()})
			}
			if err := w.proxy.Apply(o); err != nil {
				t.Error(err)
			}
			other := w.proxy.Open(proxy.OpenOptions{Session: "other"}, w.feed)
			w.callAs(t, other, w.client, "1", "tools/list", `{}`)
			other.Close()
		}
	})
	close(stop)
	wg.Wait()
}

func TestSessionOpenedDuringReloadHasNewSettings(t *testing.T) {
	a, b := &fakeServer{answer: echo}, &fakeServer{answer: echo}
	w := open(t, map[string]*fakeServer{"a": a}, nil)
	var sessions []*proxy.Session
	inParallel(2, func(i int) {
		if i == 0 {
			for range 100 {
				sessions = append(sessions, w.proxy.Open(proxy.OpenOptions{}, w.feed))
			}
			return
		}
		o := w.options
		o.Servers = []proxy.ServerConfig{{Name: "b", Upstream: b}}
		if err := w.proxy.Apply(o); err != nil {
			t.Error(err)
		}
	})
	for i, s := range sessions {
		equal(t, fmt.Sprint("session ", i), w.callAs(t, s, w.client, "1", "tools/call",
			`{"name":"b__x"}`), `{"name":"x"}`)
	}
}

func TestSessionOfClosedProxyOpensNoServer(t *testing.T) {
	s := &fakeServer{answer: echo}
	w := open(t, map[string]*fakeServer{"a": s}, nil)
	if err := w.proxy.Close(); err != nil {
		t.Fatal(err)
	}
	late := w.proxy.Open(proxy.OpenOptions{}, w.feed)
	equal(t, "call", w.callAs(t, late, w.client, "1", "tools/call", `{"name":"a__x"}`),
		"!-32603 the session is closed")
	late.Notify(t.Context(), notification(t, "notifications/roots/list_changed", `{}`))
	if err := late.Close(); err != nil || s.feed != nil {
		t.Errorf("Close: %v, and the server was opened: %v; want no error and no opened server",
			err, s.feed != nil)
	}
}

func TestCloseWaitsForBackgroundWork(t *testing.T) {
	for _, c := range []struct {
		name           string
		answer         answerFunc
		method, params string
		want           string
	}{
		{"a call", func(context.Context, *mcp.Message, proxy.Handler) string {
			return ""
		}, "tools/call", `{"name":"a__x"}`, "nothing"},
		{"a list", func(context.Context, *mcp.Message, proxy.Handler) string {
			return ""
		}, "tools/list", `{}`, "nothing"},
		{"initialize", func(context.Context, *mcp.Message, proxy.Handler) string {
			return ""
		}, "initialize", initializeParams, "nothing"},
		{"initialize of a server that fails", func(context.Context, *mcp.Message,
			proxy.Handler) string {
			return "dead"
		}, "initialize", initializeParams, `!-32603 server "a" is not available: it ended`},
		{"a subscription", acknowledgeAndNotify(), "subscriptions/listen",
			`{"notifications":{"toolsListChanged":true}}`,
			`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":7}}`},
		{"a subscription that is not acknowledged", func(context.Context, *mcp.Message,
			proxy.Handler) string {
			return ""
		}, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`,
			`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":7}}`},
		{"a request of the server", func(ctx context.Context, _ *mcp.Message,
			c proxy.Handler) string {
			return string(c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest(
				"1", "roots/list", nil)})[0].Message().Body())
		}, "tools/call", `{"name":"a__x"}`, "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{answer: c.answer}
				w := open(t, map[string]*fakeServer{"a": s}, nil)
				feed := &unresponsiveClient{}
				done := make(chan pipeline.Passed, 1)
				go func() {
					done <- w.session.Call(t.Context(), request(t, "7", c.method, c.params),
						feed)
				}()
				synctest.Wait()
				inParallel(3, func(int) {
					if err := w.session.Close(); err != nil {
						t.Error(err)
					}
				})
				equal(t, "answer", answerText(t, "7", <-done), c.want)
				equal(t, "times that the server was closed", s.closed, 1)
				synctest.Wait() // synctest reports the goroutines that are left
			})
		})
	}
}

// unresponsiveClient reads nothing and answers nothing.
type unresponsiveClient struct{}

func (*unresponsiveClient) Notify(ctx context.Context, _ pipeline.Passed) error {
	<-ctx.Done()
	return ctx.Err()
}

func (*unresponsiveClient) SendRequests(ctx context.Context,
	_ []pipeline.Passed) ([]*mcp.Message, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestClientThatNeverReadsDelaysNoOtherClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			if m.Name == "notifies" {
				c.HandleNotification(ctx, mcp.NewNotification("notifications/message",
					[]byte(`{"level":"info","data":1}`)))
				return ""
			}
			if m.Name == "asks" {
				return string(c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest(
					"1", "roots/list", nil)})[0].Message().Body())
			}
			return `{}`
		}}
		w := open(t, map[string]*fakeServer{"a": s}, nil)
		stuck := w.proxy.Open(proxy.OpenOptions{Session: "stuck"}, &unresponsiveClient{})
		began := time.Now()
		for i, name := range []string{"notifies", "asks"} {
			go stuck.Call(t.Context(), request(t, fmt.Sprint(i),
				"tools/call", `{"name":"a__`+name+`"}`), &unresponsiveClient{})
		}
		synctest.Wait()
		o := w.options
		if err := w.proxy.Apply(o); err != nil { // notifies all sessions of the change
			t.Fatal(err)
		}
		equal(t, "another session", w.call(t, "tools/call", `{"name":"a__x"}`), `{}`)
		equal(t, "the next call of the stuck session", w.callAs(t, stuck, w.client, "9",
			"tools/call", `{"name":"a__x"}`), `{}`)
		equal(t, "time that both calls took", time.Since(began), time.Duration(0))
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if err := stuck.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDeadlineIsPausedWhileClientIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
			if m.Name == "late" {
				<-ctx.Done()
			}
			return `{}`
		}}
		w := open(t, map[string]*fakeServer{"a": s}, nil)
		w.client.answer = func(m *mcp.Message) *mcp.Message {
			time.Sleep(4 * time.Minute)
			return mcp.NewResponse(m.ID(), []byte(`{"roots":[]}`))
		}
		equal(t, "answer", w.call(t, "tools/call", `{"name":"a__x"}`), `{}`)
		began := time.Now()
		equal(t, "answer when the server is silent after the question", w.call(t, "tools/call", `{"name":"a__late"}`),
			`!-32603 server "a" did not answer within 1m0s without progress`)
		equal(t, "time until the answer", time.Since(began), 5*time.Minute)
	})
}

func TestNothingIsForwardedWithoutARecord(t *testing.T) {
	broken := errors.New("disk full")
	for _, c := range []struct {
		name, method, params string
		answer               answerFunc
	}{
		{"a request", "tools/call", `{"name":"a__x"}`, echo},
		{"a list", "tools/list", `{}`,
			fixedResults(map[string]string{"tools/list": `{"tools":[{"name":"secret"}]}`})},
		{"initialize", "initialize", initializeParams,
			fixedResults(map[string]string{"initialize": `{"instructions":"secret"}`})},
		{"a notification and a request of the server", "tools/call", `{"name":"a__x"}`,
			func(ctx context.Context, _ *mcp.Message, c proxy.Handler) string {
				c.HandleNotification(ctx, mcp.NewNotification("notifications/message",
					[]byte(`{"data":"secret"}`)))
				return string(c.HandleRequests(ctx,
					[]*mcp.Message{mcp.NewRequest("1", "elicitation/create",
						[]byte(`{"message":"secret"}`))})[0].Message().Body())
			}},
		{"an input request", "tools/call", `{"name":"a__x"}`,
			asksForInput(`{"k":{"method":"elicitation/create","params":{"message":"secret"}}}`)},
		{"a subscription", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`,
			acknowledgeAndNotify("notifications/tools/list_changed")},
	} {
		for good := range 4 { // records that succeed before the disk is full
			synctest.Test(t, func(t *testing.T) {
				rec := &failingRecorder{good: good, err: broken}
				s := &fakeServer{answer: c.answer}
				w := open(t, map[string]*fakeServer{"a": s, "b": {answer: echo}},
					func(o *proxy.Options) { o.Pipeline = pipeline.New(rec, pipeline.Options{}) })
				w.client.takesInputRequests = true
				ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
				defer leave()
				answer := w.session.Call(ctx, request(t, "7", c.method, c.params), w.client)
				moved := len(s.seen()) + len(w.options.Servers[1].Upstream.(*fakeServer).seen()) +
					len(w.client.received()) + len(w.client.asked) + len(w.feed.received())
				if moved > good {
					t.Errorf("%s: %d messages were sent with %d records, want one record for "+
						"each message", c.name, moved, good)
				}
				if m := answer.Message(); m != nil && strings.Contains(string(m.Body()),
					"secret") && good < 2 {
					t.Errorf("%s: the answer after %d records is %s, want it without the secret",
						c.name, good, m.Body())
				}
			})
		}
	}
}

// failingRecorder records as many outcomes as the field good says. Then it fails with err.
type failingRecorder struct {
	mu   sync.Mutex
	good int // number of records that still succeed
	err  error
}

func (f *failingRecorder) Record(context.Context, pipeline.Outcome) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.good--; f.good < 0 {
		return 0, f.err
	}
	return 1, nil
}
