package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// acknowledgeAndNotify returns the answer function of a fakeServer that acknowledges the filter,
// sends the notifications and keeps the subscription open.
func acknowledgeAndNotify(notifications ...string) func(context.Context, *mcp.Message,
	proxy.Handler) string {
	return func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		if m.Method != "subscriptions/listen" {
			return "!-32601 no"
		}
		filter, _ := m.Get("/notifications")
		tag := `{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID()) + `}`
		c.HandleNotification(ctx, mcp.NewNotification("notifications/subscriptions/acknowledged",
			[]byte(tag+`,"notifications":`+string(filter)+`}`)))
		for _, n := range notifications {
			c.HandleNotification(ctx, mcp.NewNotification(n, []byte(tag+`,"uri":"f:///x"}`)))
		}
		return ""
	}
}

func TestSubscriptionGetsNotificationsOfAllServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeServer{answer: acknowledgeAndNotify("notifications/resources/updated")}
		slow := &fakeServer{answer: func(ctx context.Context, m *mcp.Message,
			c proxy.Handler) string {
			if m.Method == "subscriptions/listen" {
				time.Sleep(3 * time.Second)
			}
			return acknowledgeAndNotify()(ctx, m, c)
		}}
		none := &fakeServer{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
			return "!-32601 no"
		}}
		w := open(t, map[string]*fakeServer{"a": a, "b": slow, "c": none}, nil)
		done := make(chan pipeline.Passed)
		go func() {
			done <- w.session.Call(t.Context(), request(t, `"L"`, "subscriptions/listen",
				`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a+f:///x","b+f:///y","nobody:///z"]}}`), w.client)
		}()
		synctest.Wait()
		equal(t, "notifications before the acknowledgement", len(w.client.received()), 0)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		equal(t, "the client got", strings.Join(w.client.received(), "\n"),
			`notifications/subscriptions/acknowledged {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},`+
				`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a+f:///x","b+f:///y"]}}`+"\n"+
				`notifications/resources/updated {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},"uri":"a+f:///x"}`)
		equal(t, "server a got", slices.Sorted(slices.Values(a.seen())),
			[]string{`resources/list {}`, `resources/templates/list {}`,
				`subscriptions/listen {"notifications":{"toolsListChanged":true,"resourceSubscriptions":["f:///x"]}}`})
		go w.session.Close()
		equal(t, "the answer at the end", answerText(t, `"L"`, <-done),
			`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}`)
	})
}

// TestListChangeIsHeldBack uses a server that sends many notifications before the client has its
// acknowledgement, and then changes of a list.
func TestListChangeIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := slices.Repeat([]string{"notifications/resources/updated"}, 300)
		sent = append(sent, "notifications/tools/list_changed", "notifications/tools/list_changed")
		slow := &fakeServer{answer: func(ctx context.Context, m *mcp.Message,
			c proxy.Handler) string {
			if m.Method == "subscriptions/listen" {
				time.Sleep(3 * time.Second)
			}
			return acknowledgeAndNotify()(ctx, m, c)
		}}
		busy := &fakeServer{answer: acknowledgeAndNotify(sent...)}
		w := open(t, map[string]*fakeServer{"a": busy, "b": slow}, nil)
		go w.session.Call(t.Context(), request(t, "1", "subscriptions/listen",
			`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a+f:///x"]}}`),
			w.client)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		changes := 0
		for _, n := range w.client.received() {
			if strings.HasPrefix(n, "notifications/tools/list_changed ") {
				changes++
			}
		}
		equal(t, "changes of the list that the client got", changes, 1)
		w.session.Close()
	})
}

func TestSubscriptionOutlivesServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := 0
		a := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			if times++; times == 1 {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				acknowledgeAndNotify()(ctx, m, c)
				return "dead"
			}
			return acknowledgeAndNotify()(ctx, m, c)
		}}
		w := open(t, map[string]*fakeServer{"a": a}, nil)
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan pipeline.Passed)
		go func() {
			done <- w.session.Call(ctx, request(t, "1", "subscriptions/listen",
				`{"notifications":{"toolsListChanged":true}}`), w.client)
		}()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		equal(t, "the client got", strings.Join(w.client.received(), "\n"), strings.Join([]string{
			`notifications/subscriptions/acknowledged {"_meta":{"io.modelcontextprotocol/subscriptionId":1},"notifications":{"toolsListChanged":true}}`,
			`notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`}, "\n"))
		leave()
		equal(t, "the answer at the end", answerText(t, "1", <-done), "nothing")
	})
}

