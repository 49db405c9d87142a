package downstream_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

func waits(context.Context, *mcp.Message, proxy.Handler) string { return "" }

func TestASessionOverHTTP(t *testing.T) {
	inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
		c := w.client("ann")
		c.initialize(t, mcp.Rev20250618)
		id := c.header.Get("Mcp-Session-Id")
		params := `{"name":"x","arguments":{"n":1.0,"big":12345678901234567890}}`
		for _, step := range []struct{ name, got, want string }{
			{"a call", c.post(t, request(`"1"`, "tools/call", params)),
				`200 {"jsonrpc":"2.0","id":"1","result":` + params + `}`},
			{"a ping", c.post(t, request(2, "ping", `{}`)),
				`200 {"jsonrpc":"2.0","id":2,"result":{}}`},
			{"its revision in the header", c.post(t, request(2, "ping", `{}`),
				"Mcp-Protocol-Version: 2025-06-18"), `200 {"jsonrpc":"2.0","id":2,"result":{}}`},
			{"a revision that is none", c.post(t, request(2, "ping", `{}`),
				"Mcp-Protocol-Version: 1999-01-01"),
				`400 {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"Mcp-Protocol-Version \"1999-01-01\" is no revision of a session"}}`},
			{"an answer that nobody waits for", c.post(t, `{"jsonrpc":"2.0","id":1,"result":{}}`),
				`202`},
			{"initialize again", c.post(t, initialize(mcp.Rev20250618)),
				`200 {"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"the session is initialized already, or has ended"}}`},
			{"no JSON", c.post(t, `{`), ``},
			{"a batch", c.post(t, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`), ``},
		} {
			if step.want == "" {
				step.want, step.got = "400 ", step.got[:4]
			}
			equal(t, step.name, step.got, step.want)
		}
		unknown := `404 {"jsonrpc":"2.0","id":3,"error":{"code":-32600,"message":"no such session: send initialize"}}`
		bob := w.client("bob")
		bob.header.Set("Mcp-Session-Id", id)
		equal(t, "another principal", bob.post(t, request(3, "ping", `{}`)), unknown)
		bob.header.Set("Mcp-Session-Id", "guess")
		equal(t, "an unknown session", bob.post(t, request(3, "ping", `{}`)), unknown)
		bob.header.Del("Mcp-Session-Id")
		contains(t, "no session", bob.post(t, request(3, "ping", `{}`)),
			`400 {"jsonrpc":"2.0","id":3,"error":{"code":-32600,`)

		feed := c.begin(t, c.front.Get, "")
		synctest.Wait()
		x := c.begin(t, c.front.Delete, "")
		<-x.done
		equal(t, "DELETE", x.text(), "204")
		<-feed.done
		equal(t, "the session's stream", feed.text(), "EOF")
		equal(t, "after DELETE", c.post(t, request(3, "ping", `{}`)), unknown)
		for _, row := range w.record.rows {
			if strings.Contains(row, id) {
				t.Errorf("the id of the session is in the record: %s", row)
			}
		}
	})
}

func TestGetAndDeleteWithoutASessionAreNotAllowed(t *testing.T) {
	inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
		c := w.client("")
		for _, serve := range []func(context.Context, downstream.HTTPRequest,
			downstream.Reply){c.front.Get, c.front.Delete} {
			x := c.begin(t, serve, "")
			<-x.done
			equal(t, "answer", x.text(), "405")
		}
	})
}

func TestAnAnswerIsAStreamWhenSomethingComesBeforeIt(t *testing.T) {
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
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
			inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
				h := w.client("")
				h.initialize(t, c.revision)
				equal(t, "answer", h.post(t, request(1, "prompts/get", `{"name":"x"}`)), c.want)
				equal(t, "to a client that takes no streams",
					h.post(t, request(1, "prompts/get", `{"name":"x"}`),
						"Accept: application/json"), `200 {"jsonrpc":"2.0","id":1,"result":{}}`)
			})
		})
	}
	t.Run("over HTTP without a session", func(t *testing.T) {
		inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
			x := w.client("").modernPost(t, "prompts/get", "x", modern(`"a"`,
				"prompts/get", `"name":"x"`))
			<-x.done
			equal(t, "answer", x.text(), ": "+log(0)+"\n: "+log(1)+"\n: "+log(2)+
				"\n: {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}\nEOF")
		})
	})
}

func TestAClientThatNamesStreamsFirstGetsThem(t *testing.T) {
	const first = "Accept: text/event-stream, application/json"
	inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
		c := w.client("")
		c.initialize(t, mcp.Rev20251125)
		equal(t, "with a session", c.post(t, request(1, "ping", `{}`), first),
			"2-0:\n2-1: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nEOF")
		x := w.client("").modernPost(t, "prompts/get", "x", modern(1, "prompts/get", `"name":"x"`),
			first)
		<-x.done
		contains(t, "without", x.text(), ": {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{")
		x = w.client("").modernPost(t, "ping", "", modern(1, "ping", ""), first)
		<-x.done
		contains(t, "an error keeps its status", x.text(), "404 ")
	})
}

func TestACallThatIsSilentForLongBecomesAStream(t *testing.T) {
	s := &server{answer: func(context.Context, *mcp.Message,
		proxy.Handler) string {
		time.Sleep(time.Minute)
		return `{}`
	}}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		c := w.client("")
		c.initialize(t, mcp.Rev20250618)
		equal(t, "with a session", c.post(t, request(1, "prompts/get", `{"name":"x"}`)),
			"2-1: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nEOF")
		x := w.client("").modernPost(t, "prompts/get", "x", modern(1, "prompts/get", `"name":"x"`))
		<-x.done
		equal(t, "without", x.text(), ": {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nEOF")
	})
}

func TestALostStreamIsResumedWhereItWasAndNoOtherIs(t *testing.T) {
	next := map[string]chan string{"a": make(chan string), "b": make(chan string)}
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
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
		w := newWorld(t, s, downstream.Limits{})
		c := w.client("")
		c.initialize(t, mcp.Rev20251125)
		c.header.Set("Accept", "text/event-stream, application/json")
		a := c.begin(t, c.front.Post, request(1, "tools/call", `{"name":"a"}`))
		synctest.Wait()
		b := c.begin(t, c.front.Post, request(2, "tools/call", `{"name":"b"}`))
		time.Sleep(time.Second)
		equal(t, "a stream begins soon", a.text(), "2-0:")
		next["a"] <- "1"
		next["b"] <- "1"
		synctest.Wait()
		contains(t, "the first stream", a.text(),
			`2-1: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"a1"}}`)

		a.drop()
		<-a.done
		next["a"] <- "2"
		next["b"] <- "2"
		resumed := c.begin(t, c.front.Get, "", "Last-Event-Id: 2-0")
		synctest.Wait()
		next["a"] <- "3"
		synctest.Wait()
		want := "2-0:"
		for i := 1; i <= 3; i++ {
			want += fmt.Sprintf(
				"\n2-%d: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"a%d\"}}", i, i)
		}
		equal(t, "resumed from its start", resumed.text(), want)
		again := c.begin(t, c.front.Get, "", "Last-Event-Id: 2-2")
		<-resumed.done
		equal(t, "the connection that was replaced", resumed.text(), want+"\nEOF")
		next["a"] <- "done"
		<-again.done
		last := `2-3: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"a3"}}` + "\n" + `2-4: {"jsonrpc":"2.0","id":1,"result":{"done":"a"}}` + "\nEOF"
		equal(t, "resumed from its middle", again.text(), "2-2:\n"+last)
		finished := c.begin(t, c.front.Get, "", "Last-Event-Id: 2-3")
		<-finished.done
		equal(t, "when it has ended", finished.text(), "2-3:\n"+last[strings.Index(last, "\n")+1:])
		next["b"] <- "done"
		<-b.done
		contains(t, "the other stream", b.text(),
			"3-3: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"done\":\"b\"}}\nEOF")

		for _, id := range []string{"9-1", "2", "x-1", "2-x", "2--1", "1-0"} {
			x := c.begin(t, c.front.Get, "", "Last-Event-Id: "+id)
			<-x.done
			equal(t, "resumed from "+id, x.text(), "400")
		}
		other := w.client("")
		other.initialize(t, mcp.Rev20251125)
		x := other.begin(t, c.front.Get, "", "Last-Event-Id: 2-0")
		<-x.done
		equal(t, "resumed from another session", x.text(), "400")

		time.Sleep(3 * time.Minute)
		x = c.begin(t, c.front.Get, "", "Last-Event-Id: 2-3")
		<-x.done
		equal(t, "when it was delivered long ago", x.text(), "400")
		w.close(t)
	})
}

func TestACallGoesOnWithoutItsConnection(t *testing.T) {
	s := &server{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
		time.Sleep(10 * time.Minute)
		return `{"late":1}`
	}}
	inBubble(t, s, downstream.Limits{SessionIdle: time.Minute}, func(t *testing.T, w *world) {
		c := w.client("")
		c.initialize(t, mcp.Rev20251125)
		x := c.begin(t, c.front.Post, request(1, "tools/call", `{"name":"x"}`))
		time.Sleep(time.Second)
		x.drop()
		<-x.done
		time.Sleep(9 * time.Minute)
		resumed := c.begin(t, c.front.Get, "", "Last-Event-Id: 2-0")
		<-resumed.done
		contains(t, "resumed", resumed.text(), `{"late":1}`)
	})
}

func TestWhatBelongsToNoCallWaitsForTheStream(t *testing.T) {
	inBubble(t, &server{}, downstream.Limits{ResumeEvents: 4}, func(t *testing.T, w *world) {
		c := w.client("")
		c.initialize(t, mcp.Rev20251125)
		feed := w.server.feed()
		answered := make(chan string, 1)
		go func() {
			a := feed.HandleRequests(t.Context(),
				[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})[0].Message()
			answered <- string(a.Body())
		}()
		synctest.Wait()
		// more than are kept: the oldest notifications go, not what somebody waits for
		for i := range 6 {
			feed.HandleNotification(t.Context(), mcp.NewNotification("notifications/message",
				fmt.Appendf(nil, `{"level":"info","data":%d}`, i)))
		}
		x := c.begin(t, c.front.Get, "")
		synctest.Wait()
		log := func(n, i int) string {
			return fmt.Sprintf(
				"\n0-%d: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":%d}}", n, i)
		}
		equal(t, "the stream", x.text(),
			"0-0:\n0-1: {\"jsonrpc\":\"2.0\",\"id\":\"gatekit-1\",\"method\":\"roots/list\"}"+log(5,
				3)+log(6, 4)+log(7, 5))
		equal(t, "the answer", c.post(t,
			`{"jsonrpc":"2.0","id":"gatekit-1","result":{"roots":[]}}`), "202")
		equal(t, "the server gets", <-answered, `{"roots":[]}`)

		second := c.begin(t, c.front.Get, "")
		<-second.done
		equal(t, "a second stream", second.text(), "409")
		x.drop()
		<-x.done
		feed.HandleNotification(t.Context(), mcp.NewNotification("notifications/message",
			[]byte(`{"level":"info","data":6}`)))
		third := c.begin(t, c.front.Get, "")
		synctest.Wait()
		equal(t, "a stream after the first was lost", third.text(), "0-7:"+log(8, 6))
		third.drop()
		<-third.done
	})
}

func TestReverseRequestsGoOnTheStreamOfTheirCall(t *testing.T) {
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		return string(c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest(
			"1", "roots/list", nil)})[0].Message().Body())
	}}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		c := w.client("")
		c.initialize(t, mcp.Rev20250326)
		x := c.begin(t, c.front.Post, request(1, "resources/read", `{"uri":"x"}`))
		synctest.Wait()
		equal(t, "asked", x.text(), `2-1: {"jsonrpc":"2.0","id":"gatekit-1","method":"roots/list"}`)
		stranger := w.client("")
		stranger.initialize(t, mcp.Rev20250326)
		equal(t, "a stranger's answer",
			stranger.post(t, `{"jsonrpc":"2.0","id":"gatekit-1","result":{"roots":[{"uri":"file:///"}]}}`), "202")
		equal(t, "the answer", c.post(t,
			`{"jsonrpc":"2.0","id":"gatekit-1","result":{"roots":[]}}`), "202")
		<-x.done
		contains(t, "answer", x.text(), `{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`+"\nEOF")
		contains(t, "a client that takes no streams",
			c.post(t, request(1, "resources/read", `{"uri":"x"}`), "Accept: application/json"),
			"cannot be asked")
	})
}

func TestAReverseRequestWhoseCallHasBeenAnsweredGoesOnTheStreamWithoutACall(t *testing.T) {
	late := make(chan proxy.Handler, 1)
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		late <- c
		return `{}`
	}}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		c := w.client("")
		c.initialize(t, mcp.Rev20251125)
		equal(t, "the call", c.post(t, request(1, "resources/read", `{"uri":"x"}`)),
			`200 {"jsonrpc":"2.0","id":1,"result":{}}`)
		answered := make(chan string, 1)
		go func() {
			a := (<-late).HandleRequests(t.Context(),
				[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})[0].Message()
			answered <- string(a.Body())
		}()
		x := c.begin(t, c.front.Get, "")
		synctest.Wait()
		equal(t, "the stream", x.text(),
			"0-0:\n0-1: {\"jsonrpc\":\"2.0\",\"id\":\"gatekit-1\",\"method\":\"roots/list\"}")
		equal(t, "the answer", c.post(t,
			`{"jsonrpc":"2.0","id":"gatekit-1","result":{"roots":[]}}`), "202")
		equal(t, "the server gets", <-answered, `{"roots":[]}`)
		x.drop()
		<-x.done
	})
}

func TestAReverseRequestThatIsWithdrawnAfterItsCallIsWithdrawnWhereItWasPut(t *testing.T) {
	late := make(chan proxy.Handler, 1)
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		late <- c
		return `{}`
	}}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		c := w.client("")
		c.initialize(t, mcp.Rev20251125)
		c.post(t, request(1, "resources/read", `{"uri":"x"}`))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			(<-late).HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
		}()
		x := c.begin(t, c.front.Get, "")
		synctest.Wait()
		cancel() // the server has cancelled its request
		<-done
		synctest.Wait()
		contains(t, "the stream", x.text(),
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"gatekit-1"}}`)
		x.drop()
		<-x.done
	})
}

