package proxy_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// listening acknowledges its filter, sends news and stays open.
func listening(news ...string) func(context.Context, *mcp.Message, proxy.Handler) string {
	return func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		filter, _ := m.Get("/notifications")
		tag := `{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID()) + `}`
		c.HandleNotification(ctx, mcp.NewNotification("notifications/subscriptions/acknowledged",
			[]byte(tag+`,"notifications":`+string(filter)+`}`)))
		for _, n := range news {
			c.HandleNotification(ctx, mcp.NewNotification(n, []byte(tag+`,"uri":"f:///x"}`)))
		}
		return ""
	}
}

func TestASubscriptionIsFedByEveryServerThatItConcerns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &server{answer: listening("notifications/resources/updated")}
		slow := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			time.Sleep(3 * time.Second)
			return listening()(ctx, m, c)
		}}
		none := &server{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
			return "!-32601 no"
		}}
		w := open(t, map[string]*server{"a": a, "b": slow, "c": none}, nil)
		done := make(chan pipeline.Passed)
		go func() {
			done <- w.session.Call(t.Context(), request(t, `"L"`, "subscriptions/listen",
				`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a+f:///x","b+f:///y","nobody:///z"]}}`), w.client)
		}()
		synctest.Wait()
		equal(t, "before the acknowledgement", len(w.client.heard()), 0)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		equal(t, "told", strings.Join(w.client.heard(), "\n"),
			`notifications/subscriptions/acknowledged {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},`+
				`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a+f:///x","b+f:///y"]}}`+"\n"+
				`notifications/resources/updated {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},"uri":"a+f:///x"}`)
		equal(t, "a was asked", a.seen(),
			[]string{`subscriptions/listen {"notifications":{"toolsListChanged":true,"resourceSubscriptions":["f:///x"]}}`})
		go w.session.Close()
		equal(t, "the end", show(t, `"L"`, <-done),
			`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}`)
	})
}

func TestASubscriptionOutlivesAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := 0
		a := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			if times++; times == 1 {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				listening()(ctx, m, c)
				return "dead"
			}
			return listening()(ctx, m, c)
		}}
		w := open(t, map[string]*server{"a": a}, nil)
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan pipeline.Passed)
		go func() {
			done <- w.session.Call(ctx, request(t, "1", "subscriptions/listen",
				`{"notifications":{"toolsListChanged":true}}`), w.client)
		}()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		equal(t, "told", strings.Join(w.client.heard(), "\n"), strings.Join([]string{
			`notifications/subscriptions/acknowledged {"_meta":{"io.modelcontextprotocol/subscriptionId":1},"notifications":{"toolsListChanged":true}}`,
			`notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`}, "\n"))
		leave()
		equal(t, "the end", show(t, "1", <-done), "nothing")
	})
}

func TestSubscriptionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, map[string]*server{"a": {answer: listening()}},
			func(o *proxy.Options) { o.Limits.Subscriptions = 1 })
		go w.session.Call(t.Context(), request(t, "1", "subscriptions/listen",
			`{"notifications":{"toolsListChanged":true}}`), w.client)
		synctest.Wait()
		equal(t, "one more", w.call(t, "subscriptions/listen", `{"notifications":{}}`),
			"!-32603 too many subscriptions are open: end one, then try again")
		w.session.Close()
	})
}

// subscribe opens a subscription and answers when the client has its acknowledgement, or when
// servers had the time for theirs.
func subscribe(t *testing.T, w *world, filter string) (answer <-chan pipeline.Passed) {
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

func TestASubscriptionTellsOnlyWhatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
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
		b := &server{answer: listening("notifications/resources/updated")}
		w := open(t, map[string]*server{"a": a, "b": b}, nil)
		subscribe(t, w, `{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["A+f:///x","a__f:///y"]}`)
		equal(t, "told", strings.Join(w.client.heard(), "\n"), strings.Join([]string{
			`notifications/subscriptions/acknowledged {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},"notifications":{"toolsListChanged":true,"resourceSubscriptions":["A+f:///x"]}}`,
			`notifications/tools/list_changed {"uri":"f:///x/below","taskId":"t"}`,
			`notifications/resources/updated {"uri":"a+f:///x/below","taskId":"t"}`,
		}, "\n"))
		w.session.Close()
	})
}

