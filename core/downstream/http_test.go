package downstream_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/downstream"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/test/downstreamtest"
)

// waitForCancel is a Server.Answer. Its result "" makes the call wait until it is cancelled.
func waitForCancel(context.Context, *mcp.Message, proxy.Handler) string { return "" }

func TestASessionOverHTTP(t *testing.T) {
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		c := w.HTTPClient("ann")
		c.Initialize(t, mcp.Rev20250618)
		id := c.Header.Get("Mcp-Session-Id")
		params := `{"name":"x","arguments":{"n":1.0,"big":12345678901234567890}}`
		for _, step := range []struct{ name, got, want string }{
			{"a call", c.Post(t, downstreamtest.Request(`"1"`, "tools/call", params)),
				`200 {"jsonrpc":"2.0","id":"1","result":` + params + `}`},
			{"a ping", c.Post(t, downstreamtest.Request(2, "ping", `{}`)),
				`200 {"jsonrpc":"2.0","id":2,"result":{}}`},
			{"the session's revision in the header", c.Post(t, downstreamtest.Request(2, "ping", `{}`),
				"Mcp-Protocol-Version: 2025-06-18"), `200 {"jsonrpc":"2.0","id":2,"result":{}}`},
			{"an unknown revision in the header", c.Post(t, downstreamtest.Request(2, "ping", `{}`),
				"Mcp-Protocol-Version: 1999-01-01"),
				`400 {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"Mcp-Protocol-Version \"1999-01-01\" is not a revision that has sessions"}}`},
			{"an answer without a request", c.Post(t, `{"jsonrpc":"2.0","id":1,"result":{}}`),
				`202`},
			{"initialize again", c.Post(t, downstreamtest.Initialize(mcp.Rev20250618)),
				`200 {"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"the session is initialized already, or has ended"}}`},
			{"a body that is not JSON", c.Post(t, `{`), ``},
			{"a batch", c.Post(t, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`), ``},
		} {
			if step.want == "" {
				step.want, step.got = "400 ", step.got[:4]
			}
			downstreamtest.Equal(t, step.name, step.got, step.want)
		}
		unknown := `404 {"jsonrpc":"2.0","id":3,"error":{"code":-32600,"message":"no such session: send initialize"}}`
		bob := w.HTTPClient("bob")
		bob.Header.Set("Mcp-Session-Id", id)
		downstreamtest.Equal(t, "another principal", bob.Post(t, downstreamtest.Request(3,
			"ping", `{}`)), unknown)
		bob.Header.Set("Mcp-Session-Id", "guess")
		downstreamtest.Equal(t, "an unknown session", bob.Post(t, downstreamtest.Request(3,
			"ping", `{}`)), unknown)
		bob.Header.Del("Mcp-Session-Id")
		downstreamtest.ContainsText(t, "no session", bob.Post(t, downstreamtest.Request(3,
			"ping", `{}`)),
			`400 {"jsonrpc":"2.0","id":3,"error":{"code":-32600,`)

		stream := c.Begin(t, c.Endpoint.Get, "")
		synctest.Wait()
		x := c.Begin(t, c.Endpoint.Delete, "")
		<-x.Done
		downstreamtest.Equal(t, "DELETE", x.Text(), "204")
		<-stream.Done
		downstreamtest.Equal(t, "the session's stream", stream.Text(), "EOF")
		downstreamtest.Equal(t, "after DELETE", c.Post(t, downstreamtest.Request(3, "ping", `{}`)),
			unknown)
		for _, row := range w.Records.Rows() {
			if strings.Contains(row, id) {
				t.Errorf("the id of the session is in the record: %s", row)
			}
		}
	})
}

func TestGetAndDeleteWithoutASessionAreNotAllowed(t *testing.T) {
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		for _, serve := range []func(context.Context, downstream.HTTPRequest,
			downstream.Reply){c.Endpoint.Get, c.Endpoint.Delete} {
			x := c.Begin(t, serve, "")
			<-x.Done
			downstreamtest.Equal(t, "answer", x.Text(), "405")
		}
	})
}

func TestAnswerIsAStreamWhenAMessageComesBeforeIt(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		for i := range 3 {
			c.HandleNotification(ctx, mcp.NewNotification("notifications/message",
				fmt.Appendf(nil, `{"level":"info","data":%d}`, i)))
		}
		return `{}`
	}}
	log := func(i int) string {
		return fmt.Sprintf(
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%d}}`, i)
	}
	for _, c := range []struct{ revision, want string }{
		{mcp.Rev20250618, "2-1: " + log(0) + "\n2-2: " + log(1) + "\n2-3: " + log(2) +
			"\n2-4: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nEOF"},
		{mcp.Rev20251125, "2-0:\n2-1: " + log(0) + "\n2-2: " + log(1) + "\n2-3: " + log(2) +
			"\n2-4: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nEOF"},
	} {
		t.Run(c.revision, func(t *testing.T) {
			downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T,
				w *downstreamtest.Gateway) {
				h := w.HTTPClient("")
				h.Initialize(t, c.revision)
				downstreamtest.Equal(t, "answer", h.Post(t, downstreamtest.Request(1,
					"prompts/get", `{"name":"x"}`)), c.want)
				downstreamtest.Equal(t, "the answer to a client that accepts no streams",
					h.Post(t, downstreamtest.Request(1, "prompts/get", `{"name":"x"}`),
						"Accept: application/json"), `200 {"jsonrpc":"2.0","id":1,"result":{}}`)
			})
		})
	}
	t.Run("over HTTP without a session", func(t *testing.T) {
		downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T,
			w *downstreamtest.Gateway) {
			// a modern client gets log messages only during requests that set a level
			request := strings.Replace(downstreamtest.ModernRequest(`"a"`, "prompts/get",
				`"name":"x"`), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"info",`, 1)
			x := w.HTTPClient("").BeginModern(t, "prompts/get", "x", request)
			<-x.Done
			downstreamtest.Equal(t, "answer", x.Text(), ": "+log(0)+"\n: "+log(1)+"\n: "+log(2)+
				"\n: {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}\nEOF")
		})
	})
}

// MCP asks clients to name both types, but some name only one of them.
func TestAnswerHasTypeThatClientAccepts(t *testing.T) {
	const stream, json = "2-0:\n2-1: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nEOF",
		`200 {"jsonrpc":"2.0","id":1,"result":{}}`
	for _, test := range []struct {
		accept   string
		streamed bool
	}{
		{"", false},
		{"application/json", false},
		{"application/json, text/event-stream", false},
		{"text/event-stream, application/json", true},
		{"text/event-stream, */*", false},
		{"text/event-stream, application/*", false},
		{"*/*", false},
		{"text/event-stream", true},
		{"Text/Event-Stream;q=0.5", true},
		{"text/*", true},
		{"application/json;q=0, text/event-stream", true},
		{"application/json; q=0.0, */*", true},
		{"text/event-stream;q=0, application/json", false},
	} {
		downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
			w *downstreamtest.Gateway) {
			c := w.HTTPClient("")
			c.Initialize(t, mcp.Rev20251125)
			want, begin := json, "200 "
			if test.streamed {
				want, begin = stream, ": "
			}
			downstreamtest.Equal(t, "with a session and Accept: "+test.accept,
				c.Post(t, downstreamtest.Request(1, "ping", `{}`), "Accept: "+test.accept), want)
			x := w.HTTPClient("").BeginModern(t, "prompts/get", "x", downstreamtest.ModernRequest(1,
				"prompts/get", `"name":"x"`), "Accept: "+test.accept)
			<-x.Done
			if !strings.HasPrefix(x.Text(), begin) {
				t.Errorf("without a session and Accept: %s: got %s, want it to begin with %q",
					test.accept, x.Text(), begin)
			}
		})
	}
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		x := w.HTTPClient("").BeginModern(t, "ping", "",
			downstreamtest.ModernRequest(1, "ping", ""), "Accept: text/event-stream")
		<-x.Done
		downstreamtest.ContainsText(t, "an error keeps its status", x.Text(), "404 ")
	})
}

func TestClientThatPrefersStreamsGetsThem(t *testing.T) {
	const first = "Accept: text/event-stream, application/json"
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		c.Initialize(t, mcp.Rev20251125)
		downstreamtest.Equal(t, "with a session", c.Post(t, downstreamtest.Request(1, "ping", `{}`),
			first),
			"2-0:\n2-1: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nEOF")
		x := w.HTTPClient("").BeginModern(t, "prompts/get", "x", downstreamtest.ModernRequest(1,
			"prompts/get", `"name":"x"`),
			first)
		<-x.Done
		downstreamtest.ContainsText(t, "without a session", x.Text(),
			": {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{")
		x = w.HTTPClient("").BeginModern(t, "ping", "", downstreamtest.ModernRequest(1, "ping", ""),
			first)
		<-x.Done
		downstreamtest.ContainsText(t, "an error keeps its status", x.Text(), "404 ")
	})
}

func TestAnswerBecomesAStreamAfterADelay(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(context.Context, *mcp.Message,
		proxy.Handler) string {
		time.Sleep(time.Minute)
		return `{}`
	}}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		c.Initialize(t, mcp.Rev20250618)
		downstreamtest.Equal(t, "with a session",
			c.Post(t, downstreamtest.Request(1, "prompts/get", `{"name":"x"}`)),
			"2-1: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nEOF")
		x := w.HTTPClient("").BeginModern(t, "prompts/get", "x", downstreamtest.ModernRequest(1,
			"prompts/get", `"name":"x"`))
		<-x.Done
		downstreamtest.Equal(t, "without a session", x.Text(),
			": {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nEOF")
	})
}

func TestLostStreamIsResumedAfterItsLastEvent(t *testing.T) {
	next := map[string]chan string{"a": make(chan string), "b": make(chan string)}
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		name, _ := m.Text("/name")
		for data := range next[name] {
			if data == "done" {
				return `{"done":"` + name + `"}`
			}
			c.HandleNotification(ctx, mcp.NewNotification("notifications/message",
				[]byte(`{"level":"info","data":"`+name+data+`"}`)))
		}
		return "!-1 never"
	}}
	synctest.Test(t, func(t *testing.T) {
		next["a"], next["b"] = make(chan string), make(chan string)
		w := downstreamtest.New(t, s, downstream.Limits{})
		c := w.HTTPClient("")
		c.Initialize(t, mcp.Rev20251125)
		c.Header.Set("Accept", "text/event-stream, application/json")
		a := c.Begin(t, c.Endpoint.Post, downstreamtest.Request(1, "tools/call", `{"name":"a"}`))
		synctest.Wait()
		b := c.Begin(t, c.Endpoint.Post, downstreamtest.Request(2, "tools/call", `{"name":"b"}`))
		time.Sleep(time.Second)
		downstreamtest.Equal(t, "a stream begins soon", a.Text(), "2-0:")
		next["a"] <- "1"
		next["b"] <- "1"
		synctest.Wait()
		downstreamtest.ContainsText(t, "the first stream", a.Text(),
			`2-1: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"a1"}}`)

		a.Drop()
		<-a.Done
		next["a"] <- "2"
		next["b"] <- "2"
		resumed := c.Begin(t, c.Endpoint.Get, "", "Last-Event-Id: 2-0")
		synctest.Wait()
		next["a"] <- "3"
		synctest.Wait()
		want := "2-0:"
		for i := 1; i <= 3; i++ {
			want += fmt.Sprintf(
				"\n2-%d: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"a%d\"}}", i, i)
		}
		downstreamtest.Equal(t, "resumed from its start", resumed.Text(), want)
		again := c.Begin(t, c.Endpoint.Get, "", "Last-Event-Id: 2-2")
		<-resumed.Done
		downstreamtest.Equal(t, "the connection that was replaced", resumed.Text(), want+"\nEOF")
		next["a"] <- "done"
		<-again.Done
		last := `2-3: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"a3"}}` + "\n" + `2-4: {"jsonrpc":"2.0","id":1,"result":{"done":"a"}}` + "\nEOF"
		downstreamtest.Equal(t, "resumed from its middle", again.Text(), "2-2:\n"+last)
		finished := c.Begin(t, c.Endpoint.Get, "", "Last-Event-Id: 2-3")
		<-finished.Done
		downstreamtest.Equal(t, "resumed after its end", finished.Text(),
			"2-3:\n"+last[strings.Index(last, "\n")+1:])
		next["b"] <- "done"
		<-b.Done
		downstreamtest.ContainsText(t, "the other stream", b.Text(),
			"3-3: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"done\":\"b\"}}\nEOF")

		for _, id := range []string{"9-1", "2", "x-1", "2-x", "2--1", "1-0"} {
			x := c.Begin(t, c.Endpoint.Get, "", "Last-Event-Id: "+id)
			<-x.Done
			downstreamtest.Equal(t, "resumed from "+id, x.Text(), "400")
		}
		other := w.HTTPClient("")
		other.Initialize(t, mcp.Rev20251125)
		x := other.Begin(t, c.Endpoint.Get, "", "Last-Event-Id: 2-0")
		<-x.Done
		downstreamtest.Equal(t, "resumed from another session", x.Text(), "400")

		time.Sleep(3 * time.Minute)
		x = c.Begin(t, c.Endpoint.Get, "", "Last-Event-Id: 2-3")
		<-x.Done
		downstreamtest.Equal(t, "resumed long after its answer was delivered", x.Text(), "400")
		w.Close(t)
	})
}

func TestCallContinuesWithoutItsConnection(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(context.Context, *mcp.Message, proxy.Handler) string {
		time.Sleep(10 * time.Minute)
		return `{"late":1}`
	}}
	downstreamtest.Run(t, s, downstream.Limits{SessionIdle: time.Minute}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		c.Initialize(t, mcp.Rev20251125)
		x := c.Begin(t, c.Endpoint.Post, downstreamtest.Request(1, "tools/call", `{"name":"x"}`))
		time.Sleep(time.Second)
		x.Drop()
		<-x.Done
		time.Sleep(9 * time.Minute)
		resumed := c.Begin(t, c.Endpoint.Get, "", "Last-Event-Id: 2-0")
		<-resumed.Done
		downstreamtest.ContainsText(t, "resumed", resumed.Text(), `{"late":1}`)
	})
}

func TestMessagesOutsideOfCallsWaitForTheSessionStream(t *testing.T) {
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{ResumeEvents: 4},
		func(t *testing.T, w *downstreamtest.Gateway) {
			c := w.HTTPClient("")
			c.Initialize(t, mcp.Rev20251125)
			session := w.Server.Feed()
			answered := make(chan string, 1)
			go func() {
				a := session.HandleRequests(t.Context(),
					[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})[0].Message()
				answered <- string(a.Body())
			}()
			synctest.Wait()
			// Together with the request, these are more messages than ResumeEvents. The oldest
			// notifications are dropped. The request is kept.
			for i := range 6 {
				session.HandleNotification(t.Context(), mcp.NewNotification("notifications/message",
					fmt.Appendf(nil, `{"level":"info","data":%d}`, i)))
			}
			x := c.Begin(t, c.Endpoint.Get, "")
			synctest.Wait()
			log := func(n, i int) string {
				return fmt.Sprintf(
					"\n0-%d: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":%d}}", n, i)
			}
			downstreamtest.Equal(t, "the stream", x.Text(),
				"0-0:\n0-1: {\"jsonrpc\":\"2.0\",\"id\":\"gatekit-1\",\"method\":\"roots/list\"}"+
					log(5, 3)+log(6, 4)+log(7, 5))
			downstreamtest.Equal(t, "the answer", c.Post(t,
				`{"jsonrpc":"2.0","id":"gatekit-1","result":{"roots":[]}}`), "202")
			downstreamtest.Equal(t, "the server gets", <-answered, `{"roots":[]}`)

			second := c.Begin(t, c.Endpoint.Get, "")
			<-second.Done
			downstreamtest.Equal(t, "a second stream", second.Text(), "409")
			x.Drop()
			<-x.Done
			session.HandleNotification(t.Context(), mcp.NewNotification("notifications/message",
				[]byte(`{"level":"info","data":6}`)))
			third := c.Begin(t, c.Endpoint.Get, "")
			synctest.Wait()
			downstreamtest.Equal(t, "a stream after the first was lost", third.Text(),
				"0-7:"+log(8, 6))
			third.Drop()
			<-third.Done
		})
}

// TestReverseRequestOutsideOfCallsFindsAStream uses a server that asks a question outside of any
// call. Some servers send all questions outside of calls, because nothing in a question shows the
// call that caused it. The client must get the question on a stream that the client reads.
func TestReverseRequestOutsideOfCallsFindsAStream(t *testing.T) {
	const (
		question = `{"jsonrpc":"2.0","id":"gatekit-1","method":"roots/list"}`
		answer   = `{"jsonrpc":"2.0","id":"gatekit-1","result":{"roots":[]}}`
	)
	call := func(id int) string { return downstreamtest.Request(id, "tools/call", `{"name":"x"}`) }
	for _, c := range []struct {
		name          string
		before, after string // the requests of the client before and after the question
		want          string // the request whose reply contains the question
	}{
		{"two POSTs", "post 1, post 2", "", "post 2"},
		{"a POST, and a POST that accepts no stream", "post 1, json 2", "", "post 1"},
		{"a POST and a GET", "get 1, post 2", "", "get 1"},
		{"the next POST", "", "json 1, post 2", "post 2"},
		{"the next GET", "", "json 1, get 2", "get 2"},
		{"a POST after a GET that is gone", "get 1, drop 1, post 2", "", "post 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &downstreamtest.Server{Answer: func(context.Context, *mcp.Message,
				proxy.Handler) string {
				return ""
			}}
			downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T,
				w *downstreamtest.Gateway) {
				client := w.HTTPClient("")
				client.Initialize(t, mcp.Rev20250618)
				open := map[string]*downstreamtest.HTTPExchange{}
				begin := func(requests string) {
					for name := range strings.SplitSeq(requests, ", ") {
						var id int
						kind, _, _ := strings.Cut(name, " ")
						fmt.Sscanf(name, kind+" %d", &id)
						switch kind {
						case "post":
							open[name] = client.Begin(t, client.Endpoint.Post, call(id))
						case "json":
							open[name] = client.Begin(t, client.Endpoint.Post, call(id),
								"Accept: application/json")
						case "get":
							open[name] = client.Begin(t, client.Endpoint.Get, "")
						case "drop":
							open["get 1"].Drop()
							<-open["get 1"].Done
						}
						synctest.Wait()
					}
				}
				begin(c.before)
				answered := make(chan string, 1)
				go func() {
					a := w.Server.Feed().HandleRequests(t.Context(),
						[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})[0].Message()
					answered <- string(a.Body())
				}()
				synctest.Wait()
				begin(c.after)
				for name, x := range open {
					if got := strings.Contains(x.Text(), question); got != (name == c.want) {
						t.Errorf("%s got %q, want the question only on %s", name, x.Text(), c.want)
					}
				}
				downstreamtest.Equal(t, "the client's answer", client.Post(t, answer), "202")
				downstreamtest.Equal(t, "the server gets", <-answered, `{"roots":[]}`)
				for _, x := range open {
					x.Drop()
				}
			})
		})
	}
}

func TestReverseRequestsWaitForTheirTurn(t *testing.T) {
	limits := downstream.Limits{ReverseRequests: 2, ReverseTimeout: time.Minute}
	downstreamtest.Run(t, &downstreamtest.Server{}, limits, func(t *testing.T,
		w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		c.Initialize(t, mcp.Rev20251125)
		x := c.Begin(t, c.Endpoint.Get, "")
		answers := make(chan string, 3)
		ask := func(ctx context.Context) {
			a := w.Server.Feed().HandleRequests(ctx,
				[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})[0].Message()
			answers <- string(a.Body())
		}
		for range 3 {
			go ask(t.Context())
		}
		wantAsked := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := strings.Count(x.Text(), "roots/list"); n != want {
				t.Errorf("the client was asked %d times, want %d:\n%s", n, want, x.Text())
			}
		}
		wantAsked(2)
		c.Post(t, `{"jsonrpc":"2.0","id":"gatekit-2","result":{"roots":[]}}`)
		wantAsked(3)
		downstreamtest.Equal(t, "the server gets", <-answers, `{"roots":[]}`)
		// A request is not sent when the server no longer waits for its answer.
		ctx, cancel := context.WithCancel(t.Context())
		go ask(ctx)
		wantAsked(3)
		cancel()
		downstreamtest.ContainsText(t, "the server gets", <-answers, "could not be asked")
		// The time for an answer begins when the client gets the request.
		go ask(t.Context())
		time.Sleep(61 * time.Second)
		wantAsked(4)
		c.Post(t, `{"jsonrpc":"2.0","id":"gatekit-4","result":{"roots":[]}}`)
		synctest.Wait()
		x.Drop()
	})
}

func TestReverseRequestIsSentOnTheStreamOfItsCall(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		return string(c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest(
			"1", "roots/list", nil)})[0].Message().Body())
	}}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		c.Initialize(t, mcp.Rev20250326)
		x := c.Begin(t, c.Endpoint.Post, downstreamtest.Request(1, "resources/read", `{"uri":"x"}`))
		synctest.Wait()
		downstreamtest.Equal(t, "the reverse request", x.Text(),
			`2-1: {"jsonrpc":"2.0","id":"gatekit-1","method":"roots/list"}`)
		other := w.HTTPClient("")
		other.Initialize(t, mcp.Rev20250326)
		downstreamtest.Equal(t, "the answer of another session",
			other.Post(t, `{"jsonrpc":"2.0","id":"gatekit-1","result":{"roots":[{"uri":"file:///"}]}}`), "202")
		downstreamtest.Equal(t, "the answer", c.Post(t,
			`{"jsonrpc":"2.0","id":"gatekit-1","result":{"roots":[]}}`), "202")
		<-x.Done
		downstreamtest.ContainsText(t, "answer", x.Text(),
			`{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`+"\nEOF")
		downstreamtest.ContainsText(t, "a client that accepts no streams",
			c.Post(t, downstreamtest.Request(1, "resources/read", `{"uri":"x"}`),
				"Accept: application/json"),
			"cannot be asked")
	})
}

func TestReverseRequestOfAnAnsweredCallIsSentOnTheSessionStream(t *testing.T) {
	late := make(chan proxy.Handler, 1)
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		late <- c
		return `{}`
	}}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		c.Initialize(t, mcp.Rev20251125)
		downstreamtest.Equal(t, "the call", c.Post(t, downstreamtest.Request(1, "resources/read",
			`{"uri":"x"}`)),
			`200 {"jsonrpc":"2.0","id":1,"result":{}}`)
		answered := make(chan string, 1)
		go func() {
			a := (<-late).HandleRequests(t.Context(),
				[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})[0].Message()
			answered <- string(a.Body())
		}()
		x := c.Begin(t, c.Endpoint.Get, "")
		synctest.Wait()
		downstreamtest.Equal(t, "the stream", x.Text(),
			"0-0:\n0-1: {\"jsonrpc\":\"2.0\",\"id\":\"gatekit-1\",\"method\":\"roots/list\"}")
		downstreamtest.Equal(t, "the answer", c.Post(t,
			`{"jsonrpc":"2.0","id":"gatekit-1","result":{"roots":[]}}`), "202")
		downstreamtest.Equal(t, "the server gets", <-answered, `{"roots":[]}`)
		x.Drop()
		<-x.Done
	})
}

func TestServerCanCancelAReverseRequestOfAnAnsweredCall(t *testing.T) {
	late := make(chan proxy.Handler, 1)
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		late <- c
		return `{}`
	}}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		c.Initialize(t, mcp.Rev20251125)
		c.Post(t, downstreamtest.Request(1, "resources/read", `{"uri":"x"}`))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			(<-late).HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
		}()
		x := c.Begin(t, c.Endpoint.Get, "")
		synctest.Wait()
		cancel() // the server cancels its request
		<-done
		synctest.Wait()
		downstreamtest.ContainsText(t, "the stream", x.Text(),
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"gatekit-1"}}`)
		x.Drop()
		<-x.Done
	})
}