func TestABatchOverHTTP(t *testing.T) {
	inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
		c := w.client("")
		c.initialize(t, mcp.Rev20250326)
		equal(t, "requests", c.post(t, `[`+request(1, "tools/call", `{"name":"a"}`)+`,`+initialized+
			`,{"jsonrpc":"2.0","id":2,"method":"ping"}]`),
			`200 [{"jsonrpc":"2.0","id":1,"result":{"name":"a"}},{"jsonrpc":"2.0","id":2,"result":{}}]`)
		equal(t, "notifications", c.post(t, `[`+cancelled(7)+`]`), `202`)
		contains(t, "without a session", w.client("").post(t,
			`[{"jsonrpc":"2.0","id":2,"method":"ping"}]`),
			`400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,`)
	})
}

func TestSessionsEnd(t *testing.T) {
	t.Run("when nobody has used them for long enough", func(t *testing.T) {
		inBubble(t, &server{answer: waits}, downstream.Limits{SessionIdle: 10 * time.Minute},
			func(t *testing.T, w *world) {
				c := w.client("")
				c.initialize(t, mcp.Rev20251125)
				time.Sleep(9 * time.Minute)
				contains(t, "after 9 minutes", c.post(t, request(1, "ping", `{}`)), "200")
				time.Sleep(9 * time.Minute)
				contains(t, "after 9 more", c.post(t, request(1, "ping", `{}`)), "200")
				x := c.begin(t, c.front.Get, "")
				time.Sleep(time.Hour)
				contains(t, "after an hour with an open stream",
					c.post(t, request(1, "ping", `{}`)), "200")
				x.drop()
				<-x.done
				time.Sleep(11 * time.Minute)
				contains(t, "after 11", c.post(t, request(1, "ping", `{}`)), "404")
			})
	})
	t.Run("the one that was idle for longest, when there are too many", func(t *testing.T) {
		inBubble(t, &server{answer: waits}, downstream.Limits{Sessions: 2}, func(t *testing.T,
			w *world) {
			busy, idle, third := w.client("a"), w.client("b"), w.client("c")
			busy.initialize(t, mcp.Rev20251125)
			call := busy.begin(t, busy.front.Post, request(1, "tools/call", `{"name":"x"}`))
			synctest.Wait()
			idle.initialize(t, mcp.Rev20251125)
			time.Sleep(time.Second)
			third.initialize(t, mcp.Rev20251125)
			contains(t, "the idle one", idle.post(t, request(1, "ping", `{}`)), "404")
			contains(t, "the busy one", busy.post(t, request(2, "ping", `{}`)), "200")
			stream := third.begin(t, third.front.Get, "")
			synctest.Wait()
			// its header names a session that is gone
			contains(t, "one more when none is idle", idle.post(t, initialize(mcp.Rev20251125)),
				"404")
			idle.header.Del("Mcp-Session-Id")
			contains(t, "one more when none is idle", idle.post(t, initialize(mcp.Rev20251125)),
				"503")
			equal(t, "cancelled", busy.post(t, cancelled(1)), "202")
			<-call.done
			stream.drop()
			<-stream.done
		})
	})
	t.Run("and with them their calls", func(t *testing.T) {
		s := &server{answer: waits}
		inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
			c := w.client("")
			c.initialize(t, mcp.Rev20251125)
			call := c.begin(t, c.front.Post, request(1, "tools/call", `{"name":"x"}`))
			time.Sleep(time.Second)
			x := c.begin(t, c.front.Delete, "")
			<-x.done
			<-call.done
			equal(t, "the call", call.text(), "2-0:\nEOF")
			contains(t, "the server", strings.Join(s.seen(), "\n"), "ended tools/call")
		})
	})
	t.Run("and their calls of which nothing was said", func(t *testing.T) {
		inBubble(t, &server{answer: waits}, downstream.Limits{}, func(t *testing.T, w *world) {
			c := w.client("")
			c.initialize(t, mcp.Rev20250618)
			call := c.begin(t, c.front.Post, request(1, "tools/call", `{"name":"x"}`))
			synctest.Wait()
			x := c.begin(t, c.front.Delete, "")
			<-x.done
			<-call.done
			equal(t, "the call", call.text(), "404")
		})
	})
	t.Run("and count until their servers have", func(t *testing.T) {
		var s server
		inBubble(t, &s, downstream.Limits{Sessions: 2}, func(t *testing.T, w *world) {
			s.stays = make(chan struct{})
			for range 2 {
				c := w.client("")
				c.initialize(t, mcp.Rev20251125)
				x := c.begin(t, c.front.Delete, "")
				<-x.done
			}
			contains(t, "another", w.client("").post(t, initialize(mcp.Rev20251125)), "503 ")
			close(s.stays)
			synctest.Wait()
			w.client("").initialize(t, mcp.Rev20251125)
		})
	})
	t.Run("when their initialize failed", func(t *testing.T) {
		inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
			w.server.cold.Store(true)
			c := w.client("")
			x := c.begin(t, c.front.Post, initialize(mcp.Rev20251125))
			<-x.done
			contains(t, "initialize", x.text(), "200 ")
			c.header = x.header
			contains(t, "after it", c.post(t, request(1, "ping", `{}`)), "404")
		})
	})
}

