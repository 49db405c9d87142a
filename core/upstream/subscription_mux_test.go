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

// sharedSubscriptionTest is a server behind a pipe, with subscriptions of several sessions of one
// principal.
type sharedSubscriptionTest struct {
	t        *testing.T
	upstream *upstream.Upstream
	launcher *upstreamtest.Launcher
	current  upstreamtest.Message // the subscriptions/listen that is open at the server
}

// subscribe opens another session, and sends a subscriptions/listen in it.
func (c *sharedSubscriptionTest) subscribe(id,
	filter string) (*upstreamtest.Call, *upstreamtest.Client) {
	to := &upstreamtest.Client{}
	p := upstreamtest.StartCall(c.t, openModernSession(c.t, c.upstream, id, ""), to,
		upstreamtest.ModernRequest(id,
			"subscriptions/listen", ``,
			`,"notifications":`+filter))
	synctest.Wait()
	return p, to
}

// expectListen checks that the server gets a subscriptions/listen with the given filter.
func (c *sharedSubscriptionTest) expectListen(filter string) {
	c.t.Helper()
	c.current = c.launcher.Last(c.t).Expect(c.t, "subscriptions/listen")
	if want := `"notifications":` + filter + `}`; !strings.HasSuffix(string(c.current.Params),
		want) {
		c.t.Errorf("the server got the params %s, want %s", c.current.Params, want)
	}
}

// expectCancel checks that the subscription at the server is cancelled, and has the server end it.
func (c *sharedSubscriptionTest) expectCancel() {
	c.t.Helper()
	if n := c.launcher.Last(c.t).Expect(c.t,
		"notifications/cancelled"); string(n.Params) != `{"requestId":`+string(c.current.ID)+`}` {
		c.t.Errorf("the cancellation has the params %s, want the request id %s", n.Params,
			c.current.ID)
	}
	c.launcher.Last(c.t).Answer(c.current.ID, `{"resultType":"complete"}`)
}

// notify has the server send a notification on its subscription.
func (c *sharedSubscriptionTest) notify(method, params string) {
	c.launcher.Last(c.t).Send(
		`{"jsonrpc":"2.0","method":"notifications/%s","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}%s}}`, method, c.current.ID, params)
	synctest.Wait()
}

// acknowledge has the server acknowledge its subscription with a filter.
func (c *sharedSubscriptionTest) acknowledge(filter string) {
	c.notify("subscriptions/acknowledged", `,"notifications":`+filter)
}

// notified returns a notification of the server as the client gets it. id is the client's
// subscription id.
func notified(id, method, params string) string {
	return `{"jsonrpc":"2.0","method":"notifications/` + method +
		`","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}` + params + `}}`
}

func acknowledged(id, filter string) string {
	return notified(id, "subscriptions/acknowledged", `,"notifications":`+filter)
}

// notifiedByGatekit returns a notification that Gatekit makes itself.
func notifiedByGatekit(id, method, params string) string {
	return `{"jsonrpc":"2.0","method":"notifications/` + method + `","params":{` + params +
		`"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`
}