func TestABatchOverHTTP(t *testing.T) {
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		c.Initialize(t, mcp.Rev20250326)
		downstreamtest.Equal(t, "requests", c.Post(t, `[`+downstreamtest.Request(1,
			"tools/call", `{"name":"a"}`)+`,`+downstreamtest.Initialized+
			`,{"jsonrpc":"2.0","id":2,"method":"ping"}]`),
			`200 [{"jsonrpc":"2.0","id":1,"result":{"name":"a"}},{"jsonrpc":"2.0","id":2,"result":{}}]`)
		downstreamtest.Equal(t, "notifications", c.Post(t, `[`+downstreamtest.Cancelled(7)+`]`),
			`202`)
		downstreamtest.ContainsText(t, "without a session", w.HTTPClient("").Post(t,
			`[{"jsonrpc":"2.0","id":2,"method":"ping"}]`),
			`400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,`)
	})
}

func TestSessionsEnd(t *testing.T) {
	t.Run("when they were idle for long enough", func(t *testing.T) {
		downstreamtest.Run(t, &downstreamtest.Server{Answer: waitForCancel},
			downstream.Limits{SessionIdle: 10 * time.Minute},
			func(t *testing.T, w *downstreamtest.Gateway) {
				c := w.HTTPClient("")
				c.Initialize(t, mcp.Rev20251125)
				time.Sleep(9 * time.Minute)
				downstreamtest.ContainsText(t, "after 9 minutes",
					c.Post(t, downstreamtest.Request(1, "ping", `{}`)), "200")
				time.Sleep(9 * time.Minute)
				downstreamtest.ContainsText(t, "after 9 more minutes",
					c.Post(t, downstreamtest.Request(1, "ping", `{}`)), "200")
				x := c.Begin(t, c.Endpoint.Get, "")
				time.Sleep(time.Hour)
				downstreamtest.ContainsText(t, "after an hour with an open stream",
					c.Post(t, downstreamtest.Request(1, "ping", `{}`)), "200")
				x.Drop()
				<-x.Done
				time.Sleep(11 * time.Minute)
				downstreamtest.ContainsText(t, "after 11 minutes without the stream",
					c.Post(t, downstreamtest.Request(1, "ping", `{}`)), "404")
			})
	})
	t.Run("when there are too many sessions and this one was idle for longest", func(t *testing.T) {
		downstreamtest.Run(t, &downstreamtest.Server{Answer: waitForCancel},
			downstream.Limits{Sessions: 2},
			func(t *testing.T,
				w *downstreamtest.Gateway) {
				busy, idle, third := w.HTTPClient("a"), w.HTTPClient("b"), w.HTTPClient("c")
				busy.Initialize(t, mcp.Rev20251125)
				call := busy.Begin(t, busy.Endpoint.Post, downstreamtest.Request(1,
					"tools/call", `{"name":"x"}`))
				synctest.Wait()
				idle.Initialize(t, mcp.Rev20251125)
				time.Sleep(time.Second)
				third.Initialize(t, mcp.Rev20251125)
				downstreamtest.ContainsText(t, "the idle session",
					idle.Post(t, downstreamtest.Request(1, "ping", `{}`)), "404")
				downstreamtest.ContainsText(t, "the busy session",
					busy.Post(t, downstreamtest.Request(2, "ping", `{}`)), "200")
				stream := third.Begin(t, third.Endpoint.Get, "")
				synctest.Wait()
				downstreamtest.ContainsText(t, "initialize with the id of the ended session",
					idle.Post(t, downstreamtest.Initialize(mcp.Rev20251125)),
					"404")
				idle.Header.Del("Mcp-Session-Id")
				downstreamtest.ContainsText(t, "a further session when no session is idle",
					idle.Post(t, downstreamtest.Initialize(mcp.Rev20251125)),
					"503")
				downstreamtest.Equal(t, "the cancellation",
					busy.Post(t, downstreamtest.Cancelled(1)), "202")
				<-call.Done
				stream.Drop()
				<-stream.Done
			})
	})
	t.Run("together with their calls", func(t *testing.T) {
		s := &downstreamtest.Server{Answer: waitForCancel}
		downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T,
			w *downstreamtest.Gateway) {
			c := w.HTTPClient("")
			c.Initialize(t, mcp.Rev20251125)
			call := c.Begin(t, c.Endpoint.Post, downstreamtest.Request(1,
				"tools/call", `{"name":"x"}`))
			time.Sleep(time.Second)
			x := c.Begin(t, c.Endpoint.Delete, "")
			<-x.Done
			<-call.Done
			downstreamtest.Equal(t, "the call", call.Text(), "2-0:\nEOF")
			downstreamtest.ContainsText(t, "the server", strings.Join(s.Received(), "\n"),
				"ended tools/call")
		})
	})
	t.Run("together with calls whose reply has not begun", func(t *testing.T) {
		downstreamtest.Run(t, &downstreamtest.Server{Answer: waitForCancel}, downstream.Limits{},
			func(t *testing.T, w *downstreamtest.Gateway) {
				c := w.HTTPClient("")
				c.Initialize(t, mcp.Rev20250618)
				call := c.Begin(t, c.Endpoint.Post, downstreamtest.Request(1,
					"tools/call", `{"name":"x"}`))
				synctest.Wait()
				x := c.Begin(t, c.Endpoint.Delete, "")
				<-x.Done
				<-call.Done
				downstreamtest.Equal(t, "the call", call.Text(), "404")
			})
	})
	t.Run("but still count until their servers are closed", func(t *testing.T) {
		var s downstreamtest.Server
		downstreamtest.Run(t, &s, downstream.Limits{Sessions: 2}, func(t *testing.T,
			w *downstreamtest.Gateway) {
			s.HoldClose = make(chan struct{})
			for range 2 {
				c := w.HTTPClient("")
				c.Initialize(t, mcp.Rev20251125)
				x := c.Begin(t, c.Endpoint.Delete, "")
				<-x.Done
			}
			downstreamtest.ContainsText(t, "another session", w.HTTPClient("").Post(t,
				downstreamtest.Initialize(mcp.Rev20251125)), "503 ")
			close(s.HoldClose)
			synctest.Wait()
			w.HTTPClient("").Initialize(t, mcp.Rev20251125)
		})
	})
	t.Run("when their initialize failed", func(t *testing.T) {
		downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
			w *downstreamtest.Gateway) {
			w.Server.RefusesInitialize.Store(true)
			for _, accept := range []string{"application/json, text/event-stream",
				"text/event-stream, application/json", "application/json", "text/event-stream"} {
				c := w.HTTPClient("")
				x := c.Begin(t, c.Endpoint.Post, downstreamtest.Initialize(mcp.Rev20251125),
					"Accept: "+accept)
				<-x.Done
				downstreamtest.ContainsText(t, "initialize", x.Text(), "not now")
				// The session has ended, so the client gets no id.
				downstreamtest.Equal(t, "the session id", x.Header.Get("Mcp-Session-Id"), "")
			}
		})
	})
	t.Run("not when initialize fails after its stream has begun", func(t *testing.T) {
		// The client has the id of the session, and can send initialize again.
		var s downstreamtest.Server
		downstreamtest.Run(t, &s, downstream.Limits{}, func(t *testing.T,
			w *downstreamtest.Gateway) {
			hold := make(chan struct{}) // synctest demands a channel that the test made itself
			s.HoldInitialize = hold
			s.RefusesInitialize.Store(true)
			c := w.HTTPClient("")
			x := c.Begin(t, c.Endpoint.Post, downstreamtest.Initialize(mcp.Rev20251125))
			time.Sleep(3 * time.Second) // the reply has become a stream
			close(hold)
			<-x.Done
			downstreamtest.ContainsText(t, "initialize", x.Text(), "not now")
			c.Header.Set("Mcp-Session-Id", x.Header.Get("Mcp-Session-Id"))
			s.RefusesInitialize.Store(false)
			downstreamtest.ContainsText(t, "initialize again",
				c.Post(t, downstreamtest.Initialize(mcp.Rev20251125)), `"protocolVersion"`)
			downstreamtest.ContainsText(t, "a ping after initialize",
				c.Post(t, downstreamtest.Request(1, "ping", `{}`)), "200")
		})
	})
}