func TestModernRequestsOverHTTP(t *testing.T) {
	const v = "Mcp-Protocol-Version: 2026-07-28"
	list := modern(1, "tools/list", "")
	call := modern(1, "tools/call", `"name":"grün"`)
	fault := func(status, code int) string {
		return fmt.Sprintf(`%d {"jsonrpc":"2.0","id":1,"error":{"code":%d,`, status, code)
	}
	for _, c := range []struct {
		name    string
		send    string
		headers []string
		want    string
	}{
		{"all is well", list, []string{v, "Mcp-Method: tools/list"},
			`200 {"jsonrpc":"2.0","id":1,"result":{` + modernMeta + `}}`},
		{"a session id is not looked at", list, []string{v, "Mcp-Method: tools/list",
			"Mcp-Session-Id: x"}, `200 {`},
		{"blanks around a value", list, []string{v, "Mcp-Method:   tools/list \t"}, `200 {`},
		{"a header twice, the same", list, []string{v, v, "Mcp-Method: tools/list"}, `200 {`},
		{"a header twice, not the same", list, []string{v, "Mcp-Method: tools/list",
			"Mcp-Method: tools/call"}, fault(400, -32020)},
		{"no method header", list, []string{v}, fault(400, -32020)},
		{"another method in the header", list, []string{v, "Mcp-Method: prompts/list"},
			fault(400, -32020)},
		{"another case", list, []string{v, "Mcp-Method: TOOLS/LIST"}, fault(400, -32020)},
		{"no version header", list, []string{"Mcp-Method: tools/list"}, fault(400, -32020)},
		{"a legacy version in the header", list, []string{"Mcp-Protocol-Version: 2025-11-25",
			"Mcp-Method: tools/list"}, fault(400, -32020)},
		{"a version that nobody knows", strings.ReplaceAll(list, "2026-07-28", "v999.0.0"),
			[]string{"Mcp-Protocol-Version: v999.0.0", "Mcp-Method: tools/list"},
			fault(400, -32022) + `"message":"Unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"v999.0.0"}}}`},
		{"one that differs from the header", strings.ReplaceAll(list, "2026-07-28", "v999.0.0"),
			[]string{v, "Mcp-Method: tools/list"}, fault(400, -32020)},
		{"no _meta", request(1, "tools/list", `{}`), []string{v, "Mcp-Method: tools/list"},
			fault(400, -32602)},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			[]string{v, "Mcp-Method: tools/list"}, fault(400, -32602)},
		{"no _meta before a wrong header", request(1, "tools/list", `{}`),
			[]string{v, "Mcp-Method: x"}, fault(400, -32602)},
		{"a removed method", modern(1, "initialize", ""), []string{v, "Mcp-Method: initialize"},
			fault(404, -32601)},
		{"an unknown method", modern(1, "x/y", ""), []string{v, "Mcp-Method: x/y"},
			fault(404, -32601)},
		{"a wrong header before an unknown method", modern(1, "x/y", ""),
			[]string{v, "Mcp-Method: x/z"}, fault(400, -32020)},
		{"a name as it is", call, []string{v, "Mcp-Method: tools/call", "Mcp-Name: grün"}, `200 {`},
		{"a name encoded", call, []string{v, "Mcp-Method: tools/call",
			"Mcp-Name: =?base64?Z3LDvG4=?="}, `200 {`},
		{"a name with other capitals in the marker", call, []string{v, "Mcp-Method: tools/call",
			"Mcp-Name: =?BASE64?Z3LDvG4=?="}, fault(400, -32020)},
		{"a name badly padded", call, []string{v, "Mcp-Method: tools/call",
			"Mcp-Name: =?base64?Z3LDvG4?="}, fault(400, -32020)},
		{"another name", call, []string{v, "Mcp-Method: tools/call", "Mcp-Name: x"},
			fault(400, -32020)},
		{"no name", call, []string{v, "Mcp-Method: tools/call"}, fault(400, -32020)},
		{"no name in the body either", modern(1, "tools/call", ""),
			[]string{v, "Mcp-Method: tools/call"}, `200 {`},
		{"a server's error", modern(1, "tools/call", `"name":"-32602"`),
			[]string{v, "Mcp-Method: tools/call", "Mcp-Name: -32602"}, fault(200, -32602)},
		{"a server that has no such method", modern(1, "tools/call", `"name":"-32601"`),
			[]string{v, "Mcp-Method: tools/call", "Mcp-Name: -32601"}, fault(404, -32601)},
		{"a server that wants a capability", modern(1, "tools/call", `"name":"-32021"`),
			[]string{v, "Mcp-Method: tools/call", "Mcp-Name: -32021"}, fault(400, -32021)},
		{"a subscription without streams", modern(1, "subscriptions/listen", `"notifications":{}`),
			[]string{v, "Mcp-Method: subscriptions/listen", "Accept: application/json"},
			fault(400, -32600)},
		{"a cancellation, which closing the connection is", cancelled(1),
			[]string{v, "Mcp-Method: notifications/cancelled"}, `202`},
		{"a response", `{"jsonrpc":"2.0","id":1,"result":{}}`, []string{v}, `202`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
				if name, _ := m.Text("/name"); strings.HasPrefix(name, "-") {
					return "!" + name + " no"
				}
				return string(m.Body())
			}}
			inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
				got := w.client("").post(t, c.send, c.headers...)
				contains(t, "answer", "\n"+got, "\n"+c.want)
			})
		})
	}
}