func TestSubscriptionIsRepeatedAfterAStageHadNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var works atomic.Bool
		a := &fakeServer{answer: acknowledgeAndNotify()}
		w := open(t, map[string]*fakeServer{"a": a}, nil, pipeline.StageConfig{Name: "unsteady",
			Stage: failingStage(func(m *mcp.Message) (pipeline.Verdict, error) {
				if !works.Load() && m.Method == "subscriptions/listen" {
					return pipeline.Verdict{}, errors.New("broken")
				}
				return pipeline.Verdict{Action: pipeline.Allow}, nil
			})})
		subscribe(t, w, `{"toolsListChanged":true}`)
		equal(t, "messages that the server got while the stage failed", len(a.seen()), 0)
		w.record.expect(t, "deny to_server request subscriptions/listen a")
		works.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(t, "messages that the server got", len(a.seen()), 1)
		w.session.Close()
	})
}

func TestSubscriptionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, map[string]*fakeServer{"a": {answer: acknowledgeAndNotify()}},
			func(o *proxy.Options) { o.Limits.Subscriptions = 1 })
		go w.session.Call(t.Context(), request(t, "1", "subscriptions/listen",
			`{"notifications":{"toolsListChanged":true}}`), w.client)
		synctest.Wait()
		equal(t, "another subscription", w.call(t, "subscriptions/listen", `{"notifications":{}}`),
			"!-32603 too many subscriptions are open: end a subscription, then try again")
		w.session.Close()
	})
}

// subscribe opens a subscription and returns six seconds later, when the servers' time for their
// acknowledgements is over. The channel gets the answer when the subscription ends.
func subscribe(t *testing.T, w *fixture, filter string) (answer <-chan pipeline.Passed) {
	t.Helper()
	done := make(chan pipeline.Passed, 1)
	go func() {
		done <- w.session.Call(context.Background(), request(t, `"L"`, "subscriptions/listen",
			`{"notifications":`+filter+`}`), w.client)
	}()
	time.Sleep(6 * time.Second)
	synctest.Wait()
	return done
}

func TestSubscriptionForwardsOnlyWantedNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			c.HandleNotification(ctx,
				mcp.NewNotification("notifications/subscriptions/acknowledged",
					[]byte(`{"notifications":{"toolsListChanged":true,"promptsListChanged":true,`+
						`"resourceSubscriptions":["f:///x","f:///never-asked"],"taskIds":["never-asked"]}}`)))
			for _, n := range []string{"tools/list_changed", "prompts/list_changed",
				"resources/list_changed", "resources/updated", "tasks", "progress"} {
				c.HandleNotification(ctx, mcp.NewNotification("notifications/"+n,
					[]byte(`{"uri":"f:///x/below","taskId":"t"}`)))
			}
			return ""
		}}
		b := &fakeServer{answer: acknowledgeAndNotify("notifications/resources/updated")}
		w := open(t, map[string]*fakeServer{"a": a, "b": b}, nil)
		subscribe(t, w, `{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["A+f:///x","a__f:///y"]}`)
		equal(t, "the client got", strings.Join(w.client.received(), "\n"), strings.Join([]string{
			`notifications/subscriptions/acknowledged {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},"notifications":{"toolsListChanged":true,"resourceSubscriptions":["A+f:///x"]}}`,
			`notifications/tools/list_changed {"uri":"f:///x/below","taskId":"t"}`,
			`notifications/resources/updated {"uri":"a+f:///x/below","taskId":"t"}`,
		}, "\n"))
		w.record.expect(t, "drop to_client notification notifications/prompts/list_changed a",
			"drop to_client notification notifications/resources/updated b f:///x")
		w.session.Close()
	})
}

// TestSubscriptionWithoutPrefixForwardsOnlyWantedNotifications does the same as
// TestSubscriptionForwardsOnlyWantedNotifications, for names without prefixes.
func TestSubscriptionWithoutPrefixForwardsOnlyWantedNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			c.HandleNotification(ctx,
				mcp.NewNotification("notifications/subscriptions/acknowledged",
					[]byte(`{"notifications":{"toolsListChanged":true,"promptsListChanged":true}}`)))
			for _, n := range []string{"tools/list_changed", "prompts/list_changed",
				"resources/list_changed", "tasks"} {
				c.HandleNotification(ctx, mcp.NewNotification("notifications/"+n,
					[]byte(`{"taskId":"t"}`)))
			}
			for _, uri := range []string{"f:///x", "f:///x/below", "f:///other"} {
				c.HandleNotification(ctx, mcp.NewNotification("notifications/resources/updated",
					[]byte(`{"uri":"`+uri+`"}`)))
			}
			return ""
		}}
		w := open(t, map[string]*fakeServer{"a": a},
			func(o *proxy.Options) { o.Naming.Prefix = "never" })
		subscribe(t, w, `{"toolsListChanged":true,"resourceSubscriptions":["f:///x"]}`)
		equal(t, "the client got", strings.Join(w.client.received(), "\n"), strings.Join([]string{
			`notifications/subscriptions/acknowledged {"notifications":{"toolsListChanged":true,"promptsListChanged":true}}`,
			`notifications/tools/list_changed {"taskId":"t"}`,
			`notifications/resources/updated {"uri":"f:///x"}`,
			`notifications/resources/updated {"uri":"f:///x/below"}`,
		}, "\n"))
		w.record.expect(t, "drop to_client notification notifications/prompts/list_changed a",
			"drop to_client notification notifications/resources/updated a f:///other")
		w.session.Close()
	})
}

func TestEmptySubscriptionIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeServer{answer: acknowledgeAndNotify()}
		w := open(t, map[string]*fakeServer{"a": a, "b": {answer: acknowledgeAndNotify()}}, nil)
		done := subscribe(t, w, `{"resourceSubscriptions":["nobody:///x",7],"taskIds":"x"}`)
		equal(t, "the client got", w.client.received(),
			[]string{`notifications/subscriptions/acknowledged {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},"notifications":{}}`})
		equal(t, "the server got", slices.Sorted(slices.Values(a.seen())),
			[]string{`resources/list {}`, `resources/templates/list {}`})
		equal(t, "answers so far", len(done), 0)
		w.session.Close()
	})
}

func TestSubscriptionToTooManyItemsIsRefused(t *testing.T) {
	w := open(t, map[string]*fakeServer{"a": {answer: acknowledgeAndNotify()}}, nil)
	uris := strings.Repeat(`"a+f:///x",`, 1000) + `"a+f:///y"`
	equal(t, "answer", w.call(t, "subscriptions/listen",
		`{"notifications":{"resourceSubscriptions":[`+uris+`]}}`),
		"!-32602 more than 1000 resources and tasks in one subscription: open several")
}

func TestSubscriptionDuringReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := &fakeServer{answer: acknowledgeAndNotify()},
			&fakeServer{answer: acknowledgeAndNotify()}, &fakeServer{answer: acknowledgeAndNotify()}
		w := open(t, map[string]*fakeServer{"a": a, "b": b}, nil)
		subscribe(t, w, `{"toolsListChanged":true}`)
		before := len(w.client.received())
		o := w.options
		o.Servers = []proxy.ServerConfig{{Name: "a", Upstream: a}, {Name: "c", Upstream: c}}
		if err := w.proxy.Apply(o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		equal(t, "messages that server a got", len(a.seen()), 1)
		equal(t, "messages that the removed server b got", len(b.seen()), 1)
		equal(t, "the new server c got", c.seen(),
			[]string{`subscriptions/listen {"notifications":{"toolsListChanged":true}}`})
		equal(t, "the client got", w.client.received()[before:],
			[]string{`notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}`})
		w.session.Close()
	})
}

// A server that is replaced while subscriptions begin may acknowledge at once. Its acknowledgement
// counts, so no subscription waits until the time for acknowledgements is over. Many servers and
// repetitions make it likely that a server is replaced at the moment that matters.
func TestSubscriptionsThatBeginDuringReloadAreAcknowledgedAtOnce(t *testing.T) {
	const count = 4
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			all, replaced := map[string]*fakeServer{}, []proxy.ServerConfig(nil)
			for i := range 100 {
				all[fmt.Sprintf("s%d", i)] = &fakeServer{answer: acknowledgeAndNotify()}
				replaced = append(replaced, proxy.ServerConfig{Name: fmt.Sprintf("s%d", i),
					Upstream: &fakeServer{answer: acknowledgeAndNotify()}})
			}
			w := open(t, all, nil)
			o := w.options
			o.Servers = replaced
			for i := range count {
				if i == 1 {
					go w.proxy.Apply(o)
				}
				go w.session.Call(t.Context(), request(t, fmt.Sprint(i), "subscriptions/listen",
					`{"notifications":{"promptsListChanged":true}}`), w.client)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			acknowledged := 0
			for _, n := range w.client.received() {
				if strings.HasPrefix(n, "notifications/subscriptions/acknowledged") {
					acknowledged++
				}
			}
			equal(t, "acknowledgements after a second", acknowledged, count)
			w.session.Close()
		})
	}
}

func TestReopenedSubscriptionUsesCurrentPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		a := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			acknowledgeAndNotify()(ctx, m, c)
			<-end
			return "dead"
		}}
		w := open(t, map[string]*fakeServer{"a": a}, nil)
		subscribe(t, w, `{"toolsListChanged":true}`)
		o := w.options
		o.Pipeline = pipeline.New(w.record, pipeline.Options{}, denyMethods("subscriptions/listen"))
		if err := w.proxy.Apply(o); err != nil {
			t.Fatal(err)
		}
		close(end)
		time.Sleep(time.Hour)
		synctest.Wait()
		equal(t, "messages that the server got", len(a.seen()), 1)
		w.record.expect(t, "deny to_server request subscriptions/listen a")
		w.session.Close()
	})
}

func TestMissedChangesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := 0
		a := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			times++
			first := times == 1
			acknowledgeAndNotify()(ctx, m, c)
			if first {
				time.Sleep(10 * time.Second)
				return "dead"
			}
			return ""
		}}
		b := &fakeServer{answer: acknowledgeAndNotify()}
		w := open(t, map[string]*fakeServer{"a": a, "b": b}, nil)
		subscribe(t, w, `{"toolsListChanged":true,"resourceSubscriptions":["a+f:///x","b+f:///y"]}`)
		before := len(w.client.received())
		time.Sleep(time.Minute)
		synctest.Wait()
		got := strings.Join(w.client.received()[before:], "\n")
		equal(t, "the client got", got, strings.Join([]string{
			`notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}`,
			`notifications/resources/updated {"uri":"a+f:///x","_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}`,
		}, "\n"))
		w.session.Close()
	})
}

func TestSubscriptionWithoutPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			c.HandleNotification(ctx,
				mcp.NewNotification("notifications/subscriptions/acknowledged",
					[]byte(`{ "notifications":{"toolsListChanged":true,"new":1.0}}`)))
			c.HandleNotification(ctx, mcp.NewNotification("notifications/tools/list_changed",
				[]byte(`{ }`)))
			return ""
		}}
		w := open(t, map[string]*fakeServer{"a": a}, withoutPrefix)
		subscribe(t, w, `{"toolsListChanged":true, "promptsListChanged":true}`)
		if err := w.proxy.Apply(w.options); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, "the server got", a.seen(),
			[]string{`subscriptions/listen {"notifications":{"toolsListChanged":true, "promptsListChanged":true}}`})
		equal(t, "the client got", strings.Join(w.client.received(), "\n"), strings.Join([]string{
			`notifications/subscriptions/acknowledged { "notifications":{"toolsListChanged":true,"new":1.0}}`,
			`notifications/tools/list_changed { }`,
			`notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}`,
		}, "\n"))
		w.session.Close()
	})
}

// TestUpdatesOfOtherResourcesAreDropped checks that a legacy client gets only updates of resources
// that it has subscribed to. The client cannot subscribe to more than 1,000 resources.
func TestUpdatesOfOtherResourcesAreDropped(t *testing.T) {
	const updated = "notifications/resources/updated"
	a := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, h proxy.Handler) string {
		switch m.Method {
		case "initialize":
			return `{"protocolVersion":"2025-11-25","capabilities":{"resources":{},"tools":{}}}`
		case "tools/call":
			for _, uri := range []string{"f:///other", "f:///x", "f:///x/below"} {
				h.HandleNotification(ctx, mcp.NewNotification(updated, []byte(`{"uri":"`+uri+`"}`)))
			}
		}
		return `{}`
	}}
	w := open(t, map[string]*fakeServer{"a": a}, nil)
	w.call(t, "initialize", initializeParams)
	w.call(t, "resources/subscribe", `{"uri":"a+f:///x"}`)
	w.call(t, "tools/call", `{"name":"a__x"}`)
	var got []string
	for _, n := range w.client.received() {
		if strings.HasPrefix(n, updated) {
			got = append(got, n)
		}
	}
	if want := []string{updated + ` {"uri":"a+f:///x"}`,
		updated + ` {"uri":"a+f:///x/below"}`}; !slices.Equal(got, want) {
		t.Errorf("the client got %q, want %q", got, want)
	}
	for i := range 999 {
		if got := w.call(t, "resources/subscribe", fmt.Sprintf(`{"uri":"a+g:///%d"}`,
			i)); strings.HasPrefix(got, "!") {
			t.Fatalf("subscription %d: got %s, want a result", i, got)
		}
	}
	if got := w.call(t, "resources/subscribe", `{"uri":"a+h:///x"}`); !strings.HasPrefix(got, "!") {
		t.Errorf("the 1,001st subscription: got %s, want an error", got)
	}
}