func TestModernRequestsOverHTTP(t *testing.T) {
	const v = "Mcp-Protocol-Version: 2026-07-28"
	list := downstreamtest.ModernRequest(1, "tools/list", "")
	call := downstreamtest.ModernRequest(1, "tools/call", `"name":"grün"`)
	fault := func(status, code int) string {
		return fmt.Sprintf(`%d {"jsonrpc":"2.0","id":1,"error":{"code":%d,`, status, code)
	}
	for _, c := range []struct {
		name    string
		send    string
		headers []string
		want    string
	}{
		{"all headers as required", list, []string{v, "Mcp-Method: tools/list"},
			`200 {"jsonrpc":"2.0","id":1,"result":{` + downstreamtest.ModernMeta + `}}`},
		{"a session id, which is ignored", list, []string{v, "Mcp-Method: tools/list",
			"Mcp-Session-Id: x"}, `200 {`},
		{"spaces around a value", list, []string{v, "Mcp-Method:   tools/list \t"}, `200 {`},
		{"a header twice with the same value", list, []string{v, v, "Mcp-Method: tools/list"}, `200 {`},
		{"a header twice with different values", list, []string{v, "Mcp-Method: tools/list",
			"Mcp-Method: tools/call"}, fault(400, -32020)},
		{"no method header", list, []string{v}, fault(400, -32020)},
		{"another method in the header", list, []string{v, "Mcp-Method: prompts/list"},
			fault(400, -32020)},
		{"the method in capital letters", list, []string{v, "Mcp-Method: TOOLS/LIST"},
			fault(400, -32020)},
		{"no version header", list, []string{"Mcp-Method: tools/list"}, fault(400, -32020)},
		{"a legacy version in the header", list, []string{"Mcp-Protocol-Version: 2025-11-25",
			"Mcp-Method: tools/list"}, fault(400, -32020)},
		{"an unknown version", strings.ReplaceAll(list, "2026-07-28", "v999.0.0"),
			[]string{"Mcp-Protocol-Version: v999.0.0", "Mcp-Method: tools/list"},
			fault(400, -32022) + `"message":"Unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"v999.0.0"}}}`},
		{"a version that differs from the header",
			strings.ReplaceAll(list, "2026-07-28", "v999.0.0"),
			[]string{v, "Mcp-Method: tools/list"}, fault(400, -32020)},
		{"no _meta", downstreamtest.Request(1, "tools/list", `{}`),
			[]string{v, "Mcp-Method: tools/list"},
			fault(400, -32602)},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			[]string{v, "Mcp-Method: tools/list"}, fault(400, -32602)},
		{"no _meta, and a wrong header", downstreamtest.Request(1, "tools/list", `{}`),
			[]string{v, "Mcp-Method: x"}, fault(400, -32602)},
		{"a method that this revision removed", downstreamtest.ModernRequest(1, "initialize", ""),
			[]string{v, "Mcp-Method: initialize"},
			fault(404, -32601)},
		{"an unknown method", downstreamtest.ModernRequest(1, "x/y", ""),
			[]string{v, "Mcp-Method: x/y"},
			fault(404, -32601)},
		{"a wrong header, and an unknown method", downstreamtest.ModernRequest(1, "x/y", ""),
			[]string{v, "Mcp-Method: x/z"}, fault(400, -32020)},
		{"a name that is not encoded", call, []string{v, "Mcp-Method: tools/call", "Mcp-Name: grün"}, `200 {`},
		{"an encoded name", call, []string{v, "Mcp-Method: tools/call",
			"Mcp-Name: =?base64?Z3LDvG4=?="}, `200 {`},
		{"an encoded name with BASE64 in the prefix", call, []string{v, "Mcp-Method: tools/call",
			"Mcp-Name: =?BASE64?Z3LDvG4=?="}, fault(400, -32020)},
		{"an encoded name with wrong padding", call, []string{v, "Mcp-Method: tools/call",
			"Mcp-Name: =?base64?Z3LDvG4?="}, fault(400, -32020)},
		{"another name in the header", call, []string{v, "Mcp-Method: tools/call", "Mcp-Name: x"},
			fault(400, -32020)},
		{"no name header", call, []string{v, "Mcp-Method: tools/call"}, fault(400, -32020)},
		{"no name in the header and in the body", downstreamtest.ModernRequest(1, "tools/call", ""),
			[]string{v, "Mcp-Method: tools/call"}, `200 {`},
		{"an error of the server", downstreamtest.ModernRequest(1, "tools/call", `"name":"-32602"`),
			[]string{v, "Mcp-Method: tools/call", "Mcp-Name: -32602"}, fault(200, -32602)},
		{"a server that has no such method", downstreamtest.ModernRequest(1,
			"tools/call", `"name":"-32601"`),
			[]string{v, "Mcp-Method: tools/call", "Mcp-Name: -32601"}, fault(404, -32601)},
		{"a server that wants a capability", downstreamtest.ModernRequest(1,
			"tools/call", `"name":"-32021"`),
			[]string{v, "Mcp-Method: tools/call", "Mcp-Name: -32021"}, fault(400, -32021)},
		{"a subscription of a client that accepts no streams",
			downstreamtest.ModernRequest(1, "subscriptions/listen", `"notifications":{}`),
			[]string{v, "Mcp-Method: subscriptions/listen", "Accept: application/json"},
			fault(400, -32600)},
		{"a cancellation, which is ignored", downstreamtest.Cancelled(1),
			[]string{v, "Mcp-Method: notifications/cancelled"}, `202`},
		{"a response", `{"jsonrpc":"2.0","id":1,"result":{}}`, []string{v}, `202`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &downstreamtest.Server{Answer: func(_ context.Context, m *mcp.Message,
				_ proxy.Handler) string {
				if name, _ := m.Text("/name"); strings.HasPrefix(name, "-") {
					return "!" + name + " no"
				}
				return string(m.Body())
			}}
			downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T,
				w *downstreamtest.Gateway) {
				got := w.HTTPClient("").Post(t, c.send, c.headers...)
				downstreamtest.ContainsText(t, "answer", "\n"+got, "\n"+c.want)
			})
		})
	}
}