func TestArgumentsAreHeldAgainstTheirHeaders(t *testing.T) {
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
		{"as they are", `{"region":"eu","n":3,"b":true,"in/ner":{"deep":"d"}}`,
			[]string{"Mcp-Param-Region: eu", "Mcp-Param-N: 3", "Mcp-Param-B: true",
				"Mcp-Param-Deep: d"}, true},
		{"none", `{}`, nil, true},
		{"null is none", `{"region":null}`, nil, true},
		{"encoded", `{"region":"Hello"}`, []string{"Mcp-Param-Region: =?base64?SGVsbG8=?="}, true},
		{"without the marker's end it is literal", `{"region":"=?base64?SGVsbG8="}`,
			[]string{"Mcp-Param-Region: =?base64?SGVsbG8="}, true},
		{"badly padded", `{"region":"Hello"}`, []string{"Mcp-Param-Region: =?base64?SGVsbG8?="},
			false},
		{"not base64", `{"region":"Hello"}`, []string{"Mcp-Param-Region: =?base64?SGVs!!!bG8=?="},
			false},
		{"numbers are compared as such", `{"n":3.0}`, []string{"Mcp-Param-N: 3"}, true},
		{"another number", `{"n":3}`, []string{"Mcp-Param-N: 4"}, false},
		{"big numbers that floats would take for one", `{"n":9007199254740993}`,
			[]string{"Mcp-Param-N: 9007199254740992"}, false},
		{"another value", `{"region":"eu"}`, []string{"Mcp-Param-Region: us"}, false},
		{"missing", `{"region":"eu"}`, nil, false},
		{"missing, deep down", `{"in/ner":{"deep":"d"}}`, nil, false},
		{"there, and not in the body", `{}`, []string{"Mcp-Param-Region: eu"}, false},
		{"twice, not the same", `{"region":"eu"}`, []string{"Mcp-Param-Region: eu",
			"Mcp-Param-Region: us"}, false},
		{"one that the tool does not know", `{}`, []string{"Mcp-Param-Other: x"}, true},
		{"one that items lead to", `{}`, []string{"Mcp-Param-No: x"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
				if m.Method == "tools/list" {
					return tools
				}
				return "{}"
			}}
			inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
				h := w.client("")
				call := modern(1, "tools/call", `"name":"x","arguments":`+c.args)
				x := h.modernPost(t, "tools/call", "x", call)
				<-x.done
				contains(t, "before any list", x.text(), "200 ")
				x = h.modernPost(t, "tools/list", "", modern(1, "tools/list", ""))
				<-x.done
				x = h.modernPost(t, "tools/call", "x", call, c.headers...)
				<-x.done
				want := "200 "
				if !c.ok {
					want = `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32020,`
				}
				contains(t, "after the list", x.text(), want)
			})
		})
	}
}

