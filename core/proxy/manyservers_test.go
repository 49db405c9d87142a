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

// manyServers are 29 servers, s00 to s28. All but three answer in 10 ms. The first initialize of
// s26 takes 8 s, and its later ones 10 ms. Each answer of s27 takes 2 s. s28 hangs until the test
// stores true in repaired.
func manyServers(repaired *atomic.Bool) map[string]*fakeServer {
	servers := map[string]*fakeServer{}
	for n := range 29 {
		name := fmt.Sprintf("s%02d", n)
		var initialized atomic.Bool
		servers[name] = &fakeServer{answer: func(ctx context.Context, m *mcp.Message,
			_ proxy.Handler) string {
			delay := 10 * time.Millisecond
			switch {
			case name == "s28" && !repaired.Load():
				return ""
			case name == "s27":
				delay = 2 * time.Second
			case name == "s26" && m.Method == "initialize" && !initialized.Swap(true):
				delay = 8 * time.Second
			}
			select {
			case <-time.After(delay):
			case <-ctx.Done():
			}
			if m.Method == "initialize" {
				return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`
			}
			return `{"tools":[{"name":"x"}]}`
		}}
	}
	return servers
}

// partialServers returns the servers whose items are missing in an answer, as the answer names
// them.
func partialServers(answer string) (missing []string) {
	mcp.NewResponse("1", []byte(answer)).Items("/_meta/gatekit~1partial",
		func(_ int, raw []byte) bool {
			name, _ := mcp.NewResponse("1", raw).Text("/server")
			missing = append(missing, name)
			return true
		})
	return missing
}

func TestSlowServersAmongManyDelayNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repaired := &atomic.Bool{}
		w := open(t, manyServers(repaired), nil)
		began := time.Now()
		// want sends a request and checks how long its answer takes, how many tools it has, and
		// which servers are missing in it.
		want := func(s *proxy.Session, step, method string, takes time.Duration, tools int,
			missing ...string) {
			t.Helper()
			began, params := time.Now(), `{}`
			if method == "initialize" {
				params = initializeParams
			}
			got := w.callAs(t, s, w.client, `7`, method, params)
			equal(t, step+" took", time.Since(began), takes)
			equal(t, step+": number of tools", strings.Count(got, `"name":"s`), tools)
			equal(t, step+": servers that are missing", partialServers(got), missing)
		}
		const initialize, list = "initialize", "tools/list"
		// The first answer comes after 10 ms. The wait for the other servers lasts 5 s from then.
		want(w.session, "the first initialize", initialize, 5010*time.Millisecond, 0, "s26", "s28")
		w.session.Notify(t.Context(), notification(t, "notifications/initialized", `{}`))
		want(w.session, "the first list", list, 2*time.Second, 27, "s26", "s28")
		equal(t, "notifications before all servers have answered", w.feed.received(), []string{})

		// s26 answers initialize, and then the list that waits for it.
		time.Sleep(time.Until(began.Add(8*time.Second + 11*time.Millisecond)))
		synctest.Wait()
		const changed = "notifications/tools/list_changed "
		equal(t, "notifications after s26 has answered", w.feed.received(),
			[]string{changed, changed})
		want(w.session, "a list with s26", list, 2*time.Second, 28, "s28")

		other := w.proxy.Open(proxy.OpenOptions{Session: "other", Principal: identity.FromID("q")},
			&fakeClient{})
		want(other, "initialize of another session", initialize, 2*time.Second, 0, "s28")
		want(other, "the first list of another session", list, 2*time.Second, 28, "s28")
		modern := w.proxy.Open(proxy.OpenOptions{Session: "modern",
			Revision: mcp.Rev20260728}, &fakeClient{})
		want(modern, "the first list of a modern client", list, 2*time.Second, 28, "s28")

		repaired.Store(true)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		equal(t, "notifications after s28 has answered", w.feed.received(),
			[]string{changed, changed, changed})
		want(w.session, "a list with all servers", list, 2*time.Second, 29)
	})
}