func TestArgumentsMustEqualTheirHeaders(t *testing.T) {
	const tools = `{"tools":[{"name":"x","inputSchema":{"properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"n":{"type":"integer","x-mcp-header":"N"},
		"b":{"type":"boolean","x-mcp-header":"B"},
		"in/ner":{"properties":{"deep":{"type":"string","x-mcp-header":"Deep"}}},
		"list":{"items":{"properties":{"no":{"x-mcp-header":"No"}}}}}}},
		{"name":"y","inputSchema":{}}]}`
	for _, c := range []struct {
		name, args string
		headers    []string
		ok         bool
	}{
		{"equal values", `{"region":"eu","n":3,"b":true,"in/ner":{"deep":"d"}}`,
			[]string{"Mcp-Param-Region: eu", "Mcp-Param-N: 3", "Mcp-Param-B: true",
				"Mcp-Param-Deep: d"}, true},
		{"no arguments", `{}`, nil, true},
		{"null, which needs no header", `{"region":null}`, nil, true},
		{"an encoded value", `{"region":"Hello"}`, []string{"Mcp-Param-Region: =?base64?SGVsbG8=?="}, true},
		{"a value without the suffix ?= is literal", `{"region":"=?base64?SGVsbG8="}`,
			[]string{"Mcp-Param-Region: =?base64?SGVsbG8="}, true},
		{"an encoded value with wrong padding", `{"region":"Hello"}`, []string{"Mcp-Param-Region: =?base64?SGVsbG8?="},
			false},
		{"an encoded value that is not base64", `{"region":"Hello"}`, []string{"Mcp-Param-Region: =?base64?SGVs!!!bG8=?="},
			false},
		{"an equal number in another notation", `{"n":3.0}`, []string{"Mcp-Param-N: 3"}, true},
		{"another number", `{"n":3}`, []string{"Mcp-Param-N: 4"}, false},
		{"different numbers that are equal as float64", `{"n":9007199254740993}`,
			[]string{"Mcp-Param-N: 9007199254740992"}, false},
		{"another value", `{"region":"eu"}`, []string{"Mcp-Param-Region: us"}, false},
		{"a missing header", `{"region":"eu"}`, nil, false},
		{"a missing header of a nested argument", `{"in/ner":{"deep":"d"}}`, nil, false},
		{"a header whose argument is missing", `{}`, []string{"Mcp-Param-Region: eu"}, false},
		{"a header twice with different values", `{"region":"eu"}`, []string{"Mcp-Param-Region: eu",
			"Mcp-Param-Region: us"}, false},
		{"a header that the tool does not define", `{}`, []string{"Mcp-Param-Other: x"}, true},
		{"a header for an argument in an array, which is ignored", `{}`,
			[]string{"Mcp-Param-No: x"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &downstreamtest.Server{Answer: func(_ context.Context, m *mcp.Message,
				_ proxy.Handler) string {
				if m.Method == "tools/list" {
					return tools
				}
				return "{}"
			}}
			downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T,
				w *downstreamtest.Gateway) {
				h := w.HTTPClient("")
				call := downstreamtest.ModernRequest(1, "tools/call", `"name":"x","arguments":`+
					c.args)
				x := h.BeginModern(t, "tools/call", "x", call)
				<-x.Done
				downstreamtest.ContainsText(t, "before any list", x.Text(), "200 ")
				x = h.BeginModern(t, "tools/list", "", downstreamtest.ModernRequest(1,
					"tools/list", ""))
				<-x.Done
				x = h.BeginModern(t, "tools/call", "x", call, c.headers...)
				<-x.Done
				want := "200 "
				if !c.ok {
					want = `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32020,`
				}
				downstreamtest.ContainsText(t, "after the list", x.Text(), want)
			})
		})
	}
}