func TestModernClientsThatAllCountFromOne(t *testing.T) {
	inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				name := fmt.Sprint("c", n)
				x := w.client("").modernPost(t, "tools/call", name,
					modern(1, "tools/call", `"name":"`+name+`"`))
				<-x.done
				contains(t, "answer", x.text(), `200 {"jsonrpc":"2.0","id":1,"result":{"name":"`+
					name+`"`)
			})
		}
		all.Wait()
		if n := len(w.server.openings); n != 1 {
			t.Errorf("one principal opened the server %d times", n)
		}
	})
}

func TestADroppedModernRequestIsCancelled(t *testing.T) {
	s := &server{answer: waits}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		x := w.client("").modernPost(t, "tools/call", "x", modern(1, "tools/call", `"name":"x"`))
		synctest.Wait()
		x.drop()
		<-x.done
		synctest.Wait()
		contains(t, "the server", strings.Join(s.seen(), "\n"), "ended tools/call")
	})
}

func TestASubscriptionHasTheClientsId(t *testing.T) {
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		const with = `"_meta":{"io.modelcontextprotocol/subscriptionId":`
		c.HandleNotification(ctx, mcp.NewNotification("notifications/subscriptions/acknowledged",
			[]byte(`{"notifications":{},`+with+string(m.ID())+`}}`)))
		return `{"resultType":"complete",` + with + string(m.ID()) + `}}`
	}}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		x := w.client("").modernPost(t, "subscriptions/listen", "", modern(`"mine"`,
			"subscriptions/listen", `"notifications":{}`))
		<-x.done
		text := x.text()
		if n := strings.Count(text, `"io.modelcontextprotocol/subscriptionId":"mine"`); n < 1 ||
			strings.Count(text, "subscriptionId") != n {
			t.Errorf("the subscription has another id: %s", text)
		}
		contains(t, "the first event", text,
			`: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"`)
	})
}

