package upstream_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// chorus is a server behind a pipe, and subscriptions of several sessions of one principal at it.
type chorus struct {
	t   *testing.T
	u   *upstream.Upstream
	st  *upstreamtest.Launcher
	now upstreamtest.Message // the subscription that the server has
}

// joins opens another session, which subscribes.
func (c *chorus) joins(id, filter string) (*upstreamtest.Call, *upstreamtest.Client) {
	to := &upstreamtest.Client{}
	p := upstreamtest.StartCall(c.t, openFor(c.t, c.u, id, ""), to, upstreamtest.ModernRequest(id,
		"subscriptions/listen", ``,
		`,"notifications":`+filter))
	synctest.Wait()
	return p, to
}

// asked wants the server to be asked for a filter.
func (c *chorus) asked(filter string) {
	c.t.Helper()
	c.now = c.st.Last(c.t).Expect(c.t, "subscriptions/listen")
	if want := `"notifications":` + filter + `}`; !strings.HasSuffix(string(c.now.Params), want) {
		c.t.Errorf("the server is asked with %s, want %s", c.now.Params, want)
	}
}

// ends wants the server's subscription to be cancelled, which the server answers.
func (c *chorus) ends() {
	c.t.Helper()
	if n := c.st.Last(c.t).Expect(c.t,
		"notifications/cancelled"); string(n.Params) != `{"requestId":`+string(c.now.ID)+`}` {
		c.t.Errorf("cancelled %s, want %s", n.Params, c.now.ID)
	}
	c.st.Last(c.t).Answer(c.now.ID, `{"resultType":"complete"}`)
}

// says has the server send a notification on its subscription.
func (c *chorus) says(method, params string) {
	c.st.Last(c.t).Send(
		`{"jsonrpc":"2.0","method":"notifications/%s","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}%s}}`, method, c.now.ID, params)
	synctest.Wait()
}

func (c *chorus) acks(filter string) {
	c.says("subscriptions/acknowledged", `,"notifications":`+filter)
}

// told is a notification as a client gets it.
func told(id, method, params string) string {
	return `{"jsonrpc":"2.0","method":"notifications/` + method +
		`","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}` + params + `}}`
}

func acked(id, filter string) string {
	return told(id, "subscriptions/acknowledged", `,"notifications":`+filter)
}

// made is a notification of upstream's own.
func made(id, method, params string) string {
	return `{"jsonrpc":"2.0","method":"notifications/` + method + `","params":{` + params +
		`"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`
}

func TestOneSubscriptionAtAServerBehindAPipe(t *testing.T) {
	const tools, both = `{"toolsListChanged":true}`,
		`{"promptsListChanged":true,"toolsListChanged":true}`
	for name, play := range map[string]func(t *testing.T, c *chorus){
		"what it covers already is answered from it": func(t *testing.T, c *chorus) {
			_, a := c.joins("1", `{"promptsListChanged":true,"toolsListChanged":true}`)
			c.asked(both)
			c.acks(both)
			_, b := c.joins("2", tools)
			c.st.Last(t).ExpectNothing(t)
			c.says("prompts/list_changed", "")
			c.says("tools/list_changed", "")
			a.ExpectReceived(t, acked("1", both), told("1", "prompts/list_changed", ""),
				told("1", "tools/list_changed", ""))
			b.ExpectReceived(t, acked("2", tools), told("2", "tools/list_changed", ""))
		},
		"what it does not cover replaces it, and nobody misses anything": func(t *testing.T,
			c *chorus) {
			_, a := c.joins("1", `{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`)
			c.asked(`{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`)
			c.acks(`{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`)
			p, b := c.joins("2", `{"resourceSubscriptions":["f:///b","f:///no"]}`)
			c.ends()
			const all = `{"resourceSubscriptions":["f:///a","f:///b","f:///no"],"toolsListChanged":true}`
			c.asked(all)
			c.acks(`{"resourceSubscriptions":["f:///a","f:///b"],"toolsListChanged":true}`)
			c.says("resources/updated", `,"uri":"f:///b"`)
			c.says("resources/updated", `,"uri":"f:///below"`)
			a.ExpectReceived(t, acked("1",
				`{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`),
				made("1", "resources/updated", `"uri":"f:///a",`),
				made("1", "tools/list_changed", ""),
				told("1", "resources/updated", `,"uri":"f:///below"`))
			b.ExpectReceived(t, acked("2", `{"resourceSubscriptions":["f:///b"]}`),
				told("2", "resources/updated", `,"uri":"f:///b"`),
				told("2", "resources/updated", `,"uri":"f:///below"`))
			p.Cancel(&proxy.CancelledError{})
			c.st.Last(t).ExpectNothing(t) // it is wider than needed now, and stays
			told := len(a.Received())
			c.says("resources/updated", `,"uri":"f:///b"`) // which nobody wants any more
			c.acks(`{}`)                                   // twice
			if n := len(a.Received()); n != told {
				t.Errorf("the other was told %d messages of what it did not ask for", n-told)
			}
		},
		"it is cancelled when the last one leaves": func(t *testing.T, c *chorus) {
			p, _ := c.joins("1", tools)
			c.asked(tools)
			c.acks(tools)
			q, _ := c.joins("2", tools)
			p.Cancel(&proxy.CancelledError{})
			c.st.Last(t).ExpectNothing(t)
			q.Cancel(&proxy.CancelledError{})
			c.ends()
		},
		"what the server refuses is refused to the one who asked": func(t *testing.T, c *chorus) {
			p, _ := c.joins("1", tools)
			c.asked(tools)
			c.acks(tools)
			q, _ := c.joins("2", `{"taskIds":["x"]}`)
			c.ends()
			c.asked(`{"taskIds":["x"],"toolsListChanged":true}`)
			c.st.Last(t).Send(
				`{"jsonrpc":"2.0","id":%s,"error":{"code":-32021,"message":"no tasks"}}`, c.now.ID)
			q.ExpectAnswer(`{"jsonrpc":"2.0","id":2,"error":{"code":-32021,"message":"no tasks"}}`)
			c.asked(tools)
			p.ExpectWaiting()
		},
		"a server that does not answer what was cancelled is not waited for": func(t *testing.T,
			c *chorus) {
			c.joins("1", tools)
			c.asked(tools)
			c.acks(tools)
			c.joins("2", `{"promptsListChanged":true}`)
			c.st.Last(t).Expect(t, "notifications/cancelled")
			c.st.Last(t).ExpectNothing(t)
			time.Sleep(time.Second)
			c.asked(both)
		},
		"it ends for all when the server ends it": func(t *testing.T, c *chorus) {
			p, _ := c.joins("1", tools)
			c.asked(tools)
			c.acks(tools)
			q, _ := c.joins("2", tools)
			synctest.Wait()
			c.st.Last(t).Answer(c.now.ID,
				`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":`+
					string(c.now.ID)+`}}`)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`)
			q.ExpectAnswer(`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, st := modernUp(upstream.Options{})
				defer u.Close()
				play(t, &chorus{t: t, u: u, st: st})
			})
		})
	}
}