func TestModernClientsMayUseTheSameIDs(t *testing.T) {
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				name := fmt.Sprint("c", n)
				x := w.HTTPClient("").BeginModern(t, "tools/call", name,
					downstreamtest.ModernRequest(1, "tools/call", `"name":"`+name+`"`))
				<-x.Done
				downstreamtest.ContainsText(t, "answer", x.Text(),
					`200 {"jsonrpc":"2.0","id":1,"result":{"name":"`+
						name+`"`)
			})
		}
		all.Wait()
		if n := len(w.Server.Opened); n != 1 {
			t.Errorf("one principal opened the server %d times, want once", n)
		}
	})
}

func TestModernRequestIsCancelledWhenItsConnectionCloses(t *testing.T) {
	s := &downstreamtest.Server{Answer: waitForCancel}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		x := w.HTTPClient("").BeginModern(t, "tools/call", "x", downstreamtest.ModernRequest(1,
			"tools/call", `"name":"x"`))
		synctest.Wait()
		x.Drop()
		<-x.Done
		synctest.Wait()
		downstreamtest.ContainsText(t, "the server", strings.Join(s.Received(), "\n"),
			"ended tools/call")
	})
}

func TestSubscriptionKeepsTheClientsID(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		const with = `"_meta":{"io.modelcontextprotocol/subscriptionId":`
		c.HandleNotification(ctx, mcp.NewNotification("notifications/subscriptions/acknowledged",
			[]byte(`{"notifications":{},`+with+string(m.ID())+`}}`)))
		return `{"resultType":"complete",` + with + string(m.ID()) + `}}`
	}}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		x := w.HTTPClient("").BeginModern(t, "subscriptions/listen", "",
			downstreamtest.ModernRequest(`"mine"`,
				"subscriptions/listen", `"notifications":{}`))
		<-x.Done
		text := x.Text()
		if n := strings.Count(text, `"io.modelcontextprotocol/subscriptionId":"mine"`); n < 1 ||
			strings.Count(text, "subscriptionId") != n {
			t.Errorf("got %s, want the subscription id \"mine\" everywhere", text)
		}
		downstreamtest.ContainsText(t, "the first event", text,
			`: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"`)
	})
}