func TestPrincipalsShareNothing(t *testing.T) {
	s := &server{}
	inBubble(t, s, downstream.Limits{SessionIdle: time.Minute}, func(t *testing.T, w *world) {
		for _, who := range []string{"ann", "bob", "ann"} {
			x := w.client(who).modernPost(t, "tools/list", "", modern(1, "tools/list", ""))
			<-x.done
		}
		if len(s.openings) != 2 || s.openings[0].Principal != "ann" ||
			s.openings[1].Principal != "bob" {
			t.Errorf("opened for %v", s.openings)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s.closed != 2 {
			t.Errorf("%d of 2 servers were closed when nobody used them", s.closed)
		}
	})
}

func TestClosingTheFrontEndsWhatIsOpen(t *testing.T) {
	s := &server{answer: waits}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		c := w.client("")
		c.initialize(t, mcp.Rev20251125)
		open := []*exchange{
			c.begin(t, c.front.Get, ""),
			c.begin(t, c.front.Post, request(1, "tools/call", `{"name":"x"}`)),
			c.modernPost(t, "tools/call", "x", modern(1, "tools/call", `"name":"x"`)),
			c.modernPost(t, "subscriptions/listen", "", modern(2, "subscriptions/listen",
				`"notifications":{}`)),
		}
		synctest.Wait()
		if err := c.front.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for _, x := range open {
			<-x.done
		}
		contains(t, "a session after it", c.post(t, request(1, "ping", `{}`)), "404")
		c.header.Del("Mcp-Session-Id")
		contains(t, "initialize after it", c.post(t, initialize(mcp.Rev20251125)), "503")
	})
}

func TestAReaderThatIsSlowLosesNothing(t *testing.T) {
	const n = 2000
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		for i := range n {
			c.HandleNotification(ctx, mcp.NewNotification("notifications/progress",
				fmt.Appendf(nil, `{"progressToken":1,"progress":%d}`, i)))
		}
		return `{}`
	}}
	inBubble(t, s, downstream.Limits{ResumeEvents: 8}, func(t *testing.T, w *world) {
		c := w.client("")
		c.initialize(t, mcp.Rev20251125)
		text := c.post(t, request(1, "tools/call", `{"name":"x","_meta":{"progressToken":1}}`))
		if got := strings.Count(text, "notifications/progress"); got != n {
			t.Errorf("%d of %d notifications arrived", got, n)
		}
		contains(t, "the end", text,
			fmt.Sprintf("2-%d: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nEOF", n+1))
	})
}
