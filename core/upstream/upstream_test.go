package upstream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// callReady calls Ready in the background. The returned function waits for the result and checks
// that it begins with want.
func callReady(t *testing.T, u *upstream.Upstream) func(want string) {
	t.Helper()
	done := make(chan string, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		state, err := u.Ready(ctx)
		done <- fmt.Sprint(state, " ", err)
	}()
	return func(want string) {
		t.Helper()
		if got := <-done; !strings.HasPrefix(got, want) {
			t.Errorf("Ready returned %q, want %q at the beginning", got, want)
		}
	}
}

func TestReadySendsDiscoverToAModernProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := newModernUpstream(upstream.Options{})
		defer u.Close()
		callReady(t, u)("idle <nil>")
		if st.Count() != 0 {
			t.Error("Ready started a process, want none")
		}
		s := openModernSession(t, u, "a", "ann")
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``))
		srv := st.Last(t)
		srv.Answer(srv.Expect(t, "tools/list").ID, `{"resultType":"complete","tools":[]}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[]}}`)

		expectReady := callReady(t, u)
		srv.Answer(srv.Expect(t, "server/discover").ID, `{}`)
		expectReady("up <nil>")
		expectReady = callReady(t, u)
		srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`,
			srv.Expect(t, "server/discover").ID)
		expectReady("up <nil>") // an error is an answer
		callReady(t, u)(`down server "files" is not available: the server did not answer server/discover in time`)
		if u.State() != "up" {
			t.Errorf("State is %s after a failed Ready, want up", u.State())
		}
	})
}

func TestReadyPingsALegacyProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{})
		defer l.close(t)
		expectReady := callReady(t, l.upstream)
		l.process.Answer(l.process.Expect(t, "ping").ID, `{}`)
		expectReady("up <nil>")
		l.process.Close()
		synctest.Wait()
		callReady(t, l.upstream)("down")
	})
}

// metaObserver is an Observer that sets a key in the _meta of each request.
type metaObserver struct{ ended []string }

func (w *metaObserver) Send(_ context.Context,
	m *mcp.Message) ([]mcp.Edit, func(*mcp.Message, error)) {
	return []mcp.Edit{mcp.Set("/_meta/mark", []byte(`1`))}, func(answer *mcp.Message, err error) {
		w.ended = append(w.ended, fmt.Sprint(m.Method, " ", answer != nil, " ", err))
	}
}

func TestObserverEditsMeta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &metaObserver{}
		l := startLegacyServer(t, upstream.Options{Observer: w})
		defer l.close(t)
		p := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","arguments":{"a":1.0},"_meta":{"k": 2}}}`)
		got := l.process.Expect(t, "tools/call")
		const marked = `"params":{"name":"x","arguments":{"a":1.0},"_meta":{"k": 2,"mark":1}}`
		if !strings.Contains(string(got.Raw), marked) {
			t.Errorf("the server got %s, want %s", got.Raw, marked)
		}
		l.process.Answer(got.ID, `{"content":[]}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`)
		p = upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":8,"method":"tools/list","params":{"_meta":5}}`)
		if got := l.process.Expect(t, "tools/list"); !strings.Contains(string(got.Raw),
			`"params":{"_meta":5}`) {
			t.Errorf("a request whose _meta is not an object became %s, want it unchanged",
				got.Raw)
		} else {
			l.process.Answer(got.ID, `{}`)
		}
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":8,"result":{}}`)
		const want = "tools/call true <nil> tools/list true <nil>]"
		if ended := fmt.Sprint(w.ended); !strings.HasSuffix(ended, want) {
			t.Errorf("the observer was notified of %s, want %s at the end", ended, want)
		}
	})
}