func TestPrincipalsShareNothing(t *testing.T) {
	s := &downstreamtest.Server{}
	downstreamtest.Run(t, s, downstream.Limits{SessionIdle: time.Minute}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		for _, principal := range []string{"ann", "bob", "ann"} {
			x := w.HTTPClient(principal).BeginModern(t, "tools/list", "",
				downstreamtest.ModernRequest(1, "tools/list", ""))
			<-x.Done
		}
		if len(s.Opened) != 2 || s.Opened[0].Principal.ID() != "ann" ||
			s.Opened[1].Principal.ID() != "bob" {
			t.Errorf("the server was opened for %v, want once for ann and once for bob", s.Opened)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s.Closed != 2 {
			t.Errorf("%d idle servers were closed, want 2", s.Closed)
		}
	})
}

// TestStreamsEndWithTheAuthentication opens every kind of stream with a token that expires.
func TestStreamsEndWithTheAuthentication(t *testing.T) {
	s := &downstreamtest.Server{}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		release := make(chan struct{}) // made here, so that waiting for it lets the clock advance
		s.Answer = func(ctx context.Context, m *mcp.Message, _ proxy.Handler) string {
			switch m.Method {
			case "tools/call":
				select {
				case <-release:
				case <-ctx.Done():
				}
			case "subscriptions/listen":
				<-ctx.Done()
			}
			return `{}`
		}
		c := w.HTTPClient("ann")
		c.Initialize(t, mcp.Rev20251125)
		start := time.Now()
		c.StreamsEnd = start.Add(10 * time.Second)
		call := downstreamtest.Request(1, "tools/call", `{"name":"x"}`)
		streams := map[string]*downstreamtest.HTTPExchange{
			"the stream of a session": c.Begin(t, c.Endpoint.Get, ""),
			"the stream of a call":    c.Begin(t, c.Endpoint.Post, call),
			"a subscription": c.BeginModern(t, "subscriptions/listen", "",
				downstreamtest.ModernRequest(2, "subscriptions/listen", `"notifications":{}`)),
		}
		modernCall := c.BeginModern(t, "tools/call", "x", downstreamtest.ModernRequest(1,
			"tools/call", `"name":"x"`))
		synctest.Wait()
		for name, x := range streams {
			select {
			case <-x.Done:
				t.Errorf("%s ended before the authentication", name)
			default:
			}
		}
		for name, x := range streams {
			<-x.Done
			if lasted := time.Since(start); lasted != 10*time.Second {
				t.Errorf("%s lasted %v, want until the authentication ends: 10s", name, lasted)
			}
		}
		synctest.Wait()
		select {
		case <-modernCall.Done:
			t.Error("a call ended with the authentication, want that it goes on")
		default:
		}
		close(release)
		<-modernCall.Done
		c.StreamsEnd = time.Time{}
		downstreamtest.ContainsText(t, "the session with a new token",
			c.Post(t, downstreamtest.Request(3, "ping", `{}`)), `"result"`)
	})
}