func TestASubscriptionToNothingIsAcknowledgedAndStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &server{answer: listening()}
		w := open(t, map[string]*server{"a": a}, nil)
		done := subscribe(t, w, `{"resourceSubscriptions":["nobody:///x",7],"taskIds":"x"}`)
		equal(t, "told", w.client.heard(),
			[]string{`notifications/subscriptions/acknowledged {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},"notifications":{}}`})
		equal(t, "asked", a.seen(), []string{})
		equal(t, "answered", len(done), 0)
		w.session.Close()
	})
}

func TestASubscriptionToTooMuchIsRefused(t *testing.T) {
	w := open(t, map[string]*server{"a": {answer: listening()}}, nil)
	uris := strings.Repeat(`"a+f:///x",`, 1000) + `"a+f:///y"`
	equal(t, "answer", w.call(t, "subscriptions/listen",
		`{"notifications":{"resourceSubscriptions":[`+uris+`]}}`),
		"!-32602 a subscription to more than 1000 resources and tasks: open several")
}

func TestASubscriptionAndAConfigurationThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := &server{answer: listening()}, &server{answer: listening()},
			&server{answer: listening()}
		w := open(t, map[string]*server{"a": a, "b": b}, nil)
		subscribe(t, w, `{"toolsListChanged":true}`)
		told := len(w.client.heard())
		o := w.options
		o.Servers = []proxy.ServerConfig{{Name: "a", Upstream: a}, {Name: "c", Upstream: c}}
		if err := w.proxy.Apply(o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		equal(t, "a was asked", len(a.seen()), 1)
		equal(t, "b, which is gone, was asked", len(b.seen()), 1)
		equal(t, "c, which is new, was asked", c.seen(),
			[]string{`subscriptions/listen {"notifications":{"toolsListChanged":true}}`})
		equal(t, "told", w.client.heard()[told:],
			[]string{`notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}`})
		w.session.Close()
	})
}

func TestASubscriptionThatIsOpenedAgainIsJudgedByThePoliciesInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		a := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			listening()(ctx, m, c)
			<-end
			return "dead"
		}}
		w := open(t, map[string]*server{"a": a}, nil)
		subscribe(t, w, `{"toolsListChanged":true}`)
		o := w.options
		o.Pipeline = pipeline.New(w.record, pipeline.Options{}, refusing("subscriptions/listen"))
		if err := w.proxy.Apply(o); err != nil {
			t.Fatal(err)
		}
		close(end)
		time.Sleep(time.Hour)
		synctest.Wait()
		equal(t, "times that the server was asked", len(a.seen()), 1)
		w.record.has(t, "deny to_server request subscriptions/listen a")
		w.session.Close()
	})
}

func TestWhatASubscriptionMissedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := 0
		a := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			times++
			first := times == 1
			listening()(ctx, m, c)
			if first {
				time.Sleep(10 * time.Second)
				return "dead"
			}
			return ""
		}}
		b := &server{answer: listening()}
		w := open(t, map[string]*server{"a": a, "b": b}, nil)
		subscribe(t, w, `{"toolsListChanged":true,"resourceSubscriptions":["a+f:///x","b+f:///y"]}`)
		told := len(w.client.heard())
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(t, "told", strings.Join(w.client.heard()[told:], "\n"), strings.Join([]string{
			`notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}`,
			`notifications/resources/updated {"uri":"a+f:///x","_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}`,
		}, "\n"))
		w.session.Close()
	})
}

func TestWithoutPrefixASubscriptionIsTheServersButForOurOwnChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			c.HandleNotification(ctx,
				mcp.NewNotification("notifications/subscriptions/acknowledged",
					[]byte(`{ "notifications":{"toolsListChanged":true,"new":1.0}}`)))
			c.HandleNotification(ctx, mcp.NewNotification("notifications/tools/list_changed",
				[]byte(`{ }`)))
			return ""
		}}
		w := open(t, map[string]*server{"a": a}, never)
		subscribe(t, w, `{"toolsListChanged":true, "promptsListChanged":true}`)
		if err := w.proxy.Apply(w.options); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, "the server got", a.seen(),
			[]string{`subscriptions/listen {"notifications":{"toolsListChanged":true, "promptsListChanged":true}}`})
		equal(t, "told", strings.Join(w.client.heard(), "\n"), strings.Join([]string{
			`notifications/subscriptions/acknowledged { "notifications":{"toolsListChanged":true,"new":1.0}}`,
			`notifications/tools/list_changed { }`,
			`notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}`,
		}, "\n"))
		w.session.Close()
	})
}
