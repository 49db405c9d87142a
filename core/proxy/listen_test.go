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
func listening(news ...string) func(context.Context, *mcp.Message, proxy.Caller) string {
	return func(ctx context.Context, m *mcp.Message, c proxy.Caller) string {
		filter, _ := m.Get("/notifications")
		tag := `{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID()) + `}`
		c.Notify(ctx, mcp.NewNotification("notifications/subscriptions/acknowledged", []byte(tag+`,"notifications":`+string(filter)+`}`)))
		for _, n := range news {
			c.Notify(ctx, mcp.NewNotification(n, []byte(tag+`,"uri":"f:///x"}`)))
		}
		return ""
	}
}

func TestASubscriptionIsFedByEveryServerThatItConcerns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &server{answer: listening("notifications/resources/updated")}
		slow := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Caller) string {
			time.Sleep(3 * time.Second)
			return listening()(ctx, m, c)
		}}
		none := &server{answer: func(context.Context, *mcp.Message, proxy.Caller) string { return "!-32601 no" }}
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
		equal(t, "told", strings.Join(w.client.heard(), "\n"), `notifications/subscriptions/acknowledged {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},`+
			`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a+f:///x","b+f:///y"]}}`+"\n"+
			`notifications/resources/updated {"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},"uri":"a+f:///x"}`)
		equal(t, "a was asked", a.seen(), []string{`subscriptions/listen {"notifications":{"toolsListChanged":true,"resourceSubscriptions":["f:///x"]}}`})
		go w.session.Close()
		equal(t, "the end", show(t, `"L"`, <-done), `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}`)
	})
}

func TestASubscriptionOutlivesAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := 0
		a := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Caller) string {
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
			done <- w.session.Call(ctx, request(t, "1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`), w.client)
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
		w := open(t, map[string]*server{"a": {answer: listening()}}, func(o *proxy.Options) { o.Limits.Listens = 1 })
		go w.session.Call(t.Context(), request(t, "1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`), w.client)
		synctest.Wait()
		equal(t, "one more", w.call(t, "subscriptions/listen", `{"notifications":{}}`), "!-32603 too many subscriptions are open: end one, then try again")
		w.session.Close()
	})
}