// TestRequestCarriesThePrincipalOfItsToken sends requests of one session with different tokens of
// one user, in both eras.
func TestRequestCarriesThePrincipalOfItsToken(t *testing.T) {
	var seen []string
	s := &downstreamtest.Server{Answer: func(_ context.Context, m *mcp.Message,
		_ proxy.Handler) string {
		if m.Method == "tools/call" {
			seen = append(seen, m.Principal.ID()+" "+strings.Join(m.Principal.Scopes(), ","))
		}
		return `{}`
	}}
	token := func(scope string) *identity.Principal {
		p, err := identity.New(identity.Attributes{Method: identity.JWT, Subject: "ann",
			Issuer: "https://login.example", Scopes: []string{scope}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		c.Principal = token("old")
		c.Initialize(t, mcp.Rev20251125)
		for _, scope := range []string{"old", "new"} {
			c.Principal = token(scope)
			downstreamtest.ContainsText(t, "a call with the token "+scope,
				c.Post(t, downstreamtest.Request(1, "tools/call", `{"name":"x"}`)), `"result"`)
			<-c.BeginModern(t, "tools/call", "x", downstreamtest.ModernRequest(1, "tools/call",
				`"name":"x"`)).Done
		}
		want := []string{"https://login.example#ann old", "https://login.example#ann old",
			"https://login.example#ann new", "https://login.example#ann new"}
		if !slices.Equal(seen, want) {
			t.Errorf("the server saw %q, want %q", seen, want)
		}
	})
}

// TestOtherPrincipalsSessionLooksUnknown compares the answers to a session of another principal and
// to a session that does not exist.
func TestOtherPrincipalsSessionLooksUnknown(t *testing.T) {
	s := &downstreamtest.Server{}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		ann, anonymous := w.HTTPClient("ann"), w.HTTPClient("")
		ann.Initialize(t, mcp.Rev20251125)
		anonymous.Initialize(t, mcp.Rev20251125)
		id := func(c *downstreamtest.HTTPClient) string { return c.Header.Get("Mcp-Session-Id") }
		for _, tt := range []struct{ name, principal, session string }{
			{"a session of ann", "bob", id(ann)},
			{"a session of ann, without a token", "", id(ann)},
			{"an anonymous session, with a token", "ann", id(anonymous)},
		} {
			for method, serve := range map[string]func(context.Context, downstream.HTTPRequest,
				downstream.Reply){"POST": w.Endpoint.Post, "GET": w.Endpoint.Get,
				"DELETE": w.Endpoint.Delete} {
				answer := func(session string) string {
					c := w.HTTPClient(tt.principal)
					c.Header.Set("Mcp-Session-Id", session)
					x := c.Begin(t, serve, downstreamtest.Request(1, "tools/list", `{}`),
						"Last-Event-ID: 0-1")
					<-x.Done
					return x.Text()
				}
				foreign, unknown := answer(tt.session), answer("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
				if foreign != unknown || !strings.Contains(foreign, "404") {
					t.Errorf("%s: %s got %q, want 404 and the bytes for an unknown session, %q",
						tt.name, method, foreign, unknown)
				}
			}
		}
		downstreamtest.ContainsText(t, "ann's session afterwards",
			ann.Post(t, downstreamtest.Request(1, "ping", `{}`)), `"result"`)
	})
}