func TestSubscribersOverAPipeShareOneSubscription(t *testing.T) {
	const tools, both = `{"toolsListChanged":true}`,
		`{"promptsListChanged":true,"toolsListChanged":true}`
	for name, play := range map[string]func(t *testing.T, c *sharedSubscriptionTest){
		"a subscriber whose filter is already covered shares the subscription": func(t *testing.T,
			c *sharedSubscriptionTest) {
			_, a := c.subscribe("1", `{"promptsListChanged":true,"toolsListChanged":true}`)
			c.expectListen(both)
			c.acknowledge(both)
			_, b := c.subscribe("2", tools)
			c.launcher.Last(t).ExpectNothing(t)
			c.notify("prompts/list_changed", "")
			c.notify("tools/list_changed", "")
			a.ExpectReceived(t, acknowledged("1", both), notified("1", "prompts/list_changed", ""),
				notified("1", "tools/list_changed", ""))
			b.ExpectReceived(t, acknowledged("2", tools), notified("2", "tools/list_changed", ""))
		},
		"a further filter replaces the subscription, and no change is lost": func(t *testing.T,
			c *sharedSubscriptionTest) {
			_, a := c.subscribe("1", `{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`)
			c.expectListen(`{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`)
			c.acknowledge(`{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`)
			p, b := c.subscribe("2", `{"resourceSubscriptions":["f:///b","f:///no"]}`)
			c.expectCancel()
			const all = `{"resourceSubscriptions":["f:///a","f:///b","f:///no"],"toolsListChanged":true}`
			c.expectListen(all)
			c.acknowledge(`{"resourceSubscriptions":["f:///a","f:///b"],"toolsListChanged":true}`)
			c.notify("resources/updated", `,"uri":"f:///b"`)
			c.notify("resources/updated", `,"uri":"f:///below"`)
			a.ExpectReceived(t, acknowledged("1",
				`{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`),
				notifiedByGatekit("1", "resources/updated", `"uri":"f:///a",`),
				notifiedByGatekit("1", "tools/list_changed", ""),
				notified("1", "resources/updated", `,"uri":"f:///below"`))
			b.ExpectReceived(t, acknowledged("2", `{"resourceSubscriptions":["f:///b"]}`),
				notified("2", "resources/updated", `,"uri":"f:///b"`),
				notified("2", "resources/updated", `,"uri":"f:///below"`))
			p.Cancel(&proxy.CancelledError{})
			// The subscription stays, although it asks for more than is needed now.
			c.launcher.Last(t).ExpectNothing(t)
			before := len(a.Received())
			c.notify("resources/updated", `,"uri":"f:///b"`) // no subscriber asks for it now
			c.acknowledge(`{}`)                              // the server acknowledges again
			if n := len(a.Received()); n != before {
				t.Errorf("the other subscriber got %d notifications, want 0", n-before)
			}
		},
		"the subscription is cancelled when the last subscriber ends": func(t *testing.T,
			c *sharedSubscriptionTest) {
			p, _ := c.subscribe("1", tools)
			c.expectListen(tools)
			c.acknowledge(tools)
			q, _ := c.subscribe("2", tools)
			p.Cancel(&proxy.CancelledError{})
			c.launcher.Last(t).ExpectNothing(t)
			q.Cancel(&proxy.CancelledError{})
			c.expectCancel()
		},
		"a refusal ends only the subscriber that caused it": func(t *testing.T,
			c *sharedSubscriptionTest) {
			p, _ := c.subscribe("1", tools)
			c.expectListen(tools)
			c.acknowledge(tools)
			q, _ := c.subscribe("2", `{"taskIds":["x"]}`)
			c.expectCancel()
			c.expectListen(`{"taskIds":["x"],"toolsListChanged":true}`)
			c.launcher.Last(t).Send(
				`{"jsonrpc":"2.0","id":%s,"error":{"code":-32021,"message":"no tasks"}}`,
				c.current.ID)
			q.ExpectAnswer(`{"jsonrpc":"2.0","id":2,"error":{"code":-32021,"message":"no tasks"}}`)
			c.expectListen(tools)
			p.ExpectWaiting()
		},
		"the wait for the end of a cancelled subscription is bounded": func(t *testing.T,
			c *sharedSubscriptionTest) {
			c.subscribe("1", tools)
			c.expectListen(tools)
			c.acknowledge(tools)
			c.subscribe("2", `{"promptsListChanged":true}`)
			c.launcher.Last(t).Expect(t, "notifications/cancelled")
			c.launcher.Last(t).ExpectNothing(t)
			time.Sleep(time.Second)
			c.expectListen(both)
		},
		"all subscribers end when the server ends the subscription": func(t *testing.T,
			c *sharedSubscriptionTest) {
			p, _ := c.subscribe("1", tools)
			c.expectListen(tools)
			c.acknowledge(tools)
			q, _ := c.subscribe("2", tools)
			synctest.Wait()
			c.launcher.Last(t).Answer(c.current.ID,
				`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":`+
					string(c.current.ID)+`}}`)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`)
			q.ExpectAnswer(`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, st := newModernUpstream(upstream.Options{})
				defer u.Close()
				play(t, &sharedSubscriptionTest{t: t, upstream: u, launcher: st})
			})
		})
	}
}
