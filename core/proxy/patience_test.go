package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

const (
	wholeList = `{"tools":[{"name":"good__x"},{"name":"odd__y"}]}`
	// the beginning of a list without the tools of the server "odd"
	partialList = `{"tools":[{"name":"good__x"}],"_meta":{"gatekit/partial":[{"server":"odd"`
)

// delayedServer returns a server that answers tools/list after a delay. The test may change the
// delay. If the delay is negative, the server never answers.
func delayedServer(delay *atomic.Int64) *fakeServer {
	return &fakeServer{answer: func(ctx context.Context, m *mcp.Message, _ proxy.Handler) string {
		if m.Method == "initialize" {
			return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`
		}
		d := time.Duration(delay.Load())
		if d < 0 {
			return ""
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return `{"tools":[{"name":"y"}]}`
	}}
}

// openDelayed opens a session with the servers "good" and "odd". The server "odd" answers
// tools/list after a delay. The test may store another delay in oddDelay.
func openDelayed(t *testing.T, delay time.Duration) (w *fixture, odd *fakeServer,
	oddDelay *atomic.Int64) {
	oddDelay = &atomic.Int64{}
	oddDelay.Store(int64(delay))
	odd = delayedServer(oddDelay)
	return open(t, map[string]*fakeServer{"good": serverAnswering(`{"tools":[{"name":"x"}]}`),
		"odd": odd}, nil), odd, oddDelay
}

// wantList requests tools/list. It fails the test unless the answer begins with want and comes
// exactly after the duration delay. The parameter step is for failure messages.
func (w *fixture) wantList(t *testing.T, step, want string, delay time.Duration) {
	t.Helper()
	began := time.Now()
	if got := w.call(t, "tools/list", `{}`); !strings.HasPrefix(got, want) {
		t.Errorf("%s: got %s, want %s", step, got, want)
	}
	equal(t, step+": time until the answer", time.Since(began), delay)
}

func TestServerThatHungIsNotWaitedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, odd, delay := openDelayed(t, -1)
		w.wantList(t, "the first list", partialList, 5*time.Second)
		for range 10 {
			w.wantList(t, "while the first request is not answered", partialList, 0)
		}
		equal(t, "requests that the server got", len(odd.seen()), 1)
		time.Sleep(20 * time.Second) // the first request times out
		w.wantList(t, "after the first request has timed out", partialList, 100*time.Millisecond)
		other := w.proxy.Open(proxy.OpenOptions{Session: "other", Principal: identity.FromID("q")},
			&fakeClient{})
		began := time.Now()
		w.callAs(t, other, w.client, `7`, "tools/list", `{}`)
		equal(t, "a list of another session took", time.Since(began), 100*time.Millisecond)

		time.Sleep(20 * time.Second)
		delay.Store(int64(time.Second))
		equal(t, "the client got", w.feed.received(), []string{})
		w.wantList(t, "the server answers again, and is late", partialList, 100*time.Millisecond)
		time.Sleep(time.Second)
		synctest.Wait()
		equal(t, "the client got", w.feed.received(),
			[]string{"notifications/tools/list_changed "})
		w.wantList(t, "the server has answered", wholeList, time.Second)
	})
}

func TestSlowServerIsWaitedForAfterItsFirstAnswer(t *testing.T) {
	for _, c := range []struct {
		delay time.Duration // of the server's answers
		// how long each list takes; the server hangs during the third list
		first, second, hung time.Duration
		wantFirst           string
	}{
		{time.Millisecond, time.Millisecond, time.Millisecond, 3 * time.Second, wholeList},
		{4 * time.Second, 4 * time.Second, 4 * time.Second, 16 * time.Second, wholeList},
		{8 * time.Second, 5 * time.Second, 8 * time.Second, 20 * time.Second, partialList},
	} {
		t.Run(c.delay.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _, delay := openDelayed(t, c.delay)
				w.wantList(t, "the first list", c.wantFirst, c.first)
				time.Sleep(10 * time.Second)
				w.wantList(t, "the second list", wholeList, c.second)
				delay.Store(-1)
				w.wantList(t, "the server hangs", partialList, c.hung)
			})
		})
	}
}

func TestOnlyWorkingServerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delay := &atomic.Int64{}
		delay.Store(int64(15 * time.Second))
		w := open(t, map[string]*fakeServer{"odd": delayedServer(delay),
			"dead": serverAnswering("dead")}, nil)
		began := time.Now()
		if got := w.call(t, "tools/list", `{}`); !strings.HasPrefix(got,
			`{"tools":[{"name":"odd__y"}]`) {
			t.Errorf("got %s, want the list of the only server that works", got)
		}
		equal(t, "time until the answer", time.Since(began), 15*time.Second)
		delay.Store(-1)
		for _, want := range []time.Duration{20 * time.Second, 5 * time.Second} {
			began = time.Now()
			if got := w.call(t, "tools/list", `{}`); !strings.HasPrefix(got, "!-32603") {
				t.Errorf("got %s, want an error: no server answered", got)
			}
			equal(t, "time until the error", time.Since(began), want)
			time.Sleep(time.Minute)
		}
	})
}

func TestListWaitsForTheUsersAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks := &fakeServer{answer: func(ctx context.Context, m *mcp.Message,
			h proxy.Handler) string {
			if m.Method == "initialize" {
				return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`
			}
			h.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
			return `{"tools":[{"name":"y"}]}`
		}}
		w := open(t, map[string]*fakeServer{"odd": asks, "good": {answer: fixedResults(
			map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`,
				"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`})}},
			nil)
		w.client.answer = func(m *mcp.Message) *mcp.Message {
			time.Sleep(30 * time.Second)
			return mcp.NewResponse(m.ID(), []byte(`{"roots":[]}`))
		}
		w.call(t, "initialize", strings.Replace(initializeParams, `"capabilities":{}`,
			`"capabilities":{"roots":{}}`, 1))
		if got := w.call(t, "tools/list", `{}`); got != wholeList {
			t.Errorf("got %s, want the whole list", got)
		}
		equal(t, "questions that the client got", len(w.client.asked), 1)
	})
}

func TestHungServerDelaysOnlyTheFirstInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, map[string]*fakeServer{"odd": serverAnswering(""),
			"good": {answer: fixedResults(
				map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`,
					"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`})},
		}, nil)
		for i, want := range []time.Duration{5 * time.Second, 100 * time.Millisecond} {
			s := w.proxy.Open(proxy.OpenOptions{Session: fmt.Sprint(i)}, &fakeClient{})
			began := time.Now()
			got := w.callAs(t, s, w.client, `1`, "initialize", initializeParams)
			if !strings.Contains(got, `"gatekit/partial":[{"server":"odd"`) {
				t.Errorf("initialize: got %s, want a partial answer", got)
			}
			equal(t, "time until the answer", time.Since(began), want)
			// the server that has not answered may have any of these features
			for feature, list := range map[string]string{"prompts": `{"prompts":[]`,
				"resources": `{"resources":[]`} {
				if !strings.Contains(got, `"`+feature+`":{"listChanged":true`) {
					t.Errorf("initialize: got %s, want the capability %s", got, feature)
				}
				began = time.Now()
				if got := w.callAs(t, s, w.client, `2`, feature+"/list", `{}`); !strings.HasPrefix(
					got, list) {
					t.Errorf("%s/list: got %s, want an empty list", feature, got)
				}
				equal(t, feature+"/list took", time.Since(began), 100*time.Millisecond)
			}
			began = time.Now()
			if got := w.callAs(t, s, w.client, `2`, "tools/list", `{}`); !strings.HasPrefix(got,
				partialList) {
				t.Errorf("tools/list: got %s, want a partial list", got)
			}
			equal(t, "tools/list took", time.Since(began), 100*time.Millisecond)
		}
	})
}

func TestChangedServerIsWaitedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := openDelayed(t, -1)
		w.wantList(t, "the first list", partialList, 5*time.Second)
		time.Sleep(20 * time.Second)
		o, delay := w.options, &atomic.Int64{}
		delay.Store(int64(time.Second))
		o.Servers = append([]proxy.ServerConfig{}, o.Servers...)
		o.Servers[1].Upstream = delayedServer(delay)
		if err := w.proxy.Apply(o); err != nil {
			t.Fatal(err)
		}
		w.wantList(t, "after the server was replaced", wholeList, time.Second)
	})
}