func TestCloseEndsSessionsAndCalls(t *testing.T) {
	s := &downstreamtest.Server{Answer: waitForCancel}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		c.Initialize(t, mcp.Rev20251125)
		open := []*downstreamtest.HTTPExchange{
			c.Begin(t, c.Endpoint.Get, ""),
			c.Begin(t, c.Endpoint.Post, downstreamtest.Request(1, "tools/call", `{"name":"x"}`)),
			c.BeginModern(t, "tools/call", "x", downstreamtest.ModernRequest(1,
				"tools/call", `"name":"x"`)),
			c.BeginModern(t, "subscriptions/listen", "", downstreamtest.ModernRequest(2,
				"subscriptions/listen",
				`"notifications":{}`)),
		}
		synctest.Wait()
		if err := c.Endpoint.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for _, x := range open {
			<-x.Done
		}
		downstreamtest.ContainsText(t, "a request after Close",
			c.Post(t, downstreamtest.Request(1, "ping", `{}`)), "404")
		c.Header.Del("Mcp-Session-Id")
		downstreamtest.ContainsText(t, "initialize after Close",
			c.Post(t, downstreamtest.Initialize(mcp.Rev20251125)), "503")
	})
}

func TestSlowReaderGetsEveryMessage(t *testing.T) {
	const n = 2000
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		for i := range n {
			c.HandleNotification(ctx, mcp.NewNotification("notifications/progress",
				fmt.Appendf(nil, `{"progressToken":1,"progress":%d}`, i)))
		}
		return `{}`
	}}
	downstreamtest.Run(t, s, downstream.Limits{ResumeEvents: 8}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		c := w.HTTPClient("")
		c.Initialize(t, mcp.Rev20251125)
		text := c.Post(t, downstreamtest.Request(1,
			"tools/call", `{"name":"x","_meta":{"progressToken":1}}`))
		if got := strings.Count(text, "notifications/progress"); got != n {
			t.Errorf("%d notifications arrived, want %d", got, n)
		}
		downstreamtest.ContainsText(t, "the end", text,
			fmt.Sprintf("2-%d: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nEOF", n+1))
	})
}
